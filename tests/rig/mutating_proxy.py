# SPDX-License-Identifier: Apache-2.0
"""A proxy on loopback that breaks a real server's answers in one way, HTTP and WebSockets alike."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import websockets
from asgi_server import serving_app
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

HOP_HEADERS = {"connection", "content-length", "date", "server", "transfer-encoding"}
Message = dict[str, Any]


class Broken(Exception):  # noqa: N818
    """The connection ends here, without a word."""


@dataclass(frozen=True)
class Answer:
    """A real answer on its way to the client."""

    method: str
    path: str
    sent: bytes
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def failed(self) -> bool:
        return self.status >= 400

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def holding(self, body: Any) -> "Answer":
        return replace(self, body=json.dumps(body).encode())

    def with_error(self, **changes: Any) -> "Answer":
        """The same with changed fields of its error; a change to `...` takes the field away."""
        error = {**self.json["error"], **changes}
        return self.holding({"error": {key: value for key, value in error.items() if value is not ...}})


class Mutation:
    """Changes nothing; a mutation overrides one of these."""

    async def answer(self, answer: Answer) -> Answer:
        """What the client gets in place of `answer`. Raises `Broken`."""
        return answer

    async def message(self, path: str, message: Message) -> list[Message]:
        """What the client gets in place of a message of a session; `{"close": CODE}` closes it. Raises `Broken`."""
        return [message]

    async def close(self, path: str, code: int, reason: str) -> tuple[int, str]:
        """The close frame that the client gets. Raises `Broken`."""
        return code, reason

    accepts = False
    """Whether a session that the server refuses is accepted, to say so in it."""


class Proxy:
    """An ASGI application in front of the server at `url`."""

    def __init__(self, url: str, mutation: Mutation) -> None:
        self.url = url
        self.mutation = mutation
        self.client = httpx.AsyncClient(timeout=60, verify=False, limits=httpx.Limits(max_keepalive_connections=0))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._session(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = await request.body()
        headers = {name: value for name, value in request.headers.items() if name not in {"host", *HOP_HEADERS}}
        target = f"{self.url}{scope['path']}?{scope['query_string'].decode()}"
        real = await self.client.request(request.method, target, content=body, headers=headers)
        kept = {name: value for name, value in real.headers.items() if name not in HOP_HEADERS}
        answer = Answer(request.method, scope["path"], body, real.status_code, kept, real.content)
        try:
            answer = await self.mutation.answer(answer)
        except Broken:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
            await send({"type": "http.response.body", "body": b"{"})
            return
        await Response(answer.body, answer.status, answer.headers)(scope, receive, send)

    async def _session(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        url = f"{self.url.replace('http', 'ws', 1)}{path}?{scope['query_string'].decode()}"
        await receive()
        try:
            async with websockets.connect(url, proxy=None) as server:
                await send({"type": "websocket.accept"})
                up = asyncio.create_task(self._up(server, receive))
                try:
                    await self._down(path, server, send)
                finally:
                    up.cancel()
        except websockets.InvalidStatus as refused:
            await self._refused(refused.response, send)

    async def _refused(self, answer: Any, send: Send) -> None:
        if self.mutation.accepts:
            await send({"type": "websocket.accept"})
            text = json.dumps({"type": "error", **json.loads(answer.body)})
            await send({"type": "websocket.send", "text": text})
            await send({"type": "websocket.close", "code": 1013})
            return
        headers = [(k.lower().encode(), v.encode()) for k, v in answer.headers.raw_items() if k.lower() != "connection"]
        await send({"type": "websocket.http.response.start", "status": answer.status_code, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": bytes(answer.body or b"")})

    async def _up(self, server: websockets.ClientConnection, receive: Receive) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            while (message := await receive())["type"] == "websocket.receive":
                await server.send(message.get("text") if message.get("text") is not None else message["bytes"])
            await server.close()

    async def _down(self, path: str, server: websockets.ClientConnection, send: Send) -> None:
        try:
            while True:
                real = await server.recv()
                messages = [real] if isinstance(real, bytes) else await self.mutation.message(path, json.loads(real))
                for message in messages:
                    if isinstance(message, bytes):
                        await send({"type": "websocket.send", "bytes": message})
                    elif "close" in message:
                        await send({"type": "websocket.close", "code": message["close"], "reason": "mutated"})
                        return
                    else:
                        await send({"type": "websocket.send", "text": json.dumps(message)})
        except websockets.ConnectionClosed as closed:
            frame = closed.rcvd
            code, reason = await self.mutation.close(path, frame.code, frame.reason) if frame else (1006, "")
            with contextlib.suppress(RuntimeError):  # the client has closed it already
                await send({"type": "websocket.close", "code": code, "reason": reason})


@contextmanager
def serving(url: str, mutation: Mutation) -> Iterator[str]:
    """The proxy's own URL, until the block ends."""
    with serving_app(Proxy(url, mutation)) as (own, _):
        yield own
