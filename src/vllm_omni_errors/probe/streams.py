# SPDX-License-Identifier: Apache-2.0
"""Streams of server-sent events, and what is right in them (contract, section 5)."""

import json
from dataclasses import dataclass
from typing import Any

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from vllm_omni_errors.probe.answer import Answer
from vllm_omni_errors.probe.canaries import Canaries
from vllm_omni_errors.probe.contract import Contract
from vllm_omni_errors.probe.record import Finding
from vllm_omni_errors.probe.rules import Expect, Judgement, broken_inside, broken_rules, shown

DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name, and its data as JSON, or as the text that it is."""

    name: str
    data: Any

    @property
    def is_done(self) -> bool:
        return bool(self.data == DONE)

    @property
    def error(self) -> Any:
        """The error that it tells, else `None`: `{"error": …}`, or `response.failed` of the Responses API."""
        if not isinstance(self.data, dict):
            return None
        if self.data.get("type") == "response.failed":
            return self.data.get("response", {}).get("error") or {}
        if self.data.get("error") or self.data.get("type") == "error" or self.data.get("object") == "error":
            return self.data.get("error") or self.data
        return None


def is_stream(answer: Answer) -> bool:
    kind: str = answer.headers.get("content-type", "")
    return kind.startswith("text/event-stream")


def events(answer: Answer) -> list[Event]:
    """Every event of an answer that is a stream."""
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=answer.body)
    try:
        return [_event(sent) for sent in EventSource(response).iter_sse()]
    except (SSEError, UnicodeDecodeError):
        return []


def _event(sent: ServerSentEvent) -> Event:
    try:
        return Event(sent.event, json.loads(sent.data))
    except ValueError:
        return Event(sent.event, sent.data)


@dataclass(frozen=True, slots=True)
class Whole:
    """A stream that succeeds and says so: `last` is the type of its last event, `[DONE]` unless it is given.

    `unserved`: statuses which mean that the server does not do this at all.
    """

    last: str = DONE
    unserved: frozenset[int] = frozenset()
    success: bool = True

    def describe(self) -> str:
        return f"a stream that ends in {self.last}, without an error"

    def judge(self, answer: Answer, canaries: Canaries, contract: Contract) -> Judgement:
        plain = Expect(frozenset({200}), unserved=self.unserved)
        if answer.status != 200:
            return plain.judge(answer, canaries, contract)
        if not is_stream(answer):
            kind = answer.headers.get("content-type")
            return Judgement(skip=f"the server does not stream this: the answer is {kind}")
        seen = events(answer)
        if told := [event for event in seen if event.error is not None]:
            error = told[0].error
            return Judgement((Finding("terminal", f"an ordinary request failed: {shown(error)}"),))
        return Judgement(tuple(_end(seen, self.last, Contract.OPENAI)))


def _end(seen: list[Event], last: str, contract: Contract) -> list[Finding]:
    if not seen:
        return [Finding("terminal", "a stream of no event")]
    if last != DONE:
        kind = seen[-1].data.get("type") if isinstance(seen[-1].data, dict) else seen[-1].data
        return [] if kind == last else [Finding("done", f"the last event is {shown(kind)}, expected {last}")]
    marks = sum(event.is_done for event in seen)
    if marks != 1 or not seen[-1].is_done:
        return [Finding("done", f"{marks} times [DONE], expected once, at the end", contract.word)]
    return []


@dataclass(frozen=True, slots=True)
class Fails:
    """A stream that fails: by an HTTP status if nothing was sent, else by one event, the last before `[DONE]`.

    `done`: whether `[DONE]` follows the error. `early`: it is known that nothing was sent before, so it must be HTTP.
    """

    error: Expect
    done: bool = True
    early: bool = True
    success: bool = False

    def describe(self) -> str:
        event = "" if self.early else ", or one error event" + (" and [DONE]" if self.done else "")
        return f"HTTP {self.error.describe()}{event}"

    def judge(self, answer: Answer, canaries: Canaries, contract: Contract) -> Judgement:
        if answer.status != 200 or not is_stream(answer):
            return self.error.judge(answer, canaries, contract)
        seen = events(answer)
        told = [number for number, event in enumerate(seen) if event.error is not None]
        if not told:
            accepted = self.error.accepted or ("this server takes it" if contract is Contract.OPENAI else None)
            if accepted and seen:
                return Judgement(skip=accepted)
            return Judgement((Finding("terminal", f"{len(seen)} events and none tells an error, HTTP 200"),))
        return Judgement(tuple(self._broken(answer, seen, told, canaries)))

    def _broken(self, answer: Answer, seen: list[Event], told: list[int], canaries: Canaries) -> list[Finding]:
        first = seen[told[0]]
        findings = []
        if self.early and told[0] == 0:
            text = "nothing was sent before the error, and yet the status is 200"
            findings.append(Finding("before the stream", text, Contract.OMNI.word))
        if len(told) > 1:
            findings.append(Finding("terminal", f"{len(told)} error events, expected one"))
        after = [event for event in seen[told[0] + 1 :] if not event.is_done and event.error is None]
        if after:
            findings.append(Finding("terminal", f"after the error came {shown(after[0].data)}"))
        if not isinstance(first.data, dict) or not isinstance(first.data.get("error"), dict):
            text = f"the error is not nested, so the official client does not raise: {shown(first.data)}"
            findings.append(Finding("terminal", text))
        findings += broken_inside(answer, first.error, self.error, canaries, first.data)
        if self.done:
            findings += _end(seen, DONE, Contract.VLLM)
        return findings


@dataclass(frozen=True, slots=True)
class Responds:
    """A stream of the Responses API: it completes, or its last event is `response.failed` with a code and a message."""

    success: bool = True

    def describe(self) -> str:
        return "a stream that ends in response.completed, or in response.failed with error {code, message}"

    def judge(self, answer: Answer, canaries: Canaries, contract: Contract) -> Judgement:
        if answer.status != 200:
            return Expect(frozenset({200}), unserved=frozenset({404, 501, 503})).judge(answer, canaries, contract)
        seen = [event for event in events(answer) if not event.is_done]
        last = seen[-1].data if seen else None
        kind = last.get("type") if isinstance(last, dict) else None
        if kind in ("response.completed", "response.incomplete"):
            return Judgement()
        if kind != "response.failed":
            return Judgement((Finding("terminal", f"the last event is {shown(last)}"),))
        error = seen[-1].error
        findings = []
        if not isinstance(error, dict) or not error.get("code") or not error.get("message"):
            findings.append(Finding("envelope", f"response.error is {shown(error)}"))
        told = Answer(answer.call, answer.seconds, 500, body=json.dumps(error).encode())
        leaks = broken_rules(told, Expect(frozenset({500})), canaries)
        findings += [finding for finding in leaks if finding.rule in ("leak", "echo", "canary", "secret")]
        return Judgement(tuple(findings))
