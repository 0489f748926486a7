# SPDX-License-Identifier: Apache-2.0
"""A session over a WebSocket: mistakes are answered, everything else ends it, and a task can do both."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect
from vllm.exceptions import VLLMValidationError

from vllm_omni_errors import OmniClientError, OmniServiceUnavailableError, install
from vllm_omni_errors.transports.realtime import (
    duplex_object,
    event_error,
    read_event,
    reported_error,
    resume_error,
)
from vllm_omni_errors.transports.websocket import end_session, receive_text, report_error, send_error, set_framing

SIX = {"message", "type", "param", "code", "request_id", "error_stage_id"}
MISTAKE = VLLMValidationError("size is wrong.", parameter="size")

Session = Callable[[WebSocket], Awaitable[None]]


def client_of(session: Session) -> TestClient:
    app = FastAPI()

    @app.websocket("/session")
    async def route(socket: WebSocket) -> None:
        await session(socket)

    install(app, raw_mapping=False)
    return TestClient(app)


def converse(session: Session, *sent: str | bytes) -> tuple[list[Any], WebSocketDisconnect]:
    """Send everything; the messages, and the close that follows them."""
    received = []
    with client_of(session).websocket_connect("/session") as socket:
        for message in sent:
            socket.send({"type": "websocket.receive", ("text" if isinstance(message, str) else "bytes"): message})
        while True:
            message = socket.receive()
            if message["type"] == "websocket.close":
                return received, WebSocketDisconnect(message["code"], message["reason"])
            received.append(json.loads(message["text"]) if "text" in message else message["bytes"])


async def test_a_mistake_is_answered_and_the_session_goes_on() -> None:
    async def session(socket: WebSocket) -> None:
        await socket.accept()
        await send_error(socket, MISTAKE, answers="event-1", partial=True)
        await socket.send_json({"type": "goes on"})
        await socket.close()

    (error, after), close = converse(session)
    assert set(error["error"]) == SIX | {"event_id"}
    assert (error["type"], error["partial"], error["error"]["event_id"]) == ("error", True, "event-1")
    assert (error["error"]["code"], error["error"]["param"]) == (400, "size")
    assert (after, close.code) == ({"type": "goes on"}, 1000)


@pytest.mark.parametrize("answers", [None, "", 5, ["x"], "x" * 129, "a\nb"])
async def test_what_is_no_event_id_is_not_echoed(answers: object) -> None:
    async def session(socket: WebSocket) -> None:
        await socket.accept()
        await send_error(socket, MISTAKE, answers=answers)
        await socket.close()

    (error,), _ = converse(session)
    assert set(error["error"]) == SIX


@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (RuntimeError("/opt/secret"), 1011),
        (OmniServiceUnavailableError("no replica"), 1013),
        (OmniClientError("says 503", status_code=503), 1011),
    ],
)
async def test_case_w10_everything_else_ends_the_session_with_its_event_first(exc: Exception, code: int) -> None:
    async def session(socket: WebSocket) -> None:
        await socket.accept()
        await send_error(socket, exc)
        await socket.send_json({"type": "never"})

    (error,), close = converse(session)
    assert (error["type"], close.code) == ("error", code)
    assert "/opt/secret" not in json.dumps(error)
    assert close.reason == error["error"]["message"]


@pytest.mark.parametrize("ending", [end_session, report_error])
async def test_a_task_that_nobody_awaits_ends_the_session(ending: Any) -> None:
    async def session(socket: WebSocket) -> None:
        await socket.accept()
        task = asyncio.create_task(ending(socket, RuntimeError("x")))
        await receive_text(socket)
        await task

    (error,), close = converse(session)
    assert (error["error"]["code"], close.code) == (500, 1011)


async def test_a_task_answers_the_mistake_of_a_client_but_a_deadline_ends_the_session() -> None:
    async def session(socket: WebSocket) -> None:
        await socket.accept()
        await report_error(socket, MISTAKE)
        await end_session(socket, VLLMValidationError("Nothing came in time."))
        await end_session(socket, RuntimeError("closed already"))

    (first, last), close = converse(session)
    assert (first["error"]["message"], last["error"]["message"]) == ("size is wrong.", "Nothing came in time.")
    assert (close.code, close.reason) == (1008, "Nothing came in time.")


async def test_sending_after_the_end_is_no_second_error() -> None:
    async def session(socket: WebSocket) -> None:
        await socket.accept()
        await end_session(socket, RuntimeError("x"))
        await socket.send_json({"type": "session.done"})

    received, close = converse(session)
    assert ([event["type"] for event in received], close.code) == (["error"], 1011)


async def test_case_z09_binary_frames_are_answered_and_skipped() -> None:
    async def session(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_json({"text": await receive_text(socket, lock=asyncio.Lock())})
        await socket.close()

    (first, second, text), _ = converse(session, b"\xff", b"{}", "hello")
    assert (first["error"]["code"], first["error"]["message"]) == (400, second["error"]["message"])
    assert text == {"text": "hello"}


async def test_a_client_that_leaves_is_no_error() -> None:
    left: list[int] = []

    async def session(socket: WebSocket) -> None:
        await socket.accept()
        try:
            await receive_text(socket)
        except WebSocketDisconnect as gone:
            left.append(gone.code)
            await send_error(socket, MISTAKE)

    with client_of(session).websocket_connect("/session") as socket:
        socket.close(1001)
    assert left == [1001]


async def test_a_session_has_its_own_framing() -> None:
    async def session(socket: WebSocket) -> None:
        set_framing(socket, lambda event: repr(sorted(event)).encode())
        await socket.accept()
        await send_error(socket, MISTAKE)
        raise RuntimeError("x")

    received, close = converse(session)
    assert (received, close.code) == ([b"['error', 'type']"] * 2, 1011)


async def test_a_handler_that_will_never_be_there_is_not_tried_again() -> None:
    async def session(socket: WebSocket) -> None:
        raise OmniServiceUnavailableError("not served", permanent=True)

    with pytest.raises(WebSocketDisconnect) as refused, client_of(session).websocket_connect("/session"):
        pass
    response = refused.value
    assert getattr(response, "status_code", None) == 503
    assert response.headers["x-should-retry"] == "false"  # type: ignore[attr-defined]


# ---- vLLM's realtime protocol ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{", "[]", "5", "[" * 100_000, "1" * 10_000, '{"model": ["x"]}'])
def test_what_is_no_event_is_the_clients_mistake(text: str) -> None:
    with pytest.raises(VLLMValidationError):
        read_event(text)


def test_an_event_may_have_no_model() -> None:
    assert read_event('{"type": "x", "model": null}') == {"type": "x", "model": None}


@pytest.mark.parametrize(
    ("code", "status", "param"),
    [
        ("unknown_event", 400, "type"),
        ("invalid_event", 400, "model"),
        ("model_not_found", 404, "model"),
        ("model_not_validated", 409, None),
        ("invalid_audio", 422, "audio"),
    ],
)
def test_what_vllm_reports_by_a_code_is_typed(code: str, status: int, param: str | None) -> None:
    details = reported_error("said by vLLM", code).details  # type: ignore[attr-defined]
    assert (details.status_code, details.parameter) == (status, param)


@pytest.mark.parametrize("code", [None, "processing_error", "a new one"])
def test_what_has_no_such_code_is_the_servers(code: str | None) -> None:
    error = reported_error("/opt/secret", code)
    assert "/opt/secret" not in str(error)
    assert not isinstance(error, VLLMValidationError)


def test_only_the_fields_of_an_event_are_the_clients() -> None:
    error = RuntimeError("x")
    assert event_error(error) is error


# ---- vLLM-Omni's duplex sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("bad_event", 400, "BadRequestError"),
        ("unknown_session", 404, "NotFoundError"),
        ("session_closed", 409, "ConflictError"),
        ("bad_audio", 422, "UnprocessableEntityError"),
        ("resource_exhausted", 503, "ServiceUnavailableError"),
        ("timeout", 504, "GatewayTimeoutError"),
        ("engine_error", 500, "InternalServerError"),
        ("a new one", 500, "InternalServerError"),
    ],
)
def test_the_word_of_a_duplex_session_decides_whose_error_it_is(code: str, status: int, kind: str) -> None:
    error = duplex_object(code, "said by vLLM-Omni", None, "mine", {"retryable": True})
    assert set(error) == SIX | {"event_id", "retryable"}
    assert (error["code"], error["type"], error["event_id"]) == (status, kind, "mine")
    assert error["request_id"]
    assert (error["message"] == "Internal server error") == (status == 500)


def test_what_a_session_adds_does_not_replace_the_object() -> None:
    error = duplex_object("bad_event", "no", "audio", None, {"code": "bad_event", "message": "/opt/secret"})
    assert (error["code"], error["message"], error["param"], "event_id" in error) == (400, "no", "audio", False)


def test_every_word_that_stock_calls_the_clients_mistake_is_known() -> None:
    """But for one that names the configuration of the server."""
    from vllm_omni.protocol.duplex.errors import REALTIME_ERROR_TYPES_BY_CODE

    mistakes = {code for code, kind in REALTIME_ERROR_TYPES_BY_CODE.items() if kind == "invalid_request_error"}
    assert {code for code in mistakes if duplex_object(code, "x", None, None, {})["code"] >= 500} == set()


@pytest.mark.parametrize(("exc", "status"), [(KeyError("x"), 404), (ValueError("x"), 409)])
def test_a_refused_resume_is_the_clients(exc: Exception, status: int) -> None:
    details = resume_error(exc).details  # type: ignore[attr-defined]
    assert details.status_code == status


def test_any_other_failure_of_a_resume_is_what_it_is() -> None:
    error = RuntimeError("x")
    assert resume_error(error) is error
