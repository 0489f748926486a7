# SPDX-License-Identifier: Apache-2.0
"""`Omni` and `AsyncOmni` in Python (contract, section 7): on a real stage, in a process of their own."""

import json
from pathlib import Path

import pytest
from contract import nothing_leaks
from offline import BATCHES, Offline, Result, run


@pytest.fixture(params=["list", "generator"])
def results(request: pytest.FixtureRequest, offline: Offline) -> dict[str, Result]:
    """The batches of both forms; the engine must live to the end of each."""
    return offline(request.param) | {"form": {"name": request.param}}


SEMANTIC = [
    ("refused", "GuardrailViolationError", 400, "GuardrailViolationError", None),
    ("parameter", "VLLMValidationError", 400, "BadRequestError", "size"),
    ("conflict", "OmniConflictError", 409, "ConflictError", None),
    ("unprocessable", "VLLMUnprocessableEntityError", 422, "UnprocessableEntityError", "size"),
    ("client", "VLLMNotFoundError", 404, "NotFoundError", None),
    ("not implemented", "OmniNotImplementedError", 501, "NotImplementedError", None),
    ("timeout", "OmniStageTimeoutError", 504, "GatewayTimeoutError", None),
    ("raw", "OmniEngineGenerateError", 500, "InternalServerError", None),
]


@pytest.mark.parametrize(("batch", "name", "status", "error_type", "parameter"), SEMANTIC)
def test_a_failure_in_a_stage_is_the_semantic_exception(
    results: dict[str, Result], batch: str, name: str, status: int, error_type: str, parameter: str | None
) -> None:
    """I13, I15: class, record and stage are those of the failure, not a `RuntimeError`."""
    error = results[batch]["error"]
    details = error["details"]
    assert (error["class"], details["status_code"], details["error_type"]) == (name, status, error_type)
    assert (error["parameter"], details["parameter"]) == (parameter, parameter)
    assert (error["stage_id"], details["stage_id"], details["fatal"]) == (0, 0, False)
    assert "stage 0" in error["notes"][0]
    nothing_leaks(json.dumps({**error, "text": error["text"].replace("(parameter=size)", "")}))


def test_a_guardrail_can_be_caught_by_its_class_and_as_a_client_error(results: dict[str, Result]) -> None:
    bases = results["refused"]["error"]["bases"]
    assert {"GuardrailViolationError", "OmniClientError", "VLLMClientError"} <= set(bases)
    assert "ValueError" not in bases


def test_one_failure_of_a_batch_loses_that_request_only(results: dict[str, Result]) -> None:
    """The others are finished first; the list form hands them over with the exception, the generator before it."""
    found = results["one of three"]
    error = found["error"]
    assert (error["class"], error["failures"]) == ("GuardrailViolationError", {"1": "GuardrailViolationError"})
    assert (error["outputs"] if results["form"]["name"] == "list" else found["outputs"]) == 2


def test_the_first_of_several_failures_is_raised_and_knows_the_others(results: dict[str, Result]) -> None:
    error = results["two of three"]["error"]
    assert error["class"] == "OmniServiceUnavailableError"
    assert error["failures"] == {"0": "OmniServiceUnavailableError", "2": "VLLMNotFoundError"}


def test_the_engine_is_open_after_all_that(results: dict[str, Result]) -> None:
    assert results["after all"]["error"] is None
    assert results["after all"]["outputs"] == 2


def test_a_fatal_failure_closes_the_engine(results: dict[str, Result]) -> None:
    dead = results["dead"]["error"]
    assert (dead["class"], dead["details"]["fatal"], dead["stage_id"]) == ("OmniEngineDeadError", True, 0)
    assert results.get("after the end", {"error": "not run"})["error"] is not None


def test_stock_loses_the_batch_and_the_engine(tmp_path: Path) -> None:
    """What the tests above are about (facts, section 5)."""
    found = run(tmp_path, "list", {"one of three": BATCHES["one of three"], "after all": ["d"]}, tree=None)
    assert (found["one of three"]["outputs"], found["one of three"]["error"]["details"]) == (0, None)
    assert found.get("after all", {"error": "not run"})["error"] is not None


def test_async_requests_without_an_id_are_independent(offline: Offline) -> None:
    """L13, and the same exceptions as those of `Omni`; one that is fatal is its request's too."""
    (found,) = offline("async").values()
    classes = [each["error"] and each["error"]["class"] for each in found["requests"]]
    assert classes == [
        None,
        "GuardrailViolationError",
        None,
        "VLLMValidationError",
        None,
        "OmniEngineGenerateError",
        "OmniServiceUnavailableError",
        "OmniStageTimeoutError",
        "OmniEngineDeadError",
    ]
    assert [each["outputs"] for each in found["requests"]] == [1, 0, 1, 0, 1, 0, 0, 0, 0]
    assert all(each["error"]["details"]["stage_id"] == 0 for each in found["requests"] if each["error"])
