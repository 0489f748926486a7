# SPDX-License-Identifier: Apache-2.0
"""A conversation over a WebSocket: what a client sends, and everything that it gets until the socket falls silent."""

import asyncio
import base64
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import websockets

SILENCE_S = 1.5
"""How long a socket must say nothing to count as open and idle, once it has said what is expected."""

DEADLINE_S = 30.0
"""How long the next message that is expected, or the close, may take."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The HTTP answer instead of a session."""

    status: int
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Conversation:
    """Everything that came, and the close frame: ``code`` is None while the socket is open, 1006 without a frame."""

    received: list[Any] = field(default_factory=list)
    code: int | None = None
    reason: str = ""

    @property
    def types(self) -> list[str]:
        """The type of each event; what is no event is left out."""
        return [each["type"] for each in self.received if isinstance(each, dict) and "type" in each]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [each for each in self.received if isinstance(each, dict) and each.get("type") == "error"]

    @property
    def text(self) -> str:
        return json.dumps([each for each in self.received if isinstance(each, dict)] + [self.reason])


def pack(message: Any) -> bytes:
    return msgspec.msgpack.encode(message)


def spoken(text: str) -> str:
    """The audio that the rig's model of `/v1/realtime` takes for a text (language.py), as the route wants it."""
    return base64.b64encode(array("h", [*text.encode()]).tobytes()).decode()


def _read(message: str | bytes, packed: bool) -> Any:
    if isinstance(message, str):
        return json.loads(message)
    return msgspec.msgpack.decode(message) if packed else message


async def converse(
    url: str, sent: Sequence[Any], *, packed: bool = False, errors: int | None = None, deadline_s: float = DEADLINE_S
) -> Conversation | Refusal:
    """Send all messages, then receive until the socket is closed.

    With ``errors`` it is expected to stay open: silence is the end, once so many errors have come. ``packed`` is for
    msgpack instead of JSON.
    """
    received: list[Any] = []
    try:
        async with websockets.connect(url.replace("http", "ws", 1), open_timeout=20) as socket:
            try:
                for message in sent:
                    await socket.send(message if isinstance(message, str | bytes) else json.dumps(message))
                while True:
                    expected = errors is None or len(Conversation(received).errors) < errors
                    message = await asyncio.wait_for(socket.recv(), deadline_s if expected else SILENCE_S)
                    received.append(_read(message, packed))
            except TimeoutError:
                return Conversation(received)
            except websockets.ConnectionClosed as closed:
                frame = closed.rcvd
                return Conversation(received, frame.code if frame else 1006, frame.reason if frame else "")
    except websockets.InvalidStatus as refused:
        answer = refused.response
        return Refusal(answer.status_code, dict(answer.headers), json.loads(answer.body or b"null"))
