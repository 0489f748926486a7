# SPDX-License-Identifier: Apache-2.0
"""What is known about the request that is being answered: its id, its route, and its error.

``RequestIdentity`` is the outermost layer of an application. It is plain ASGI, sends every byte on as it comes, and
adds to the head of a response what no inner layer has put there. Being outside the Prometheus middleware is harmless,
for it never touches a status; being outside the others is needed: vLLM's own request id middleware
(``--enable-request-id-headers``) echoes the header as it arrived, and answers of the authentication get an id too.
It also sees what the client sees, so it counts: every answer from 400 on, and every request that the client gave up.
"""

import asyncio
import uuid
from contextvars import ContextVar
from typing import Any, Protocol

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from vllm_omni_errors import catalogue, convert, metrics, public_text
from vllm_omni_errors.details import OmniErrorDetails

from .envelope import REQUEST_ID_HEADER, headers

STATE = "vllm_omni_errors"
"""Where an installed application keeps its boundary, in its state."""

PACK = "vllm_omni_errors.pack"
"""Where a session keeps its framing, in its scope: a function from a message to bytes."""

_HEADER = REQUEST_ID_HEADER.encode()


class Boundary(Protocol):
    """The one handler of an application (``http.Boundary``)."""

    async def __call__(self, connection: HTTPConnection, exc: Exception) -> object:
        """Answer a request, or finish a WebSocket."""
        ...

    def details(self, exc: BaseException, scope: Scope) -> OmniErrorDetails:
        """The record of an exception, with the request's id."""
        ...

    def handled(self, exc: BaseException, scope: Scope) -> OmniErrorDetails:
        """The same, logged, and the engine looked after."""
        ...


class CurrentRequest:
    """One request, by its ASGI scope; ``error`` is the record that was rendered last, and may be the answer.

    ``rendered`` is the record that vLLM's own code had rendered last; it is logged already. ``answering`` says that the
    head of the answer is sent, ``answered`` that all of it is.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.error: OmniErrorDetails | None = None
        self.rendered: OmniErrorDetails | None = None
        self.answering = False
        self.answered = False
        self.accepted_id: str | None = None
        self._generated: str | None = None

    @property
    def boundary(self) -> Boundary | None:
        """That of the application which answers; None outside of an installed one."""
        found: Boundary | None = getattr(getattr(self.scope.get("app"), "state", None), STATE, None)
        return found

    @property
    def known_id(self) -> str | None:
        """The id that the request was accepted under, else the one that the client sent, else one made for an error."""
        metadata = self.scope.get("state", {}).get("request_metadata")
        accepted = public_text.request_id(self.accepted_id or getattr(metadata, "request_id", None))
        return accepted or _sent_id(self.scope) or self._generated

    @property
    def error_id(self) -> str:
        """The known id, or one that is made now and stays: an error always has one."""
        known = self.known_id
        if known is None:
            known = self._generated = uuid.uuid4().hex
        return known


_current: ContextVar[CurrentRequest | None] = ContextVar("vllm_omni_errors_request", default=None)


def current(scope: Scope | None = None) -> CurrentRequest:
    """The request that this task answers; a new one for ``scope`` outside of an installed application."""
    return _current.get() or CurrentRequest({} if scope is None else scope)


def accepted(request_id: str) -> None:
    """The request that this task answers goes by this id from now on, for code that does not know the request."""
    current().accepted_id = request_id


def handled(exc: BaseException, transport: metrics.Transport | None = None) -> OmniErrorDetails:
    """The record of an exception that an answer holds instead of being replaced by it: an event of a stream, an item.

    It is logged, and the engine is looked after, as for one that reaches the boundary; it is counted, if it leaves the
    server on a transport of its own. Raises ``exc`` if it is cancellation or other control flow.
    """
    request = current()
    details = convert.to_details(exc) if request.boundary is None else request.boundary.handled(exc, request.scope)
    if transport is not None:
        metrics.count_error(details, transport)
    return details


async def send_event(socket: WebSocket, event: dict[str, Any]) -> None:
    """Send one message in the framing of its session: JSON text, unless it has one of its own."""
    pack = socket.scope.get(PACK)
    await (socket.send_json(event) if pack is None else socket.send_bytes(pack(event)))


class RequestIdentity:
    """Cleans an inbound ``X-Request-Id`` before anything reads it, and puts the id on every response that lacks it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        scope.setdefault("state", {})
        scope["headers"] = _cleaned(scope["headers"])
        request = CurrentRequest(scope)

        async def send_identified(message: Message) -> None:
            if message["type"] in _HEADS:
                _identify(message, request)
                request.answering = True
            await send(message)

        token = _current.set(request)
        answer = _Answer(request, send_identified, receive)
        try:
            await self.app(scope, answer.receive, answer.send)
        except asyncio.CancelledError:
            answer.gone = True
            raise
        finally:
            _current.reset(token)
            answer.count_cancelled()


class _Answer:
    """Passes messages on as they come, and counts: errors when their head is sent, and who went before the end."""

    def __init__(self, request: CurrentRequest, send: Send, receive: Receive) -> None:
        self.request = request
        self.gone = False
        self._send = send
        self._receive = receive
        self._done = request.scope["type"] != "http"  # a socket may end at any time
        self._counted = False

    async def receive(self) -> Message:
        message = await self._receive()
        self.gone = self.gone or (message["type"] == "http.disconnect" and not self._done)
        return message

    async def send(self, message: Message) -> None:
        await self._send(message)
        kind = message["type"]
        if kind in _HEADS and message["status"] >= 400:
            self._counted = True
            metrics.count_error(_said(self.request, message["status"]), _HEADS[kind])
        if kind == "http.response.body" and not message.get("more_body", False):
            self._done = self.request.answered = True

    def count_cancelled(self) -> None:
        if self.gone and not self._counted:
            metrics.count_cancelled("http")


_HEADS: dict[str, metrics.Transport] = {"http.response.start": "http", "websocket.http.response.start": "websocket"}


def _said(request: CurrentRequest, status: int) -> OmniErrorDetails:
    """The record that the answer was made of; of an answer that some layer made by itself, what its status says."""
    if request.error is not None and request.error.status_code == status:
        return request.error
    return OmniErrorDetails(
        message=catalogue.phrase(status),
        category="client" if status < 500 else "server",
        status_code=status,
        error_type=catalogue.phrase(status),
    )


def _identify(message: Message, request: CurrentRequest) -> None:
    head = MutableHeaders(raw=list(message.get("headers", ())))
    if request.error is not None and request.error.status_code == message["status"]:
        head.update(headers(request.error))
    found = head.get(REQUEST_ID_HEADER) or request.known_id
    if found is None and message["status"] >= 400:
        found = request.error_id
    if found is not None:
        head[REQUEST_ID_HEADER] = found  # once, however many there were
    message["headers"] = head.raw


def _cleaned(raw: Any) -> list[tuple[bytes, bytes]]:
    """Request headers with at most one ``X-Request-Id``, which holds nothing but a clean id."""
    pairs = list(raw)
    sent = [value for name, value in pairs if name.lower() == _HEADER]
    if not sent:
        return pairs
    clean = public_text.request_id(sent[0].decode("latin-1"))
    others = [(name, value) for name, value in pairs if name.lower() != _HEADER]
    return [*others, (_HEADER, clean.encode())] if clean else others


def _sent_id(scope: Scope) -> str | None:
    for name, value in scope.get("headers", ()):
        if name.lower() == _HEADER:
            return public_text.request_id(value.decode("latin-1"))
    return None
