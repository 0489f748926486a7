# SPDX-License-Identifier: Apache-2.0
"""The public error object (contract, section 2), and what every transport derives from a record."""

from collections.abc import Mapping
from typing import Any

from vllm_omni_errors import catalogue, public_text
from vllm_omni_errors.details import OmniErrorDetails

REQUEST_ID_HEADER = "x-request-id"
RETRY_HEADER = "x-should-retry"
NEVER = "false"
MAX_CLOSE_REASON_BYTES = 123

FIELDS: Mapping[str, str] = {
    "message": "message",
    "type": "error_type",
    "param": "parameter",
    "code": "status_code",
    "request_id": "request_id",
    "error_stage_id": "stage_id",
}
"""Key of the public error object → field of the record."""


def error_object(details: OmniErrorDetails) -> dict[str, Any]:
    """``{message, type, param, code, request_id, error_stage_id}``: vLLM's four keys, and vLLM-Omni's two."""
    found = {key: getattr(details, name) for key, name in FIELDS.items()}
    found["message"] = details.message or catalogue.phrase(details.status_code)
    return found


def body(details: OmniErrorDetails) -> dict[str, Any]:
    """``{"error": {…}}``."""
    return {"error": error_object(details)}


def event(details: OmniErrorDetails) -> dict[str, Any]:
    """``{"type": "error", "error": {…}}``, for transports whose messages carry a type (contract, section 5)."""
    return {"type": "error", **body(details)}


def headers(details: OmniErrorDetails) -> dict[str, str]:
    """``x-request-id`` if the id is known, and ``x-should-retry: false`` where a repetition cannot help."""
    found = {}
    if request_id := public_text.request_id(details.request_id):
        found[REQUEST_ID_HEADER] = request_id
    if not catalogue.may_be_retried(details.status_code, details.error_type):
        found[RETRY_HEADER] = NEVER
    return found


def merged(own: Mapping[str, str], foreign: Mapping[str, str] | None) -> dict[str, str]:
    """Headers of an exception, without those that describe its body, below our own."""
    kept = {name.lower(): value for name, value in (foreign or {}).items()}
    for name in ("content-length", "content-type", REQUEST_ID_HEADER):
        kept.pop(name, None)
    return kept | dict(own)


def close_reason(details: OmniErrorDetails) -> str:
    """The message, cut to the 123 bytes that a WebSocket close frame has room for."""
    return details.message.encode()[:MAX_CLOSE_REASON_BYTES].decode(errors="ignore")
