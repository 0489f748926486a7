# SPDX-License-Identifier: Apache-2.0
"""The stored error of a failed job."""

import logging
from collections.abc import Callable

import pytest
from error_site import Site
from vllm.exceptions import VLLMValidationError

from vllm_omni_errors import (
    OmniEngineDeadError,
    OmniEngineGenerateError,
    OmniErrorDetails,
    OmniServiceUnavailableError,
    to_details,
    to_exception,
)
from vllm_omni_errors.transports.jobs import JobError

PRIVATE = "/srv/models/secret/weights.bin"


@pytest.mark.parametrize(
    ("exc", "stored"),
    [
        (VLLMValidationError("n is bad", parameter="n", value=PRIVATE), (400, "BadRequestError", "n", None)),
        (ValueError(PRIVATE), (500, "InternalServerError", None, None)),
        (TimeoutError(""), (500, "InternalServerError", None, None)),
        (OmniEngineGenerateError(PRIVATE, stage_id=1), (500, "InternalServerError", None, 1)),
        (OmniEngineDeadError(stage_id=2), (500, "InternalServerError", None, 2)),
        (OmniServiceUnavailableError("No stage."), (503, "ServiceUnavailableError", None, None)),
    ],
)
def test_a_job_stores_the_public_object(exc: Exception, stored: tuple[object, ...]) -> None:
    """J09: the message is never empty; nothing private is in it."""
    error = JobError.of(exc, request_id="video-1")
    assert (error.code, error.type, error.param, error.error_stage_id) == stored
    assert error.request_id == "video-1"
    assert error.message.strip()
    assert PRIVATE not in error.model_dump_json()


def test_a_record_that_came_with_the_exception_is_stored_as_it_is() -> None:
    record = OmniErrorDetails("no", "client", 404, "NotFoundError", request_id="stage-1", stage_id=3)
    error = JobError.of(to_exception(record), request_id="video-1")
    assert (error.code, error.type, error.request_id, error.error_stage_id) == (404, "NotFoundError", "stage-1", 3)


@pytest.mark.parametrize(
    "exc",
    [VLLMValidationError("n is bad", parameter="n"), ValueError("x"), OmniEngineGenerateError("x", stage_id=1),
     OmniEngineDeadError(stage_id=0), OmniServiceUnavailableError("No stage.")],
)  # fmt: skip
def test_an_exception_of_it_says_the_same(exc: Exception) -> None:
    """J05: also of one that was stored and loaded, and as often as it is asked for."""
    error = JobError.of(exc, request_id="video-1")
    loaded = JobError.model_validate_json(error.model_dump_json())
    details = to_details(loaded.to_exception(), request_id="another")
    assert JobError.of(loaded.to_exception(), request_id="another") == error
    assert (details.status_code, details.request_id) == (error.code, "video-1")
    assert not details.fatal  # whoever asks for it now is not the request that met the dead engine


def test_a_request_for_what_a_failed_job_did_not_make_need_not_be_repeated(plain: Callable[..., Site]) -> None:
    error = JobError.of(ValueError("x"), request_id="video-1")
    site = plain()
    site.failure = error.to_exception
    answer = site.client.get("/raise")
    assert answer.status_code == 500
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["x-request-id"] == "video-1"
    assert answer.json()["error"] == error.model_dump()


def test_the_failure_is_logged_once(log: list[logging.LogRecord]) -> None:
    JobError.of(VLLMValidationError("n is bad", parameter="n"), request_id="video-1")
    JobError.of(ValueError(PRIVATE), request_id="video-2")
    client, server = log
    assert (client.levelname, client.exc_info) == ("INFO", None)
    assert (server.levelname, server.exc_info is not None) == ("ERROR", True)
    assert "video-1: 400 BadRequestError: n is bad" in client.getMessage()
