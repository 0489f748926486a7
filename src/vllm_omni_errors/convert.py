# SPDX-License-Identifier: Apache-2.0
"""Exception → record, once; record → exception, without guessing."""

import asyncio
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from . import catalogue, exceptions, field_errors, metrics, public_text, upstream
from .catalogue import GENERIC, Category, Row
from .details import LOWEST_STATUS, OmniErrorDetails, is_integer

logger = logging.getLogger(__name__)

PASSED_THROUGH = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
"""Control flow, never an error of anybody's."""


_T = TypeVar("_T")
_TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.' -]{0,63}\Z")


# --- exception → record -----------------------------------------------------------------------------------------


def to_details(
    exc: BaseException, *, request_id: str | None = None, stage_id: int | None = None, raw: bool = False
) -> OmniErrorDetails:
    """The record of an exception; the one that it already carries, if it does.

    ``request_id`` and ``stage_id`` are used where neither the exception nor its record knows better. ``raw`` keeps
    upstream's mapping of ``ValueError``, ``TypeError``, ``OverflowError``, ``NotImplementedError`` and
    ``TemplateError``; without it they are unknown server failures, like everything that has no row (contract, 1 and 4).
    An exception group is its first leaf if all leaves are client errors, else its first server error.

    Total: an exception whose attributes or ``__str__`` raise breaks nothing.

    Raises:
        BaseException: ``exc`` itself, if it is cancellation or another of :data:`PASSED_THROUGH`, or a group with one.

    """
    if isinstance(exc, BaseExceptionGroup):
        return _of_group(exc, request_id, stage_id)
    if isinstance(exc, PASSED_THROUGH):
        raise exc
    record = attribute(exc, "details", OmniErrorDetails)
    if record is not None:
        return record.completed(request_id=request_id, stage_id=stage_id)
    row = catalogue.raw_row_for(type(exc)) if raw else catalogue.row_for(type(exc))
    for name in ("error_stage_id", "stage_id"):
        found = attribute(exc, name, int)
        stage_id = found if is_integer(found) else stage_id
    return _from_row(exc, row, request_id, stage_id)


def _of_group(group: BaseException, request_id: str | None, stage_id: int | None) -> OmniErrorDetails:
    leaves = list(_leaves(group))
    if any(isinstance(leaf, PASSED_THROUGH) for leaf in leaves):
        raise group
    records = [to_details(leaf, request_id=request_id, stage_id=stage_id) for leaf in leaves]
    return next((record for record in records if record.category == "server"), records[0])


def _leaves(group: BaseException) -> Iterator[BaseException]:
    waiting = [group]
    while waiting:
        exc = waiting.pop()
        if isinstance(exc, BaseExceptionGroup):
            waiting.extend(reversed(exc.exceptions))
        else:
            yield exc


def _from_row(exc: BaseException, row: Row, request_id: str | None, stage_id: int | None) -> OmniErrorDetails:
    status = _status(exc, row)
    category = _category(row, status)
    if category is None:
        logger.warning("%s is a %s error with status %s: answered as 500", type(exc).__name__, row.category, status)
        metrics.count_broken_record("exception")
        row, category, status = catalogue.ANYTHING_ELSE, "server", catalogue.ANYTHING_ELSE.status
    message, parameter = _texts(exc, row, status, stage_id)
    fallback = catalogue.phrase(status) if category == "client" else GENERIC
    details = OmniErrorDetails(
        message=message or fallback,
        category=category,
        status_code=status,
        error_type=_error_type(exc, row, status),
        parameter=parameter,
        request_id=request_id,
        stage_id=stage_id,
        fatal=row.fatal,
    )
    return details if details.message else replace(details, message=fallback)


def _status(exc: BaseException, row: Row) -> int:
    status = attribute(exc, row.status_attribute, int) if row.status_attribute else None
    status = row.status if status is None or isinstance(status, bool) else int(status)
    if row.category == "status" and not 400 <= status < 600:
        return row.status
    return status


def _category(row: Row, status: int) -> Category | None:
    """Whose error it is; None if the exception's class and its status contradict each other."""
    if row.category == "status":
        return "client" if status < LOWEST_STATUS["server"] else "server"
    return row.category if status // 100 * 100 == LOWEST_STATUS[row.category] else None


def _error_type(exc: BaseException, row: Row, status: int) -> str:
    if row.error_type is None:
        return catalogue.phrase(status)
    own = attribute(exc, "error_type", str) if row.own_type else None
    return own if own and _TYPE_NAME.match(own) else row.error_type


def _texts(exc: BaseException, row: Row, status: int, stage_id: int | None) -> tuple[str, str | None]:
    """Message and parameter, not yet sanitized."""
    parameter = attribute(exc, "parameter", str) if row.parameter else None
    match row.text:
        case "authored":
            return authored(exc), parameter
        case "ours":
            return _ours(row, stage_id), parameter
        case "detail":
            return (attribute(exc, "detail", str) or "") if status < LOWEST_STATUS["server"] else GENERIC, parameter
        case "fields":
            return field_errors.describe(field_errors.errors_of(exc))
        case "raw":
            return raw_text(exc), parameter
        case "generic":
            return GENERIC, parameter


def authored(exc: BaseException) -> str:
    """The first argument. Never ``str(exc)``: upstream's prints the rejected value, and a foreign one may raise."""
    first = (attribute(exc, "args", tuple) or ("",))[0]
    if isinstance(first, upstream.VLLMError) and isinstance(exc, type(first)):  # Ray's stand-in for the original
        first = (attribute(first, "args", tuple) or ("",))[0]
    return first if isinstance(first, str) else ""


def _ours(row: Row, stage_id: int | None) -> str:
    if row.fatal and upstream.DEAD_ENGINE_MESSAGE:
        return upstream.DEAD_ENGINE_MESSAGE
    return row.sentence.format(who="The engine" if stage_id is None else f"Stage {stage_id}")


def attribute(exc: BaseException, name: str, kind: type[_T]) -> _T | None:
    """An attribute of that type, or None; reading one may raise anything."""
    try:
        value = getattr(exc, name, None)
        return value if isinstance(value, kind) else None
    except Exception:
        return None


def worded(message: object, error_type: object, status: object, parameter: object) -> OmniErrorDetails:
    """The record of an error that upstream's code describes in its own words, without an exception.

    The number decides whose error it is; a status that is no error's is a server failure with the generic text.
    """
    code = int(status) if isinstance(status, int) else 0
    if not 400 <= code < 600:
        return OmniErrorDetails(GENERIC, "server", 500, "InternalServerError")
    text = public_text.sanitize(message) if isinstance(message, str) else ""
    named = isinstance(error_type, str) and _TYPE_NAME.match(error_type)
    return OmniErrorDetails(
        message=text or catalogue.phrase(code),
        category="client" if code < LOWEST_STATUS["server"] else "server",
        status_code=code,
        error_type=str(error_type) if named else catalogue.phrase(code),
        parameter=parameter if isinstance(parameter, str) else None,
    )


# --- record → exception -----------------------------------------------------------------------------------------

_SEMANTIC: dict[tuple[Category, int, str], type[Exception]] = {
    ("client", 400, "GuardrailViolationError"): exceptions.GuardrailViolationError,
    ("client", 404, "NotFoundError"): upstream.VLLMNotFoundError,
    ("client", 409, "ConflictError"): exceptions.OmniConflictError,
    ("server", 501, "NotImplementedError"): exceptions.OmniNotImplementedError,
    ("server", 503, "ServiceUnavailableError"): exceptions.OmniServiceUnavailableError,
    ("server", 504, "GatewayTimeoutError"): exceptions.OmniStageTimeoutError,
}


def to_exception(details: OmniErrorDetails) -> Exception:
    """The semantic exception of a record, where class and fields follow from it; else the remote wrapper.

    It carries the record as ``.details``, so that relaying it loses nothing, and a note that says where the original
    is, if the record comes from a request or a stage (contract, sections 3 and 7).
    """
    exc = _make(details)
    exc.details = details  # type: ignore[attr-defined]
    exc.stage_id = exc.error_stage_id = details.stage_id  # type: ignore[attr-defined]
    if details.request_id is not None or details.stage_id is not None:
        where = "the engine" if details.stage_id is None else f"stage {details.stage_id}"
        exc.add_note(f"Reported by {where} for request {details.request_id or 'unknown'}; the original is in its log.")
    return exc


def _make(details: OmniErrorDetails) -> Exception:
    key = (details.category, details.status_code, details.error_type)
    if details.fatal:
        return exceptions.OmniEngineDeadError(details.message)
    if key in _SEMANTIC:
        return _SEMANTIC[key](details.message)
    if key == ("client", 400, "BadRequestError") and details.parameter is not None:
        return upstream.VLLMValidationError(details.message, parameter=details.parameter)
    if key == ("client", 422, "UnprocessableEntityError"):
        return upstream.VLLMUnprocessableEntityError(details.message, parameter=details.parameter)
    if key == ("server", 500, "InternalServerError") and details.stage_id is not None:
        return exceptions.OmniEngineGenerateError(details.message)
    wrapper = exceptions.OmniClientError if details.category == "client" else exceptions.OmniServerError
    return wrapper(
        details.message,
        status_code=details.status_code,
        error_type=details.error_type,
        parameter=details.parameter,
    )


# --- raw text ---------------------------------------------------------------------------------------------------


def raw_text(exc: BaseException) -> str:
    """Public text of a raw exception that stands for the client's mistake, sanitized; "" if it has none.

    pydantic's ``str()`` prints the input, so a validation error is described by its fields.
    """
    errors = field_errors.errors_of(exc)
    if errors is not None:
        return public_text.sanitize(field_errors.describe(errors)[0])
    try:
        return public_text.sanitize(str(exc))
    except Exception:
        return ""
