# SPDX-License-Identifier: Apache-2.0
"""The Omni types: their parents, and that nothing is lost when they are copied, pickled or sent through Ray."""

import copy
import pickle
from typing import Any

import pytest

from vllm_omni_errors import convert, exceptions, upstream
from vllm_omni_errors.details import OmniErrorDetails

OMNI_TYPES = {
    exceptions.OmniClientError: upstream.VLLMClientError,
    exceptions.OmniServerError: upstream.VLLMServerError,
    exceptions.GuardrailViolationError: upstream.VLLMClientError,
    exceptions.OmniConflictError: upstream.VLLMClientError,
    exceptions.OmniNotImplementedError: upstream.VLLMServerError,
    exceptions.OmniServiceUnavailableError: upstream.VLLMServerError,
    exceptions.OmniStageTimeoutError: upstream.VLLMServerError,
    exceptions.OmniEngineGenerateError: upstream.EngineGenerateError,
    exceptions.OmniEngineDeadError: upstream.EngineDeadError,
}


@pytest.mark.parametrize(("omni_type", "parent"), OMNI_TYPES.items())
def test_has_the_parent_of_the_rfc(omni_type: type[Exception], parent: type[Exception]) -> None:
    assert issubclass(omni_type, parent)
    assert not issubclass(omni_type, ValueError)


@pytest.mark.parametrize("omni_type", OMNI_TYPES)
def test_knows_its_stage_under_both_names(omni_type: type[exceptions._OmniError]) -> None:
    exc = omni_type("no", stage_id=1)
    assert (exc.stage_id, exc.error_stage_id) == (1, 1)
    exc.error_stage_id = 0
    assert exc.stage_id == 0


@pytest.mark.parametrize("omni_type", OMNI_TYPES)
def test_says_its_message_and_carries_no_record_of_its_own(omni_type: type[exceptions._OmniError]) -> None:
    exc = omni_type("no")
    assert (str(exc), exc.message, exc.args) == ("no", "no", ("no",))
    assert exc.details is None


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("hop", [copy.copy, copy.deepcopy, lambda exc: pickle.loads(pickle.dumps(exc))])
@pytest.mark.parametrize("omni_type", OMNI_TYPES)
def test_cases_i01_and_i07_survives_copying_and_pickling(omni_type, hop, hops) -> None:  # type: ignore[no-untyped-def]
    details = OmniErrorDetails("no", "server", 500, "InternalServerError", stage_id=1, fatal=True)
    exc = omni_type("no", stage_id=1)
    exc.details = details
    exc.add_note("a note")
    exc.__cause__ = RuntimeError(lambda: "cannot be pickled")
    copied = exc
    for _ in range(hops):
        copied = hop(copied)
    assert type(copied) is omni_type
    assert copied.args == exc.args
    assert vars(copied) == vars(exc)


@pytest.mark.parametrize("omni_type", OMNI_TYPES)
def test_an_instance_that_stands_for_another_asks_it_for_everything(omni_type: type[Any]) -> None:
    """What Ray raises in an actor's caller is of such a class (``ray/exceptions.py``, RayTaskError)."""
    original = omni_type("no", stage_id=1)
    original.details = OmniErrorDetails("no", "server", 500, "InternalServerError", stage_id=1)

    class StandIn(omni_type):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def __getattr__(self, name: str) -> object:
            return getattr(original, name)

    for name in ("message", "stage_id", "error_stage_id", "details"):
        assert getattr(StandIn(), name) == getattr(original, name)


def test_what_a_constructor_was_given_survives_too() -> None:
    exc = exceptions.OmniClientError("no", status_code=451, error_type="Odd", parameter="p", stage_id=2)
    copied = pickle.loads(pickle.dumps(exc))
    assert (copied.status_code, copied.error_type, copied.parameter, copied.stage_id) == (451, "Odd", "p", 2)
    permanent = pickle.loads(pickle.dumps(exceptions.OmniServiceUnavailableError("no", permanent=True)))
    assert permanent.permanent


def test_the_constructor_of_vllm_omnis_client_error_keeps_working() -> None:
    exc = exceptions.OmniClientError("no")
    assert (exc.message, exc.status_code, exc.error_type) == ("no", 400, "BadRequestError")
    exc = exceptions.OmniClientError("no", status_code=404, error_type="NotFoundError")
    assert (exc.message, exc.status_code, exc.error_type) == ("no", 404, "NotFoundError")


def test_a_guardrails_rejection_is_still_an_omni_client_error() -> None:
    exc = exceptions.GuardrailViolationError("no")
    assert isinstance(exc, exceptions.OmniClientError)
    assert (exc.status_code, exc.error_type) == (400, "GuardrailViolationError")


def test_the_constructor_of_vllm_omnis_dead_engine_keeps_working() -> None:
    exc = exceptions.OmniEngineDeadError("no", error_stage_id=1, suppress_context=True)
    assert (exc.args, exc.error_stage_id, exc.__suppress_context__) == (("no",), 1, True)
    assert exceptions.OmniEngineDeadError().message == exceptions.OmniEngineDeadError.DEFAULT_MESSAGE


@pytest.mark.parametrize("status", [200, 302, 503, 700, -1])
def test_no_constructor_raises_for_a_status_of_the_other_side(status: int) -> None:
    details = convert.to_details(exceptions.OmniClientError("no", status_code=status))
    assert (details.category, details.status_code, details.error_type) == ("server", 500, "InternalServerError")
