# SPDX-License-Identifier: Apache-2.0
"""What one exchange with a server brought, on whatever transport."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vllm_omni_errors.probe.call import Call, shown_message

Failure = Literal["refused", "dropped", "timeout", "invalid"]

NO_FRAME = 1006
"""The close code of a socket that ended without a close frame (RFC 6455, 7.4.1)."""

SWITCHED = 101


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought. `status` is `None` when no whole answer came; then `failure` and `problem` say how.

    `body` is bounded by the client. `seconds` is until the last byte, or until the probe gave up.
    """

    call: Call
    seconds: float
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    failure: Failure | None = None
    problem: str | None = None

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "backslashreplace")

    @property
    def shown(self) -> str:
        """The body for people."""
        return self.text

    def json(self) -> Any:
        """The body's JSON value, or `None` where it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Conversation(Answer):
    """What came over a WebSocket: `status` is 101, or that of the HTTP answer instead of a session.

    `received`: each an object, a text that is no JSON, or bytes. `code` and `reason` of the close frame: `None` while
    the session is open, `NO_FRAME` where the connection ended without one.
    """

    received: tuple[Any, ...] = ()
    code: int | None = None
    reason: str = ""

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The error events."""
        return [each for each in self.received if isinstance(each, dict) and each.get("type") == "error"]

    @property
    def shown(self) -> str:
        if self.status != SWITCHED:
            return self.text
        end = "the session is open" if self.code is None else f"closed with {self.code} {self.reason!r}"
        return "\n".join([*(shown_message(message) for message in self.received), f"({end})"])


@dataclass(frozen=True, slots=True)
class Asked(Answer):
    """What the official client made of an answer: `raised` is the name of the exception's class, `None` if none was.

    `seen` holds the exception's `status_code`, `code`, `type`, `param` and `request_id`; `attempts`, how many requests
    it sent.
    """

    raised: str | None = None
    seen: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 1

    @property
    def shown(self) -> str:
        raised = f"{self.raised}: {dict(self.seen)}" if self.raised else "nothing was raised"
        return f"{self.text}\n(official client: {raised})"
