# SPDX-License-Identifier: Apache-2.0
"""Exception to record, and record to exception, for every class and for hostile ones."""

import asyncio
import copy
import dataclasses
import json
import logging
from http import HTTPStatus
from typing import Any

import pydantic
import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import example, given
from hypothesis import strategies as st
from record_strategies import records
from starlette.exceptions import HTTPException
from text_corpus import planted
from vllm.exceptions import GenerationError

from vllm_omni_errors import convert, exceptions, metrics, upstream
from vllm_omni_errors.catalogue import GENERIC
from vllm_omni_errors.convert import to_details, to_exception, worded
from vllm_omni_errors.details import OmniErrorDetails


def brief(exc: BaseException, **known: Any) -> tuple[str, int, str, str | None]:
    details = to_details(exc, **known)
    return details.category, details.status_code, details.error_type, details.parameter


def upstream_class(name: str, *bases: type) -> Any:
    return type(name, bases, {"__module__": "vllm.exceptions"})


Graceful = upstream_class("GracefulHTTPError", upstream.VLLMError)
Generation = upstream_class("GenerationError", upstream.VLLMServerError)
Retryable = upstream_class("RetryableRequestError", Generation)
LoRA = upstream_class("LoRAAdapterNotFoundError", upstream.VLLMNotFoundError)


def having(exc: Exception, **attributes: object) -> Exception:
    vars(exc).update(attributes)
    return exc


# --- the record's invariants (RFC, section 2), where exceptions become records and back -------------------------------

PRIVATE = {text: pieces for _, text, pieces in planted(300, seed=3)}
AUTHORED = (
    upstream.VLLMClientError,
    upstream.VLLMServerError,
    exceptions.OmniClientError,
    exceptions.OmniConflictError,
    exceptions.OmniServerError,
    exceptions.OmniStageTimeoutError,
)
UNKNOWN = (Exception, ValueError, TypeError, OverflowError, NotImplementedError, KeyError, OSError, RuntimeError)
attributes = st.dictionaries(
    st.sampled_from(
        ["status_code", "error_type", "parameter", "http_status", "detail", "message", "fatal", "category"]
    ),
    st.none() | st.booleans() | st.integers(0, 700) | st.text(max_size=20),
)


@given(st.sampled_from([*AUTHORED, Graceful, Generation]), attributes, st.booleans())
def test_invariant_client_errors_have_a_4xx_status_and_server_errors_have_a_5xx_status(
    cls: type[Exception], own: dict[str, object], raw: bool
) -> None:
    details = to_details(having(cls("no"), **own), raw=raw)
    assert details.status_code // 100 == {"client": 4, "server": 5}[details.category]
    if issubclass(cls, upstream.VLLMServerError):
        assert details.category == "server"


@given(st.sampled_from(UNKNOWN), st.text(max_size=20), attributes, st.text(min_size=1, max_size=20))
@example(ValueError, "size is bad", {"status_code": 400}, "VLLMClientError")
def test_invariant_unknown_exceptions_normalize_to_server_error_500(
    base: type[Exception], text: str, own: dict[str, object], name: str
) -> None:
    for cls in (base, type(name.replace("\0", ""), (base,), {"__module__": "somewhere.vllm"})):
        assert to_details(having(cls(text), **own)) == OmniErrorDetails(GENERIC, "server", 500, "InternalServerError")


@given(st.sampled_from([upstream.EngineDeadError, upstream.EngineGenerateError, *AUTHORED, *UNKNOWN]), attributes)
def test_invariant_fatal_true_is_valid_only_for_server_errors(cls: type[Exception], own: dict[str, object]) -> None:
    details = to_details(having(cls("no"), **own))
    assert details.fatal is (cls is upstream.EngineDeadError)
    assert not details.fatal or details.category == "server"


@given(
    st.sampled_from(AUTHORED),
    st.sampled_from(list(PRIVATE)),
    st.sampled_from(["text", "parameter", "value", "error_type", "cause", "note", "detail", "raw text"]),
)
def test_invariant_tracebacks_exceptions_media_tensors_credentials_and_rejected_values_are_never_serialized(
    cls: type[Exception], text: str, where: str
) -> None:
    exc: Exception = cls("The request failed.")
    if where in ("text", "raw text", "detail"):
        exc = {"text": cls, "raw text": ValueError, "detail": lambda detail: HTTPException(400, detail)}[where](text)
    elif where == "value":
        exc = upstream.VLLMValidationError("size is bad", parameter="size", value=text)
    elif where == "cause":
        exc.__cause__ = exc.__context__ = RuntimeError(text)
    elif where == "note":
        exc.add_note(text)
    else:
        having(exc, **{where: text})
    for raw in (False, True):
        details = to_details(exc, raw=raw)
        serialized = repr(dataclasses.asdict(details)) + repr(asdict_of(to_exception(details)))
        assert not [piece for piece in PRIVATE[text] if piece in serialized]


def asdict_of(exc: Exception) -> tuple[object, ...]:
    return exc.args, vars(exc)


@given(records())
def test_invariant_consumers_use_category_not_the_numeric_status_to_reconstruct_ownership(
    details: OmniErrorDetails,
) -> None:
    owner, other = upstream.VLLMClientError, upstream.VLLMServerError
    if details.category == "server":
        owner, other = other, owner  # type: ignore[assignment]
    assert isinstance(to_exception(details), owner)
    assert not isinstance(to_exception(details), other)
    # Even if a record could contradict itself: the number has no say.
    for status in (404, 418, 500, 503):
        forged: Any = copy.copy(details)
        object.__setattr__(forged, "status_code", status)
        assert isinstance(to_exception(forged), owner)


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (upstream.VLLMValidationError("no", parameter="n", value=3), ("client", 400, "BadRequestError", "n")),
        (exceptions.GuardrailViolationError("no"), ("client", 400, "GuardrailViolationError", None)),
        (upstream.VLLMNotFoundError("no"), ("client", 404, "NotFoundError", None)),
        (LoRA("no"), ("client", 404, "NotFoundError", None)),
        (exceptions.OmniConflictError("no"), ("client", 409, "ConflictError", None)),
        (
            upstream.VLLMUnprocessableEntityError("no", parameter="image"),
            ("client", 422, "UnprocessableEntityError", "image"),
        ),
        (upstream.VLLMClientError("no"), ("client", 400, "BadRequestError", None)),
        (exceptions.OmniClientError("no"), ("client", 400, "BadRequestError", None)),
        (
            exceptions.OmniClientError("no", status_code=413, error_type="TooLarge", parameter="p"),
            ("client", 413, "TooLarge", "p"),
        ),
        (upstream.EngineGenerateError("no"), ("server", 500, "InternalServerError", None)),
        (exceptions.OmniEngineGenerateError("no"), ("server", 500, "InternalServerError", None)),
        (upstream.EngineDeadError(), ("server", 500, "InternalServerError", None)),
        (exceptions.OmniEngineDeadError("no"), ("server", 500, "InternalServerError", None)),
        (Generation("no"), ("server", 500, "InternalServerError", None)),
        (having(Generation("no"), status_code=HTTPStatus.BAD_GATEWAY), ("server", 502, "InternalServerError", None)),
        (Retryable("no"), ("server", 503, "ServiceUnavailableError", None)),
        (exceptions.OmniNotImplementedError("no"), ("server", 501, "NotImplementedError", None)),
        (exceptions.OmniServiceUnavailableError("no"), ("server", 503, "ServiceUnavailableError", None)),
        (exceptions.OmniStageTimeoutError("no"), ("server", 504, "GatewayTimeoutError", None)),
        (
            having(Graceful("no"), http_status=HTTPStatus.SERVICE_UNAVAILABLE),
            ("server", 503, "Service Unavailable", None),
        ),
        (having(Graceful("no"), http_status=429), ("client", 429, "Too Many Requests", None)),
        (having(Graceful("no"), http_status=200), ("server", 500, "Internal Server Error", None)),
        (Graceful("no"), ("server", 500, "Internal Server Error", None)),
        (upstream.VLLMServerError("no"), ("server", 500, "InternalServerError", None)),
        (
            exceptions.OmniServerError("no", status_code=502, error_type="Bad", parameter="p"),
            ("server", 502, "Bad", "p"),
        ),
        (exceptions.OmniServerError("no", status_code=404), ("server", 500, "InternalServerError", None)),
        (exceptions.OmniServerError("no", error_type="<script>"), ("server", 500, "InternalServerError", None)),
        (HTTPException(403, "no"), ("client", 403, "Forbidden", None)),
        (HTTPException(499, "no"), ("client", 499, "Client Error", None)),
        (HTTPException(599, "no"), ("server", 599, "Server Error", None)),
        (upstream.VLLMError("no"), ("server", 500, "InternalServerError", None)),
        (ValueError("no"), ("server", 500, "InternalServerError", None)),
        (RuntimeError("no"), ("server", 500, "InternalServerError", None)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_follows_the_catalogue(exc: Exception, expected: tuple[str, int, str, str | None]) -> None:
    assert brief(exc) == expected


@pytest.mark.parametrize(
    ("exc", "message"),
    [
        (upstream.VLLMValidationError("n is bad", parameter="n", value="my prompt"), "n is bad"),
        (upstream.VLLMClientError(), "Bad Request"),
        (upstream.VLLMClientError(5), "Bad Request"),
        (upstream.VLLMNotFoundError(""), "Not Found"),
        (
            LoRA("Loading lora x failed: No adapter found for /secret/place"),
            "The requested LoRA adapter does not exist.",
        ),
        (upstream.EngineGenerateError(), "The engine failed to process the request."),
        (upstream.EngineGenerateError("raw text of a stage"), "The engine failed to process the request."),
        (exceptions.OmniEngineGenerateError("raw", stage_id=1), "Stage 1 failed to process the request."),
        (exceptions.OmniServerError("no audio was produced"), "no audio was produced"),
        (upstream.VLLMServerError(), GENERIC),
        (HTTPException(400, "a is missing"), "a is missing"),
        (HTTPException(400, {"a": "is missing"}), "Bad Request"),  # type: ignore[arg-type]
        (HTTPException(502, "socket /run/x failed"), GENERIC),
        (ValueError("private"), GENERIC),
        (KeyError("private"), GENERIC),
        (exceptions.OmniClientError("private", status_code=503), GENERIC),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_public_text_is_authored_ours_or_generic(exc: Exception, message: str) -> None:
    assert to_details(exc).message == message


def test_only_a_dead_engine_is_fatal() -> None:
    assert to_details(upstream.EngineDeadError()).fatal
    assert to_details(exceptions.OmniEngineDeadError("no", stage_id=1)).fatal
    assert not to_details(exceptions.OmniEngineGenerateError("no")).fatal


def test_upstreams_public_text_of_a_dead_engine_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert to_details(upstream.EngineDeadError(), stage_id=0).message.startswith("Stage 0 stopped working")
    monkeypatch.setattr(upstream, "DEAD_ENGINE_MESSAGE", "The engine is gone.")
    assert to_details(upstream.EngineDeadError(), stage_id=0).message == "The engine is gone."


def test_case_i11_ids_are_those_of_the_exception_else_those_of_the_caller() -> None:
    own = to_details(exceptions.OmniEngineGenerateError("no", stage_id=1), request_id="r", stage_id=0)
    assert (own.request_id, own.stage_id) == ("r", 1)
    given_ids = to_details(upstream.EngineGenerateError(), request_id="r", stage_id=0)
    assert (given_ids.request_id, given_ids.stage_id) == ("r", 0)


@given(records())
def test_a_record_that_arrived_is_never_derived_again(details: OmniErrorDetails) -> None:
    exc = RuntimeError("private")
    exc.details = details  # type: ignore[attr-defined]
    assert to_details(exc) is details
    completed = to_details(exc, request_id="r", stage_id=7)
    assert completed.request_id == ("r" if details.request_id is None else details.request_id)
    assert completed.stage_id == (7 if details.stage_id is None else details.stage_id)
    assert to_details(exc, request_id="r", stage_id=7) == completed


def test_details_of_another_type_are_no_record() -> None:
    exc = RuntimeError("private")
    exc.details = {"status_code": 400}  # type: ignore[attr-defined]
    assert to_details(exc).status_code == 500


def test_an_inconsistent_exception_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger=convert.logger.name):
        convert.logger.addHandler(caplog.handler)
        to_details(exceptions.OmniClientError("no", status_code=503))
        convert.logger.removeHandler(caplog.handler)
    assert set(caplog.messages) == {"OmniClientError is a client error with status 503: answered as 500"}


def test_an_inconsistent_exception_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    monkeypatch.setattr(metrics, "count_broken_record", counted.append)
    to_details(exceptions.OmniClientError("no", status_code=503))
    to_details(exceptions.OmniClientError("no", status_code=403))
    assert counted == ["exception"]


@pytest.mark.parametrize(
    "control",
    [asyncio.CancelledError(), GeneratorExit(), KeyboardInterrupt(), SystemExit(1)],
    ids=lambda exc: type(exc).__name__,
)
def test_control_flow_passes_through(control: BaseException) -> None:
    with pytest.raises(type(control)) as raised:
        to_details(control)
    assert raised.value is control
    group = BaseExceptionGroup("group", [ValueError(), control])
    with pytest.raises(BaseExceptionGroup) as raised_group:
        to_details(group)
    assert raised_group.value is group


def test_a_group_of_client_errors_is_its_first_leaf() -> None:
    group = ExceptionGroup(
        "g", [ExceptionGroup("h", [upstream.VLLMNotFoundError("first")]), exceptions.OmniConflictError("second")]
    )
    assert to_details(group, request_id="r") == OmniErrorDetails(
        "first", "client", 404, "NotFoundError", request_id="r"
    )


def test_a_group_with_a_server_error_is_its_first_server_leaf() -> None:
    group = ExceptionGroup(
        "g", [upstream.VLLMNotFoundError("a"), exceptions.OmniStageTimeoutError("b"), exceptions.OmniServerError("c")]
    )
    assert to_details(group).message == "b"


def test_a_deep_group_breaks_nothing() -> None:
    group: Exception = exceptions.OmniConflictError("deep")
    for _ in range(5_000):
        group = ExceptionGroup("g", [group])
    assert to_details(group).status_code == 409
    while isinstance(group, ExceptionGroup):  # else the interpreter recurses when it frees them
        group = group.exceptions[0]


class RaisingError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Huge(upstream.VLLMClientError):
    def __str__(self) -> str:
        return "word " * 10_000_000


class Lying(upstream.VLLMClientError):
    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise MemoryError(name)


class Endless(upstream.VLLMClientError):
    @property
    def args(self) -> Any:  # type: ignore[override]
        return iter(lambda: "x", None)


@pytest.mark.parametrize(
    "exc", [RaisingError(), Huge(5), Lying("x"), Endless("x"), Exception(object()), Exception(*range(10_000))]
)
@pytest.mark.parametrize("raw", [False, True])
def test_a_hostile_exception_breaks_nothing(exc: Exception, raw: bool) -> None:
    details = to_details(exc, raw=raw)
    assert details.status_code in (400, 500)
    assert details.message


@pytest.mark.parametrize("status", ["400", None, 4.5, True, 10**30, -1, [400]])
def test_an_odd_status_breaks_nothing(status: object) -> None:
    for cls, expected in ((Graceful, 500), (Generation, 500)):
        exc = having(cls("no"), http_status=status, status_code=status)
        assert to_details(exc).status_code == expected
    client = to_details(having(exceptions.OmniClientError("no"), status_code=status))
    assert client.status_code in (400, 500)


def test_case_z03_a_long_text_and_a_long_parameter_are_cut() -> None:
    details = to_details(
        upstream.VLLMValidationError("a word " * 1_000_000, parameter="p" * 1_000_000, value="x" * 5_000_000)
    )
    assert len(details.message) <= 2_000
    assert details.parameter is not None
    assert len(details.parameter) <= 128


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (ValueError("n is bad"), ("client", 400, "BadRequestError", None)),
        (TypeError("n is bad"), ("client", 400, "BadRequestError", None)),
        (OverflowError("n is bad"), ("client", 400, "BadRequestError", None)),
        (NotImplementedError("n is bad"), ("server", 501, "NotImplementedError", None)),
        (json.JSONDecodeError("n is bad", "doc", 0), ("client", 400, "BadRequestError", None)),
        (
            type("TemplateSyntaxError", (type("TemplateError", (Exception,), {}),), {})("x"),
            ("client", 400, "BadRequestError", None),
        ),
        (KeyError("x"), ("server", 500, "InternalServerError", None)),
        (exceptions.OmniConflictError("x"), ("client", 409, "ConflictError", None)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_raw_exceptions_keep_upstreams_mapping_on_request(
    exc: Exception, expected: tuple[str, int, str, str | None]
) -> None:
    assert brief(exc, raw=True) == expected


class Model(pydantic.BaseModel):
    size: int


def invalid(value: object) -> pydantic.ValidationError:
    with pytest.raises(pydantic.ValidationError) as caught:
        Model.model_validate({"size": value})
    return caught.value


def test_the_text_of_a_validation_error_is_without_its_input() -> None:
    message = to_details(invalid("my private prompt"), raw=True).message
    assert message == "size: Input should be a valid integer, unable to parse string as an integer"


@pytest.mark.parametrize(("status", "expected"), [(399, 500), (400, 400), (599, 599), (600, 500)])
def test_a_number_decides_only_if_it_is_an_errors(status: int, expected: int) -> None:
    assert to_details(HTTPException(status, "no")).status_code == expected
    assert worded("no", "x", status, None).status_code == expected


@pytest.mark.parametrize("status", [404, 499, 600])
def test_a_server_error_with_another_status_is_inconsistent(status: int) -> None:
    details = to_details(exceptions.OmniServerError("private", status_code=status, error_type="x", parameter="p"))
    assert details == OmniErrorDetails(GENERIC, "server", 500, "InternalServerError")


@pytest.mark.parametrize("status", [500, 599])
def test_a_server_error_keeps_its_own_status(status: int) -> None:
    assert to_details(exceptions.OmniServerError("no", status_code=status)).status_code == status
    assert worded("no", "x", status, None).category == "server"


@pytest.mark.parametrize("name", ["stage_id", "error_stage_id"])
def test_the_stage_is_known_under_either_name(name: str) -> None:
    exc = having(upstream.EngineGenerateError(), **{name: 3})
    assert to_details(exc, stage_id=1).stage_id == 3


def test_a_group_passes_on_what_the_caller_knows() -> None:
    details = to_details(ExceptionGroup("g", [KeyError("x")]), request_id="r", stage_id=2)
    assert (details.request_id, details.stage_id) == ("r", 2)


def test_only_a_row_with_fields_of_its_own_reads_them() -> None:
    exc = having(upstream.VLLMNotFoundError("no"), status_code=403, error_type="Mine", parameter="p")
    assert brief(exc) == ("client", 404, "NotFoundError", None)


def test_the_detail_of_a_server_error_is_not_shown() -> None:
    assert to_details(HTTPException(500, "private")).message == GENERIC
    assert to_details(HTTPException(499, "public")).message == "public"


def test_a_failed_validation_says_where_and_what() -> None:
    errors = [{"type": "missing", "loc": ("body", "size"), "msg": "Field required", "input": "private"}]
    details = to_details(RequestValidationError(errors))
    assert details == OmniErrorDetails("body.size: Field required", "client", 400, "Bad Request", "body.size")


def test_the_text_of_a_raw_exception_is_sanitized_and_may_be_missing() -> None:
    assert convert.raw_text(ValueError("see /etc/passwd")) == "see <path>"
    assert convert.raw_text(RaisingError()) == ""
    assert to_details(TypeError("'int' object is not iterable"), raw=True).message == convert.UNREADABLE


@pytest.mark.parametrize(
    ("request_id", "stage_id", "where"),
    [
        ("r", None, "Reported by the engine for request r; the original is in its log."),
        (None, 0, "Reported by stage 0 for request unknown; the original is in its log."),
    ],
)
def test_a_note_names_what_is_known(request_id: str | None, stage_id: int | None, where: str) -> None:
    details = OmniErrorDetails("no", "server", 503, "x", None, request_id, stage_id)
    assert to_exception(details).__notes__ == [where]


@pytest.mark.parametrize(
    "details",
    [
        OmniErrorDetails("no", "client", 422, "UnprocessableEntityError", "image"),
        OmniErrorDetails("no", "client", 413, "TooLarge", "image"),
        OmniErrorDetails("no", "server", 502, "BadGateway", "image"),
    ],
)
def test_fields_of_the_record_are_on_the_exception_too(details: OmniErrorDetails) -> None:
    exc: Any = to_exception(details)
    assert exc.parameter == details.parameter
    if isinstance(exc, exceptions.OmniClientError | exceptions.OmniServerError):
        assert (exc.status_code, exc.error_type) == (details.status_code, details.error_type)


def test_converting_twice_gives_the_same_record() -> None:
    for exc in (upstream.VLLMValidationError("no", parameter="n"), KeyError("x"), upstream.EngineDeadError()):
        first = to_details(exc, request_id="r", stage_id=1)
        assert to_details(exc, request_id="r", stage_id=1) == first
        assert to_details(to_exception(first), request_id="other", stage_id=2) == first


def test_the_cause_decides_nothing() -> None:
    chained = RuntimeError("private")
    chained.__cause__ = chained.__context__ = upstream.VLLMValidationError("the client's mistake", parameter="n")
    assert brief(chained) == ("server", 500, "InternalServerError", None)


def test_text_of_which_nothing_is_left_becomes_a_phrase() -> None:
    assert to_details(upstream.VLLMClientError("\n \t")).message == "Bad Request"
    assert to_details(upstream.VLLMServerError(" (value=private)")).message == GENERIC


@given(records())
def test_a_record_survives_the_way_through_an_exception(details: OmniErrorDetails) -> None:
    exc = to_exception(details)
    assert isinstance(exc, upstream.VLLMError)
    assert isinstance(exc, upstream.VLLMClientError) is (details.category == "client")
    assert to_details(exc) == details
    assert to_details(copy.deepcopy(exc)) == details


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (OmniErrorDetails("no", "client", 400, "GuardrailViolationError"), exceptions.GuardrailViolationError),
        (OmniErrorDetails("no", "client", 404, "NotFoundError"), upstream.VLLMNotFoundError),
        (OmniErrorDetails("no", "client", 409, "ConflictError"), exceptions.OmniConflictError),
        (OmniErrorDetails("no", "client", 422, "UnprocessableEntityError"), upstream.VLLMUnprocessableEntityError),
        (OmniErrorDetails("no", "client", 400, "BadRequestError", "n"), upstream.VLLMValidationError),
        (OmniErrorDetails("no", "client", 400, "BadRequestError"), exceptions.OmniClientError),
        (OmniErrorDetails("no", "client", 403, "Forbidden"), exceptions.OmniClientError),
        (OmniErrorDetails("no", "server", 501, "NotImplementedError"), exceptions.OmniNotImplementedError),
        (OmniErrorDetails("no", "server", 503, "ServiceUnavailableError"), exceptions.OmniServiceUnavailableError),
        (OmniErrorDetails("no", "server", 504, "GatewayTimeoutError"), exceptions.OmniStageTimeoutError),
        (OmniErrorDetails("no", "server", 500, "InternalServerError", fatal=True), exceptions.OmniEngineDeadError),
        (OmniErrorDetails("no", "server", 500, "InternalServerError", stage_id=1), exceptions.OmniEngineGenerateError),
        (OmniErrorDetails("no", "server", 500, "InternalServerError"), exceptions.OmniServerError),
        (OmniErrorDetails("no", "server", 599, "Unknown"), exceptions.OmniServerError),
    ],
    ids=lambda value: value.error_type if isinstance(value, OmniErrorDetails) else "",
)
def test_cases_i09_and_i13_the_class_follows_from_the_record_without_guessing(
    details: OmniErrorDetails, expected: type[Exception]
) -> None:
    exc: Any = to_exception(details)
    assert type(exc) is expected
    assert exc.args == ("no",)
    assert exc.details is details
    assert exc.stage_id == exc.error_stage_id == details.stage_id
    if details.parameter:
        assert exc.parameter == details.parameter


def test_a_reconstructed_exception_says_where_the_original_is() -> None:
    details = OmniErrorDetails("no", "server", 500, "InternalServerError", request_id="r", stage_id=1)
    assert to_exception(details).__notes__ == ["Reported by stage 1 for request r; the original is in its log."]
    assert not hasattr(to_exception(OmniErrorDetails("no", "client", 400, "x")), "__notes__")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("no", "NotFoundError", HTTPStatus.NOT_FOUND, "model"),
            OmniErrorDetails("no", "client", 404, "NotFoundError", "model"),
        ),
        (("no", "BadRequestError", 400, None), OmniErrorDetails("no", "client", 400, "BadRequestError")),
        (("", None, 503, 5), OmniErrorDetails("Service Unavailable", "server", 503, "Service Unavailable")),
        (("no", "x", 200, None), OmniErrorDetails(GENERIC, "server", 500, "InternalServerError")),
        (("no", "x", "400", None), OmniErrorDetails(GENERIC, "server", 500, "InternalServerError")),
        ((None, "x", 400, None), OmniErrorDetails("Bad Request", "client", 400, "x")),
    ],
)
def test_words_of_upstreams_code_become_a_record(arguments: tuple[Any, ...], expected: OmniErrorDetails) -> None:
    assert worded(*arguments) == expected


@given(st.text(max_size=200), st.integers(-10, 1_000))
def test_any_words_become_a_record(text: str, status: int) -> None:
    assert worded(text, text, status, text).message


def test_the_text_of_a_stand_in_is_that_of_the_original_that_it_holds() -> None:
    class StandIn(exceptions.OmniConflictError):
        def __init__(self, original: Exception) -> None:
            Exception.__init__(self, original)

    assert to_details(StandIn(exceptions.OmniConflictError("the job is done"))).message == "the job is done"
    assert to_details(StandIn(ValueError("private"))).message == "Conflict"
    no_text = exceptions.OmniConflictError("the job is done")
    no_text.args = ()
    assert to_details(StandIn(no_text)).message == "Conflict"


def test_the_text_of_an_exception_inside_another_is_not_its_text() -> None:
    assert to_details(upstream.VLLMServerError(upstream.VLLMNotFoundError("private"))).message == GENERIC
    assert to_details(upstream.VLLMClientError(Exception("private"))).message == "Bad Request"


def test_case_m17_a_generation_that_failed_is_the_servers_whatever_the_route() -> None:
    details = to_details(GenerationError("the generation ended in an error"))
    assert (details.category, details.status_code, details.error_type) == ("server", 500, "InternalServerError")


def test_case_m24_the_key_that_a_resolver_missed_is_not_public() -> None:
    details = to_details(KeyError("peft_type"))
    assert (details.status_code, details.message) == (500, "Internal server error")
