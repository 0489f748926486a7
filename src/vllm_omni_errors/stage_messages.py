# SPDX-License-Identifier: Apache-2.0
"""The record in vLLM-Omni's own messages: what carries it beside the flat fields of 0.30, and who reads it.

Messages stay inside one process and outputs may leave it. Both hold the record itself under ``error_details``; what
goes over a socket is encoded there (:func:`wire.to_fields`).
"""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from . import convert, metrics, stage, wire
from .details import OmniErrorDetails
from .exceptions import OmniServerError

__all__ = ["call_error", "call_fields", "message_fields", "output_fields", "readable", "received", "rpc_error"]

logger = logging.getLogger("vllm_omni_errors")


def output_fields(details: OmniErrorDetails) -> dict[str, Any]:
    """The fields of an output (``OmniRequestOutput``, ``DiffusionOutput``) that reports an error."""
    return {
        "error": details.message,
        "error_status_code": details.status_code,
        "error_type": details.error_type,
        wire.RECORD_FIELD: details,
    }


def message_fields(details: OmniErrorDetails, *, request_id: str | None = None) -> dict[str, Any]:
    """The fields of an ``ErrorMessage``.

    Its receiver finds the request by ``request_id``: the id as the engine has it, which may be longer than a record's,
    and hold other characters; without it, the record's.
    """
    return {
        "error": details.message,
        "status_code": details.status_code,
        "error_type": details.error_type,
        "fatal": details.fatal,
        "request_id": details.request_id if request_id is None else request_id,
        "stage_id": details.stage_id,
        wire.RECORD_FIELD: details,
    }


def received(
    carrier: object, *, text: str | None = None, request_id: str | None = None, stage_id: int | None = None
) -> OmniErrorDetails:
    """The record of a message or an output that reports an error; never raises.

    Args:
        carrier: the message: a mapping or an object. A text that nobody typed goes to the log, not into the record.
        text: the raw text of a failure whose carrier has none of its own.
        request_id: the request as the receiver knows it: it wins over the sender's.
        stage_id: the stage that the message came from; the record's own is where it happened.

    """
    details = stage.relay(carrier, stage_id=stage_id) or replace(wire.BROKEN, stage_id=stage_id)
    if request_id is not None:
        details = replace(details, request_id=request_id)
    if text is not None or (details.category == "server" and _field(carrier, wire.RECORD_FIELD) is None):
        raw = text or _field(carrier, "error")
        logger.error("request %r, stage %s: %s", details.request_id, details.stage_id, raw)
    return details


def rpc_error(answer: object) -> Exception:
    """The exception of an answer that says that a call failed: the record's, or a ``RuntimeError`` of the raw text.

    The latter is what an answer without a record has always been, and is known by its text (``is_abort_transport_
    shutdown``, ``engine/async_engine_utils.py:41``).
    """
    if _field(answer, wire.RECORD_FIELD) is None:
        return RuntimeError(str(_field(answer, "error")))
    return convert.to_exception(received(answer))


def call_fields(details: OmniErrorDetails) -> dict[str, Any]:
    """The field of a stage's answer that says that a control call failed.

    A map, as vLLM's own route (``serve/dev/rpc/api_router.py``) sends such answers as JSON.
    """
    return {wire.RECORD_FIELD: wire.to_fields(details)[wire.RECORD_FIELD]}


def call_error(method: str, answer: object) -> Exception:
    """The exception of a stage's answer that says that a control call failed; of an answer without a record, a 500."""
    if _field(answer, wire.RECORD_FIELD) is not None:
        return convert.to_exception(received(answer))
    logger.error("%s failed: %s", method, answer)
    return OmniServerError(f"The call {method} failed in a stage.")


_NEEDED = {"result": ("output",), "rpc_result": ("rpc_id", "result")}
"""Type of a message → what its receiver takes out of it. Source: ``diffusion/stage_diffusion_client.py:240``."""


def readable(decode: Callable[[bytes], Any]) -> Callable[[bytes], dict[str, Any]]:
    """A decoder of the messages between a stage and its client that never raises: one that cannot be decoded, or is no
    message, is the failure of the request, or of the call, whose id can be found in its bytes (contract, section 8).

    What comes instead is the stage's own message about a failure. Without an id it is nobody's: whoever waits for it is
    not known, and the others must not pay for it.
    """

    def decoding(raw: bytes) -> dict[str, Any]:
        try:
            return _checked(decode(raw))
        except Exception as exc:
            ids = {name: _named(raw, name) for name in ("request_id", "rpc_id")}
            metrics.count_broken_record("decode")
            details = stage.normalize(exc, request_id=ids["request_id"])
            return {"type": "error", **wire.to_fields(details), **ids}

    return decoding


def _checked(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise TypeError(f"a message between stages must be a map, not {type(message).__name__}")
    for name in _NEEDED.get(message.get("type", ""), ()):
        if name not in message:
            raise KeyError(name)
    return message


def _named(raw: bytes, key: str) -> str | None:
    """The first text that stands after a key in msgpack; the key is short."""
    name = re.escape(bytes([0xA0 | len(key)]) + key.encode())
    found = re.search(name + rb"(?:\xd9(.)|\xda(..)|([\xa0-\xbf]))", raw, re.DOTALL)
    if found is None:
        return None
    length = found[3][0] & 0x1F if found[3] else int.from_bytes(found[1] or found[2])
    return raw[found.end() : found.end() + length].decode(errors="replace")


def _field(carrier: object, name: str) -> object:
    return carrier.get(name) if isinstance(carrier, dict) else getattr(carrier, name, None)
