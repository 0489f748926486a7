# SPDX-License-Identifier: Apache-2.0
"""Conversations over WebSockets, and what is right in them (contract, section 5)."""

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import websockets
from websockets.asyncio.client import ClientConnection

from vllm_omni_errors.probe.answer import NO_FRAME, SWITCHED, Answer, Conversation
from vllm_omni_errors.probe.call import Talk
from vllm_omni_errors.probe.canaries import Canaries
from vllm_omni_errors.probe.contract import Contract
from vllm_omni_errors.probe.record import Finding
from vllm_omni_errors.probe.rules import Expect, Judgement, broken_inside, broken_rules

SILENCE_S = 0.5
"""How long a session must say nothing after the errors that were expected, to count as open."""

NOT_CLOSED_S = 5.0
"""How long a session that should be closed may say nothing after an error."""

MESSAGES = 200
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_REASON_BYTES = 123


async def converse(root: str, talk: Talk, headers: Mapping[str, str], deadline_s: float, *, proxied: bool) -> Answer:
    """Send every message, then receive until the session is closed or says nothing more."""
    began = time.monotonic()
    received: list[Any] = []
    url = root.replace("http", "ws", 1) + talk.target
    status, closed, reason = SWITCHED, None, ""
    head: Mapping[str, str] = {}
    try:
        async with asyncio.timeout(deadline_s):
            async with websockets.connect(
                url, additional_headers=dict(headers), max_size=MAX_MESSAGE_BYTES, open_timeout=None, close_timeout=2,
                proxy=True if proxied else None, ping_interval=None,
            ) as socket:  # fmt: skip
                head = dict(socket.response.headers) if socket.response else {}
                try:
                    await _exchange(socket, talk, received)
                except websockets.ConnectionClosed as end:
                    frame = end.rcvd
                    closed, reason = (frame.code, frame.reason) if frame else (NO_FRAME, "")
    except websockets.InvalidStatus as refused:
        answer = refused.response
        lowered = {name.lower(): value for name, value in answer.headers.raw_items()}
        return Conversation(talk, time.monotonic() - began, answer.status_code, lowered, bytes(answer.body or b""))
    except TimeoutError:
        if not received:
            problem = f"no message within {deadline_s:g} s"
            return Conversation(talk, time.monotonic() - began, failure="timeout", problem=problem)
    except (OSError, websockets.WebSocketException) as error:
        return Conversation(talk, time.monotonic() - began, failure="dropped", problem=f"no session: {error}")
    body = "\n".join(map(_text, received)).encode()
    seconds = time.monotonic() - began
    return Conversation(talk, seconds, status, head, body, received=tuple(received), code=closed, reason=reason)


async def _exchange(socket: ClientConnection, talk: Talk, received: list[Any]) -> None:
    """Receives while it sends; raises `ConnectionClosed` at the end of the session, returns where it falls silent."""
    sender = asyncio.create_task(_send(socket, talk))
    errors = 0
    try:
        while len(received) < MESSAGES:
            patience = SILENCE_S if talk.errors is not None and errors >= talk.errors else None
            if talk.errors is None and errors:
                patience = NOT_CLOSED_S
            try:
                message = await asyncio.wait_for(socket.recv(), patience)
            except TimeoutError:
                return
            received.append(_read(message, talk.packed))
            errors += isinstance(received[-1], dict) and received[-1].get("type") == "error"
    finally:
        sender.cancel()
        with contextlib.suppress(asyncio.CancelledError, websockets.ConnectionClosed):
            await sender


async def _send(socket: ClientConnection, talk: Talk) -> None:
    for message in talk.sent:
        if isinstance(message, str | bytes):
            await socket.send(message)
        else:
            await socket.send(msgspec.msgpack.encode(message) if talk.packed else json.dumps(message))


def _read(message: str | bytes, packed: bool) -> Any:
    try:
        if isinstance(message, bytes):
            return msgspec.msgpack.decode(message) if packed else message
        return json.loads(message)
    except (ValueError, msgspec.DecodeError):
        return message


def _text(message: Any) -> str:
    if isinstance(message, bytes):
        return message.decode("latin-1")
    return message if isinstance(message, str) else json.dumps(message, default=repr)


@dataclass(frozen=True, slots=True)
class Told:
    """A session in which each of `errors` is told, in this order.

    `closes`: the close code that must follow the last of them; `None`: the session goes on. `event_id`: the last error
    must echo it. A session that this server does not have is a skip.
    """

    errors: tuple[Expect, ...]
    closes: int | None = None
    event_id: str | None = None
    success: bool = False

    def describe(self) -> str:
        told = "; ".join(expect.describe() for expect in self.errors)
        end = "then the session goes on" if self.closes is None else f"then a close with {self.closes}"
        return f"error events: {told}; {end}"

    def judge(self, answer: Answer, canaries: Canaries, contract: Contract) -> Judgement:
        if answer.status is None or not isinstance(answer, Conversation):
            return Judgement((Finding("answered", answer.problem or "no answer"),))
        if answer.status != SWITCHED:
            return Judgement(skip=f"there is no such session here: {answer.status}", unserved=True)
        findings = [*_told(answer, self, canaries), *_ended(answer, self)]
        return Judgement(tuple(findings))


def _told(talk: Conversation, expect: Told, canaries: Canaries) -> list[Finding]:
    findings = []
    if len(talk.errors) != len(expect.errors):
        text = f"{len(talk.errors)} error events, expected {len(expect.errors)}"
        findings.append(Finding("terminal" if expect.closes else "session", text, Contract.OMNI.word))
    for event, wanted in zip(talk.errors, expect.errors, strict=False):
        error = event.get("error")
        known = {key: value for key, value in error.items() if key != "event_id"} if isinstance(error, dict) else error
        findings += broken_inside(talk, known, wanted, canaries, event)
    # What is beside `error` may not show more than it does.
    texts = [*(json.dumps(event, default=repr) for event in talk.errors), talk.reason]
    told = Answer(talk.call, talk.seconds, 500, body="\n".join(texts).encode())
    leaks = broken_rules(told, Expect(frozenset({500})), canaries)
    findings += [finding for finding in leaks if finding.rule in ("leak", "echo", "canary", "secret")]
    last = talk.errors[-1].get("error") if talk.errors else None
    echoed = last.get("event_id") if isinstance(last, dict) else None
    if expect.event_id and talk.errors and echoed != expect.event_id:
        findings.append(Finding("session", f"event_id {echoed!r} came back, not {expect.event_id!r}", "omni"))
    return list(dict.fromkeys(findings))


def _ended(talk: Conversation, expect: Told) -> list[Finding]:
    omni = Contract.OMNI.word
    if expect.closes is None:
        code = "without a close frame" if talk.code == NO_FRAME else f"with {talk.code}"
        return [] if talk.code is None else [Finding("session", f"the session ended {code}, and should go on", omni)]
    findings = []
    types = [each.get("type") for each in talk.received if isinstance(each, dict)]
    after = types[types.index("error") + 1 :] if "error" in types else []
    if after:
        findings.append(Finding("terminal", f"after the error came {', '.join(map(str, after))}", omni))
    if talk.code is None:
        findings.append(Finding("close", f"the session was not closed, expected {expect.closes}", omni))
    elif talk.code == NO_FRAME:
        findings.append(Finding("close", "the connection ended without a close frame", Contract.OPENAI.word))
    elif talk.code != expect.closes:
        findings.append(Finding("close", f"closed with {talk.code}, expected {expect.closes}", omni))
    if len(talk.reason.encode()) > MAX_REASON_BYTES or (talk.code == expect.closes and not talk.reason):
        findings.append(Finding("close", f"the reason of the close is {talk.reason!r}", omni))
    return findings


@dataclass(frozen=True, slots=True)
class Opens:
    """A session that is accepted and says nothing of an error; or one that is refused before, by an HTTP error."""

    refused: Expect
    success: bool = False

    def describe(self) -> str:
        return f"a session, or an HTTP answer: {self.refused.describe()}"

    def judge(self, answer: Answer, canaries: Canaries, contract: Contract) -> Judgement:
        if answer.status in (403, 404):
            return Judgement(skip=f"there is no such session here: {answer.status}", unserved=True)
        if answer.status is None or not isinstance(answer, Conversation):
            return Judgement((Finding("answered", answer.problem or "no answer"),))
        if answer.status != SWITCHED:
            findings = broken_rules(answer, self.refused, canaries)
            if answer.headers.get("x-should-retry") != "false":
                findings += (Finding("retry", "no x-should-retry: false for what this server never has", "omni"),)
            return Judgement(findings, unserved=True)
        if answer.errors:
            text = "the session was accepted only to say that there is none; an HTTP status should have said so"
            return Judgement((Finding("session", text, Contract.OMNI.word),), unserved=True)
        return Judgement()
