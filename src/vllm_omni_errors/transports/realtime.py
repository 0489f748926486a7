# SPDX-License-Identifier: Apache-2.0
"""Errors of vLLM's realtime protocol, which its connection class reports as a text and a code."""

import json
from typing import Any

from vllm_omni_errors import convert, field_errors, seams, upstream

_REPORTED: dict[str | None, tuple[int, str, str | None]] = {
    "invalid_event": (400, "BadRequestError", "model"),
    "unknown_event": (400, "BadRequestError", "type"),
    "model_not_found": (404, "NotFoundError", "model"),
    "model_not_validated": (409, "ConflictError", None),
    "invalid_audio": (422, "UnprocessableEntityError", "audio"),
}
"""Code → status, type and parameter. vLLM ``speech_to_text/realtime/connection.py:77`` and below."""

UNKNOWN_EVENT = "Unknown event type; expected session.update, input_audio_buffer.append or input_audio_buffer.commit."
NOT_JSON = "The message is not valid JSON."
NO_OBJECT = "The message must be a JSON object."
NO_MODEL_NAME = "model must be a string."


def read_event(text: str) -> dict[str, Any]:
    """The event of a text frame.

    Raises:
        VLLMValidationError: it is not a JSON object, or its model is not a text, which vLLM does not check.

    """
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        raise upstream.VLLMValidationError(NOT_JSON) from None
    if not isinstance(event, dict):
        raise upstream.VLLMValidationError(NO_OBJECT)
    if not isinstance(event.get("model"), str | None):
        raise upstream.VLLMValidationError(NO_MODEL_NAME, parameter="model")
    return event


def reported_error(message: str, code: str | None) -> Exception:
    """The exception of an error that vLLM's connection reports; what it has no code for is the server's, 500."""
    if code not in _REPORTED:
        return upstream.VLLMServerError("")
    status, kind, parameter = _REPORTED[code]
    text = UNKNOWN_EVENT if code == "unknown_event" else message
    return convert.to_exception(convert.worded(text, kind, status, parameter))


def event_error(exc: Exception) -> Exception:
    """What an event failed with: a field that pydantic refuses is the client's, everything else is what it is."""
    return seams.invalid_fields(exc) if field_errors.errors_of(exc) else exc
