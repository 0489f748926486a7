# SPDX-License-Identifier: Apache-2.0
"""A batch in which some requests fail."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.exceptions import VLLMNotFoundError, VLLMValidationError

from vllm_omni_errors import GuardrailViolationError, OmniEngineDeadError, OmniErrorDetails, to_details
from vllm_omni_errors.offline import BatchFailures, carry_details, collect, is_fatal
from vllm_omni_errors.stage_messages import message_fields, output_fields

REFUSED = OmniErrorDetails("No.", "client", 400, "GuardrailViolationError", request_id="b", stage_id=1)
GONE = OmniErrorDetails("Gone.", "server", 500, "InternalServerError", request_id="b", stage_id=1, fatal=True)


def an_error(details: OmniErrorDetails) -> SimpleNamespace:
    return SimpleNamespace(**message_fields(details))


def an_output(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(request_id="b", stage_id=1, engine_outputs=SimpleNamespace(**fields))


@pytest.mark.parametrize("message", [an_error(REFUSED), an_output(**output_fields(REFUSED))])
def test_a_failed_request_is_noted(message: object) -> None:
    failures = BatchFailures()
    assert failures.note(message) == "b"
    assert isinstance(failures["b"], GuardrailViolationError)
    assert to_details(failures["b"]) == REFUSED


@pytest.mark.parametrize(
    "message",
    [None, an_output(error=None), an_error(GONE), an_output(**output_fields(GONE)), SimpleNamespace(error="x")],
)
def test_what_is_no_failure_of_one_request_is_left_alone(message: object) -> None:
    failures = BatchFailures()
    assert failures.note(message) is None
    assert failures == {}


def test_the_first_in_the_batch_is_raised_not_the_first_in_time() -> None:
    failures = BatchFailures()
    failures.note(an_error(REFUSED))
    failures.note_exception("a", VLLMNotFoundError("What?"))
    with pytest.raises(VLLMNotFoundError) as raised:
        failures.raise_first(["x", "a", "b"])
    assert raised.value.failures == {1: failures["a"], 2: failures["b"]}  # type: ignore[attr-defined]
    assert to_details(raised.value).request_id == "a"


def test_a_batch_without_failures_ends_quietly() -> None:
    BatchFailures().raise_first(["a", "b"])


def test_the_exception_carries_the_outputs_that_were_there() -> None:
    def outputs() -> Iterator[int]:
        yield 1
        yield 2
        raise GuardrailViolationError("No.")

    with pytest.raises(GuardrailViolationError) as raised:
        collect(outputs())
    assert raised.value.outputs == [1, 2]  # type: ignore[attr-defined]
    assert collect(iter("ab")) == ["a", "b"]


def test_only_the_end_of_an_engine_is_fatal() -> None:
    assert is_fatal(OmniEngineDeadError())
    assert not is_fatal(RuntimeError("x"))
    assert not is_fatal(GuardrailViolationError("x"))


def test_a_typed_exception_gets_its_record_and_a_raw_one_stays_raw() -> None:
    """A raw one is mapped by the route that it reaches, which a record would prevent."""
    typed, raw = VLLMValidationError("No.", parameter="size"), ValueError("x")
    for exc in (typed, raw):
        carry_details(exc, request_id="r")
    assert (typed.details.parameter, typed.details.request_id) == ("size", "r")  # type: ignore[attr-defined]
    assert not hasattr(raw, "details")
