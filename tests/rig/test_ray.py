# SPDX-License-Identifier: Apache-2.0
"""Errors through the actors of a real Ray cluster, on which vLLM-Omni runs its stages across machines."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from vllm_omni_errors import convert, exceptions, stage, upstream
from vllm_omni_errors.details import OmniErrorDetails
from vllm_omni_rig import environment

REQUEST_ID = "chatcmpl-0123456789abcdef"

EXCEPTIONS: dict[str, Exception] = {
    "OmniClientError": exceptions.OmniClientError(
        "no", status_code=451, error_type="Odd", parameter="size", stage_id=1
    ),
    "OmniServerError": exceptions.OmniServerError("no", status_code=507, error_type="Odd", stage_id=1),
    "GuardrailViolationError": exceptions.GuardrailViolationError("no", stage_id=1),
    "OmniConflictError": exceptions.OmniConflictError("no", stage_id=1),
    "OmniNotImplementedError": exceptions.OmniNotImplementedError("no", stage_id=1),
    "OmniServiceUnavailableError": exceptions.OmniServiceUnavailableError("no", permanent=True, stage_id=1),
    "OmniStageTimeoutError": exceptions.OmniStageTimeoutError("no", stage_id=1),
    "OmniEngineGenerateError": exceptions.OmniEngineGenerateError("no", stage_id=1),
    "OmniEngineDeadError": exceptions.OmniEngineDeadError("no", error_stage_id=1),
}
FIELDS = ("message", "stage_id", "error_stage_id", "status_code", "error_type", "parameter", "permanent", "details")


class Unpicklable(Exception):  # noqa: N818
    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


class Stage:
    """A stage in another process."""

    def raises(self, exc: Exception) -> None:
        raise exc

    def raises_because_of_what_cannot_be_pickled(self, exc: Exception) -> None:
        try:
            raise Unpicklable(lambda: "cannot be pickled")
        except Unpicklable as cause:
            raise exc from cause

    def guards(self, exc: Exception) -> None:
        with stage.guard(request_id=REQUEST_ID, stage_id=1):
            raise exc

    def guards_a_rejected_value_that_cannot_be_pickled(self) -> None:
        with stage.guard(request_id=REQUEST_ID, stage_id=1):
            raise upstream.VLLMValidationError("no", parameter="size", value=lambda: "cannot be pickled")

    def relays(self, other: Any, exc: Exception) -> None:
        ray.get(other.guards.remote(exc))


@pytest.fixture(scope="module")
def stages() -> Iterator[tuple[Any, Any]]:
    """Two actors in processes of their own."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",
        num_cpus=1,
        object_store_memory=80 * 1024 * 1024,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": environment.variables(inherited={"PYTHONPATH": str(Path(__file__).parent)})},
    )
    actor = ray.remote(num_cpus=0)(Stage)
    try:
        yield actor.remote(), actor.remote()
    finally:
        ray.shutdown()


def failure(call: Any) -> Any:
    """What the caller of an actor catches."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        ray.get(call, timeout=450)
    return caught.value


def assert_is_the_same(arrived: Any, sent: Exception) -> None:
    """The class, so that it can be caught; every field; and the record, which is made or carried."""
    assert isinstance(arrived, type(sent))
    assert isinstance(arrived, upstream.VLLMClientError) == isinstance(sent, upstream.VLLMClientError)
    for name in FIELDS:
        assert getattr(arrived, name, None) == getattr(sent, name, None), name


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_an_omni_error_of_an_actor_has_class_and_fields(name: str, stages: tuple[Any, Any]) -> None:
    exc = EXCEPTIONS[name]
    arrived = failure(stages[0].raises.remote(exc))
    assert_is_the_same(arrived, exc)
    assert type(arrived.cause) is type(exc)
    assert convert.to_details(arrived.cause) == convert.to_details(exc)
    assert convert.to_details(arrived) == convert.to_details(exc)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_a_cause_that_cannot_be_pickled_does_not_break_it(name: str, stages: tuple[Any, Any]) -> None:
    exc = EXCEPTIONS[name]
    assert_is_the_same(failure(stages[0].raises_because_of_what_cannot_be_pickled.remote(exc)), exc)


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_a_guarded_actors_error_carries_its_record(name: str, stages: tuple[Any, Any]) -> None:
    details = convert.to_details(EXCEPTIONS[name], request_id=REQUEST_ID)
    arrived = failure(stages[0].guards.remote(EXCEPTIONS[name]))
    assert arrived.details == details
    assert convert.to_details(arrived, request_id="other", stage_id=9) == details
    assert isinstance(arrived, type(convert.to_exception(details)))


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_case_i13_a_record_survives_two_actors(name: str, stages: tuple[Any, Any]) -> None:
    first, second = stages
    arrived = failure(first.relays.remote(second, EXCEPTIONS[name]))
    details = convert.to_details(EXCEPTIONS[name], request_id=REQUEST_ID)
    assert convert.to_details(arrived) == details


def test_upstreams_error_with_a_value_that_cannot_be_pickled_keeps_its_record(stages: tuple[Any, Any]) -> None:
    arrived = failure(stages[0].guards_a_rejected_value_that_cannot_be_pickled.remote())
    assert isinstance(arrived, upstream.VLLMValidationError)
    assert (arrived.parameter, arrived.value) == ("size", None)
    assert arrived.details == OmniErrorDetails(  # type: ignore[attr-defined]
        "no", "client", 400, "BadRequestError", "size", REQUEST_ID, 1
    )
