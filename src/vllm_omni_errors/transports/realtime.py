# SPDX-License-Identifier: Apache-2.0
"""Errors of the realtime protocols, which vLLM's connection and vLLM-Omni's duplex sessions report as text and code."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vllm_omni_errors import convert, field_errors, seams, upstream
from vllm_omni_errors.details import OmniErrorDetails

from . import envelope, request

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


# ---- duplex sessions of vLLM-Omni -----------------------------------------------------------------------------------

_TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    503: "ServiceUnavailableError",
    504: "GatewayTimeoutError",
}
_CODES = {
    400: (
        "bad_event barge_in_unsupported config_timeout event_too_large input_audio_buffer_empty "
        "instructions_update_unsupported invalid_duplex_runtime_config invalid_event_ack invalid_function_call_output "
        "invalid_input_modality invalid_json invalid_resume_token invalid_session_config invalid_session_resume "
        "invalid_video_frames missing_item_id model_update_unsupported native_text_append_unsupported "
        "persona_update_unsupported ref_audio_required ref_audio_update_unsupported response_create_without_input "
        "text_only_turn_unsupported unknown_event unsupported_audio_format unsupported_native_response_options "
        "unsupported_nemotron_duplex_mode unsupported_ref_audio_path unsupported_session_resume "
        "unsupported_turn_detection voice_update_after_audio_unsupported voice_update_unsupported"
    ),
    404: "item_not_found playback_item_not_found session_resume_expired unknown_session",
    409: (
        "playback_ack_too_late playback_item_mismatch response_already_active response_not_active session_closed "
        "session_exists session_resume_conflict"
    ),
    422: "bad_audio",
    503: "engine_backpressure input_backpressure resource_exhausted server_vad_unavailable stage_unavailable",
    504: "timeout",
}
_STATUS = {code: status for status, codes in _CODES.items() for code in codes.split()}
"""vLLM-Omni's words for what went wrong (``protocol/duplex/errors.py:25``, and those that it does not list) → status;
stock calls every word that it does not list the client's mistake, here it is the server's failure. The word
``stage_unavailable`` is the migration's."""

_PARAMETERS = {
    "bad_audio": "audio",
    "invalid_event_ack": "server_event_seq",
    "invalid_resume_token": "resume_token",
    "invalid_session_config": "session",
    "invalid_video_frames": "video_frames",
    "missing_item_id": "item_id",
    "unknown_event": "type",
    "unsupported_audio_format": "format",
    "unsupported_session_resume": "type",
}
_GONE = "The session does not exist or has expired; open a new one."
_TEXTS = {
    "invalid_event_ack": "server_event_seq must be the number of an event that was sent.",
    "invalid_session_config": "The session object is not valid; check the types and values of its fields.",
    "session_closed": "The session is closed; open a new one.",
    "session_resume_conflict": "The session cannot be resumed at this event sequence; open a new one.",
    "session_resume_expired": _GONE,
    "unknown_event": "Unknown event type.",
    "unknown_session": _GONE,
    "unsupported_audio_format": "The audio format must be pcm16, pcm_s16le, s16le, pcm_f32le, g711_ulaw or g711_alaw.",
    "unsupported_session_resume": "This session cannot be resumed here; open a new one.",
}
"""Ours, where the original repeats what the client sent, an id or an inner exception."""


def duplex_error(code: str, message: str, *, parameter: str | None = None) -> Exception:
    """The exception of an error that a duplex session reports by a word and a text."""
    return convert.to_exception(_duplex_details(code, message, parameter))


_RESUME_FAILURES = {
    "DuplexJournalGapError": "session_resume_conflict",
    "InvalidResumeTokenError": "invalid_resume_token",
    "KeyError": "unknown_session",
    "ValueError": "session_resume_conflict",
}
"""What giving a session to a new connection raises → word. ``entrypoints/duplex/session_attachment.py:143``."""


def resume_error(exc: Exception) -> Exception:
    """What a resume that was begun failed with: a refusal is the client's, everything else is what it is."""
    code = _RESUME_FAILURES.get(type(exc).__name__)
    return exc if code is None else duplex_error(code, "resume_token is not valid for this session.")


def duplex_object(
    code: str, message: str, parameter: str | None, event_id: str | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The public object of such an error (contract, section 2), the client's ``event_id``, and ``more`` of its own."""
    error = envelope.error_object(_duplex_details(code, message, parameter))
    return {**more, **error} | ({"event_id": event_id} if event_id else {})


def _duplex_details(code: str, message: str, parameter: str | None) -> OmniErrorDetails:
    request_id = request.current().error_id
    status = _STATUS.get(code)
    if status is None:
        return replace(convert.to_details(upstream.VLLMServerError("")), request_id=request_id)
    text = _TEXTS.get(code, message)
    return replace(
        convert.worded(text, _TYPES[status], status, parameter or _PARAMETERS.get(code)), request_id=request_id
    )
