# SPDX-License-Identifier: Apache-2.0
"""What a trace shows of an error: its type, status and stage on the active span, at every boundary, and no text."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

import pytest
from error_site import Site
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from vllm_omni_errors import OmniEngineGenerateError, OmniServiceUnavailableError, stage
from vllm_omni_errors.streams import started_chat
from vllm_omni_errors.transports.jobs import JobError
from vllm_omni_errors.upstream import VLLMValidationError

SECRET = "secret-4711 at /root/models/w.bin"
PROVIDER = TracerProvider()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Finished spans of a real SDK; its provider can be set once in a process."""
    exporter = InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    if trace.get_tracer_provider() is not PROVIDER:
        trace.set_tracer_provider(PROVIDER)
    PROVIDER.add_span_processor(processor)
    yield exporter
    processor.shutdown()


class Traced:
    """Starts a span around each request, as the instrumentation of an application does."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with PROVIDER.get_tracer("test").start_as_current_span("request"):
            await self.app(scope, receive, send)


@pytest.fixture
def site(plain: Callable[..., Site]) -> Site:
    app = FastAPI()
    app.add_middleware(Traced)
    return plain(app)


def told(span: ReadableSpan) -> Mapping[str, Any]:
    """The attributes of an error on a span, which holds no private text anywhere."""
    everything = span.to_json()
    assert "4711" not in everything
    assert "/root" not in everything
    return dict(span.attributes or {})


def error(kind: str, category: str, status: int, stage_id: int | None = None) -> dict[str, Any]:
    known = {} if stage_id is None else {"omni.error.stage_id": stage_id}
    return {"error.type": kind, "omni.error.category": category, "omni.error.status": status} | known


def failed(span: ReadableSpan) -> bool:
    return span.status.status_code is trace.StatusCode.ERROR


INTERNAL = error("InternalServerError", "server", 500)


def test_a_servers_error_fails_the_span_of_its_request(site: Site, spans: InMemorySpanExporter) -> None:
    site.failure = lambda: RuntimeError(SECRET)
    assert site.client.get("/raise").status_code == 500
    (span,) = spans.get_finished_spans()
    assert (told(span), failed(span)) == (INTERNAL, True)


def test_a_clients_error_is_on_the_span_and_does_not_fail_it(site: Site, spans: InMemorySpanExporter) -> None:
    site.failure = lambda: VLLMValidationError("no", parameter="size", value=SECRET)
    assert site.client.get("/raise").status_code == 400
    (span,) = spans.get_finished_spans()
    assert (told(span), failed(span)) == (error("BadRequestError", "client", 400), False)


def test_the_stage_is_named(site: Site, spans: InMemorySpanExporter) -> None:
    site.failure = lambda: OmniEngineGenerateError(SECRET, stage_id=1)
    site.client.get("/raise")
    assert told(spans.get_finished_spans()[0]) == error("InternalServerError", "server", 500, 1)


def test_a_stream_that_fails_after_its_first_event(site: Site, spans: InMemorySpanExporter) -> None:
    async def pieces() -> AsyncGenerator[str, None]:
        yield "data: 1\n\n"
        raise RuntimeError(SECRET)

    async def route() -> StreamingResponse:
        return StreamingResponse(await started_chat(pieces()), media_type="text/event-stream")

    site.app.add_api_route("/stream", route)
    assert '"code":500' in site.client.get("/stream").text
    (span,) = spans.get_finished_spans()
    assert (told(span), failed(span)) == (INTERNAL, True)


def test_a_socket(site: Site, spans: InMemorySpanExporter) -> None:
    site.failure = lambda: OmniServiceUnavailableError("No worker is running.")
    with site.client.websocket_connect("/socket?accept=1") as socket:
        assert socket.receive_json()["error"]["code"] == 503
        with pytest.raises(WebSocketDisconnect):
            socket.receive_json()
    (span,) = spans.get_finished_spans()
    assert (told(span), failed(span)) == (error("ServiceUnavailableError", "server", 503), True)


def test_a_job_whose_request_is_over_gets_a_span_of_its_own_in_the_trace(spans: InMemorySpanExporter) -> None:
    with PROVIDER.get_tracer("test").start_as_current_span("request") as request:
        pass
    with trace.use_span(request):  # what a task inherits from the request that started it
        JobError.of(RuntimeError(SECRET), request_id="video-1")
    _, late = spans.get_finished_spans()
    assert (late.name, told(late), failed(late)) == ("omni.error", INTERNAL, True)
    assert late.context.trace_id == request.get_span_context().trace_id


def test_a_stage(spans: InMemorySpanExporter) -> None:
    with PROVIDER.get_tracer("test").start_as_current_span("generate"):
        stage.normalize(RuntimeError(SECRET), request_id="r", stage_id=0)
    assert told(spans.get_finished_spans()[0]) == error("InternalServerError", "server", 500, 0)


def test_where_nobody_traces_opentelemetry_is_not_even_imported() -> None:
    code = """
import sys
from vllm_omni_errors import tracing
from vllm_omni_errors.details import OmniErrorDetails
tracing.mark_span(OmniErrorDetails("x", "server", 500, "InternalServerError"))
print(any(name.startswith("opentelemetry") for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
