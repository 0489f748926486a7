# SPDX-License-Identifier: Apache-2.0
"""WebSockets: one way to tell a client about an error, and one way to end its session (contract, section 5).

A client's mistake is answered, and the session goes on. Every other error ends it: a handler raises it and the boundary
that `install` made sends the event and closes. A task that nobody awaits calls `end_session` or `report_error`.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from vllm_omni_errors import convert, metrics, upstream

from . import envelope, request

Lock = AbstractAsyncContextManager[Any]
"""Held while a message is sent, where messages of a session must not come between others."""

MAX_EVENT_ID = 128
"""Characters; a longer id of an event is not echoed."""

ONLY_TEXT = "Messages must be text frames."


async def send_error(
    socket: WebSocket, exc: Exception, *, lock: Lock | None = None, answers: object = None, **beside: Any
) -> None:
    """Answer a client's mistake with ``{"type": "error", "error": {…}}``; the session goes on.

    ``answers`` is the `event_id` that the client sent with its event; a text of at most 128 characters is echoed as
    ``event_id`` inside ``error``, as in the OpenAI realtime protocol. ``beside`` stands next to ``error``. That the
    client is gone is not an error here.

    Raises:
        Exception: ``exc`` itself, if it is not the client's.

    """
    if convert.to_details(exc).category == "server":
        raise exc
    details = request.handled(exc)
    metrics.count_error(details, "websocket")
    event = envelope.event(details)
    if isinstance(answers, str) and 0 < len(answers) <= MAX_EVENT_ID and answers.isprintable():
        event["error"]["event_id"] = answers
    async with lock or nullcontext():
        try:
            await request.send_event(socket, event | beside)
        except (RuntimeError, WebSocketDisconnect):
            return  # whoever receives next learns that the client is gone


async def end_session(socket: WebSocket, exc: Exception, *, lock: Lock | None = None) -> None:
    """Send the event of an error and close, whosever it is; for a task that nobody awaits.

    A socket that is closed already stays as it is.

    Raises:
        Exception: ``exc`` itself, in an application without `install`.

    """
    boundary = request.current(socket.scope).boundary
    if boundary is None:
        raise exc
    async with lock or nullcontext():
        await boundary(socket, exc)


async def report_error(socket: WebSocket, exc: Exception) -> None:
    """Answer a client's mistake, or end the session; for a task that nobody awaits."""
    try:
        await send_error(socket, exc)
    except Exception as error:
        await end_session(socket, error)


async def receive_text(socket: WebSocket, *, lock: Lock | None = None) -> str:
    """The next text frame. A binary frame is the client's mistake: it is answered, and the next one is awaited.

    Raises:
        WebSocketDisconnect: the client is gone.

    """
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"], message.get("reason"))
        text = message.get("text")
        if isinstance(text, str):
            return text
        await send_error(socket, upstream.VLLMValidationError(ONLY_TEXT), lock=lock)


def set_framing(socket: WebSocket, pack: Callable[[Any], bytes]) -> None:
    """Send every error of this session as bytes that ``pack`` makes of the event."""
    socket.scope[request.PACK] = pack
