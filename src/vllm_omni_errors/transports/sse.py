# SPDX-License-Identifier: Apache-2.0
"""The one event that ends a stream of server-sent events which failed after its first byte (contract, section 5).

Each function gives the bytes to send, as text. ``request.handled`` makes the record of an exception.
"""

import json
from collections.abc import Mapping
from typing import Any

from vllm_omni_errors.details import OmniErrorDetails

from . import envelope

DONE = "data: [DONE]\n\n"


def nested_error(details: OmniErrorDetails) -> str:
    """For streams whose events have no name (chat, completions): ``{"error": {…}}``. The caller sends `DONE` after it.

    The official client raises only on this form.
    """
    return _event(envelope.body(details))


def typed_error(details: OmniErrorDetails, name: str | None = None) -> str:
    """For streams whose events carry ``type`` (speech, images): ``{"type": "error", "error": {…}}``, under ``name``."""
    return _event(envelope.event(details), name)


def failed_response(details: OmniErrorDetails, response: Mapping[str, Any], sequence_number: int) -> dict[str, Any]:
    """The data of the Responses API's ``response.failed``: the response so far and its ``error: {code, message}``.

    That API's code is a word: it is the type of our error. Its routes write their events themselves.
    """
    error = {"code": details.error_type, "message": envelope.error_object(details)["message"]}
    failed = {**response, "status": "failed", "error": error}
    return {"type": "response.failed", "sequence_number": sequence_number, "response": failed}


def _event(data: Mapping[str, Any], name: str | None = None) -> str:
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(data, separators=(',', ':'))}\n\n"
