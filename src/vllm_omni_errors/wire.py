# SPDX-License-Identifier: Apache-2.0
"""The record between processes (contract, section 8). Imports no vLLM.

Bytes are a msgpack map of the record's fields, at most 16 KiB. A message carries the record as such a map under
``error_details`` and, for one compatibility window, the flat fields of vLLM-Omni 0.30 beside it. A reader ignores keys
that it does not know, prefers the record, and never raises: what it cannot read is :data:`BROKEN`, and is counted.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from . import catalogue, metrics, public_text
from .catalogue import GENERIC, Row
from .details import LOWEST_STATUS, OmniErrorDetails

__all__ = ["decode", "encode", "from_request_error", "read", "to_fields", "to_request_error"]

MAX_BYTES = 16 * 1024
MAX_INTEGER = 2**63 - 1
RECORD_FIELD = "error_details"
LEGACY_WINDOW = True
"""Whether the flat fields are written and read beside the record: true for two minor releases of vLLM-Omni after the
first that carries the record. Nothing else has to change when the window closes."""

BROKEN = OmniErrorDetails(GENERIC, "server", 500, "InternalServerError")
"""What stands for an error that cannot be read. Whoever relays it knows its request and stage, and fills them in."""

StatusField = Literal["status_code", "error_status_code"]
"""How a carrier calls the flat status: messages (``vllm_omni/engine/messages.py:86``) the former, outputs
(``vllm_omni/outputs/__init__.py:187``, ``vllm_omni/diffusion/data.py:1794``) the latter."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(OmniErrorDetails)


# --- record ↔ bytes ---------------------------------------------------------------------------------------------


def encode(details: OmniErrorDetails) -> bytes:
    """A record's bytes. A record that cannot be encoded is sent as a lesser one, and counted."""
    data = _bytes(details)
    return _ENCODER.encode(_lesser(details)) if data is None else data


def decode(data: bytes | bytearray | memoryview) -> OmniErrorDetails:
    """The record in some bytes, which may be anybody's; :data:`BROKEN` if they are no valid record. Never raises."""
    try:
        if memoryview(data).nbytes <= MAX_BYTES:
            return _DECODER.decode(data)
    except Exception:  # RecursionError is one too: msgspec counts the levels of nesting
        pass
    return _broken("decode")


def _bytes(details: OmniErrorDetails) -> bytes | None:
    """A record's bytes, which its bounds keep far below the limit; None if it cannot be sent: the number of its stage
    needs more than 64 bits, or it is no record at all.
    """
    try:
        return _ENCODER.encode(details)
    except Exception:
        return None


def _sendable(details: OmniErrorDetails) -> OmniErrorDetails:
    return _lesser(details) if _bytes(details) is None else details


def _lesser(details: OmniErrorDetails) -> OmniErrorDetails:
    """The record without what keeps it from being sent: whose error it is, and its text, are certain to arrive."""
    metrics.count_broken_record("encode")
    try:
        return replace(details, stage_id=None)
    except Exception:
        return BROKEN


def _broken(where: metrics.Where) -> OmniErrorDetails:
    metrics.count_broken_record(where)
    return BROKEN


# --- record ↔ message -------------------------------------------------------------------------------------------


_Integer = Annotated[int, msgspec.Meta(ge=-MAX_INTEGER - 1, le=MAX_INTEGER)]


class _FlatFields(msgspec.Struct):
    """What vLLM-Omni 0.30 says about an error, in messages and in outputs."""

    error: str
    status_code: _Integer | None = None
    error_status_code: _Integer | None = None
    error_type: str | None = None
    fatal: bool = False
    request_id: str | None = None
    stage_id: _Integer | None = None


def to_fields(details: OmniErrorDetails, *, status_field: StatusField = "status_code") -> dict[str, Any]:
    """The fields of a message that carries a record: the record as a map and, in the window, the flat fields.

    Any msgpack or JSON encoder can write them. The request id is the record's, which is cleaned: whoever finds a
    request by the id in a message writes that one itself.
    """
    details = _sendable(details)
    record = {RECORD_FIELD: asdict(details)}
    if not LEGACY_WINDOW:
        return record
    return record | {
        "error": details.message,
        status_field: details.status_code,
        "error_type": details.error_type,
        "fatal": details.fatal,
        "request_id": details.request_id,
        "stage_id": details.stage_id,
    }


def read(message: object) -> OmniErrorDetails | None:
    """The record that a message or an output carries; None if it reports no error. Never raises.

    The message is a mapping, an object with attributes, or the record itself. What is under ``error_details`` comes
    first (a record, its map or its bytes), then the flat fields: of those a 4xx is the client's error, with its text
    sanitized; all else is the server's, with the generic text, since nobody typed it (contract, section 8).
    """
    if isinstance(message, OmniErrorDetails):
        return message
    try:
        record = _get(message, RECORD_FIELD)
        error = _get(message, "error")
        if record is not None:
            return _record(record)
        if error is None:
            return None
        if not isinstance(error, str):
            return from_request_error(error)
        if LEGACY_WINDOW:
            return _from_flat(msgspec.convert(message, _FlatFields, from_attributes=True))
    except Exception:
        pass
    return _broken("legacy")


def _get(message: object, name: str) -> object:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def _record(found: object) -> OmniErrorDetails:
    if isinstance(found, OmniErrorDetails):
        return found
    if isinstance(found, bytes | bytearray | memoryview):
        return decode(found)
    try:
        return decode(_ENCODER.encode(found))
    except Exception:
        return _broken("decode")


def _from_flat(flat: _FlatFields) -> OmniErrorDetails:
    status = flat.error_status_code if flat.status_code is None else flat.status_code
    request_id = flat.request_id or None
    if status is not None and not flat.fatal and 0 <= status - LOWEST_STATUS["client"] < 100:
        return OmniErrorDetails(
            message=public_text.sanitize(flat.error) or catalogue.phrase(status),
            category="client",
            status_code=status,
            error_type=public_text.identifier(flat.error_type) or "BadRequestError",
            request_id=request_id,
            stage_id=flat.stage_id,
        )
    return replace(BROKEN, request_id=request_id, stage_id=flat.stage_id, fatal=flat.fatal)


# --- record ↔ upstream's RequestError ---------------------------------------------------------------------------


class RequestErrorFields(TypedDict):
    """The fields of ``RequestError`` in ``vllm/outputs.py`` of vLLM 0.32."""

    code: str
    message: str
    retryable: bool


_ROWS = {row.exception: row for row in catalogue.CATALOGUE}
_FAILED, _RETRYABLE, _REFUSED = (
    _ROWS[name] for name in ("GenerationError", "RetryableRequestError", "VLLMClientError")
)
_ROW_OF_CODE = {row.error_type: row for row in catalogue.CATALOGUE if row.error_type is not None}


def to_request_error(details: OmniErrorDetails) -> RequestErrorFields:
    """The fields of upstream's ``RequestError`` for a record.

    The code is the record's type, or the plain one of its side if the type does not tell side and status. Upstream's
    class has no place for parameter, ids and fatality.
    """
    details = _sendable(details)
    row = _ROW_OF_CODE.get(details.error_type)
    retryable = details.status_code == _RETRYABLE.status
    if row is None or (row.category, row.status) != (details.category, details.status_code):
        row = _REFUSED if details.category == "client" else _RETRYABLE if retryable else _FAILED
    return {"code": str(row.error_type), "message": details.message, "retryable": retryable}


def from_request_error(error: object) -> OmniErrorDetails:
    """The record of upstream's ``RequestError``, known by its attributes. Never raises.

    A code that is a type of ours says what it is; otherwise what upstream makes of it does: vLLM 0.33 has
    ``to_exception()``, 0.32 calls it retryable (503) or not (500). Its message is authored.
    """
    try:
        code, message = _get(error, "code"), _get(error, "message")
        if isinstance(code, str) and isinstance(message, str):
            row = _ROW_OF_CODE.get(code) or _row_of_upstream(error)
            if row.error_type is None:  # its number says all, and upstream's error has none
                row = _FAILED
            fallback = catalogue.phrase(row.status) if row.category == "client" else GENERIC
            text = public_text.sanitize(message) or fallback
            return OmniErrorDetails(text, row.category, row.status, row.error_type)  # type: ignore[arg-type]
    except Exception:
        pass
    return _broken("legacy")


def _row_of_upstream(error: object) -> Row:
    if _get(error, "retryable") is True:
        return _RETRYABLE
    to_exception = _get(error, "to_exception")
    return catalogue.row_for(type(to_exception())) if callable(to_exception) else _FAILED
