# SPDX-License-Identifier: Apache-2.0
"""An error on the active span of OpenTelemetry, where the process uses that. Imports neither it nor vLLM.

Attributes: ``error.type`` (the public type), ``omni.error.category``, ``omni.error.status`` (int) and
``omni.error.stage_id`` (int, if known); never a message. A server's error sets the span's status to ERROR, a client's
leaves it, as OpenTelemetry asks of servers.
"""

import contextlib
import sys
from typing import Any

from vllm_omni_errors.details import OmniErrorDetails

NAME = "vllm_omni_errors"
LATE_SPAN = "omni.error"
"""Name of the span that is made where the active one is over: a job outlives the request that started it."""


def mark_span(details: OmniErrorDetails) -> None:
    """Put an error on the active span; nothing happens, and nothing fails, where there is none."""
    trace = sys.modules.get("opentelemetry.trace")  # without it, nobody can have started a span
    if trace is None:
        return
    with contextlib.suppress(Exception):  # tracing is never the reason why something fails
        span = trace.get_current_span()
        if span.is_recording():
            _mark(span, details, trace)
        elif span.get_span_context().is_valid:
            with trace.get_tracer(NAME).start_as_current_span(LATE_SPAN) as late:
                _mark(late, details, trace)


def _mark(span: Any, details: OmniErrorDetails, trace: Any) -> None:
    span.set_attribute("error.type", details.error_type)
    span.set_attribute("omni.error.category", details.category)
    span.set_attribute("omni.error.status", details.status_code)
    if details.stage_id is not None:
        span.set_attribute("omni.error.stage_id", details.stage_id)
    if details.category == "server":
        span.set_status(trace.StatusCode.ERROR)
