# SPDX-License-Identifier: Apache-2.0
"""The migrated server, broken in one way by a proxy in front of it: the check meant for that finds it."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from mutating_proxy import Answer, Broken, Message, Mutation, serving

from vllm_omni_errors.probe import CHECKS, Pace, Report, run
from vllm_omni_rig.server import Server

Start = Callable[..., Server]
Change = Callable[[Answer], Answer]

PACE = Pace(requests_per_second=1_000, attempts=2, recovery_s=5)
SLOW_S = 4.0
IMPATIENT = replace(PACE, deadline_s=SLOW_S / 2)
LEAK = "cannot read /opt/models/weights.bin"
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 3, in f'


class On(Mutation):
    """Changes answers with an error; `where` is a path, `method` a method, if it is given."""

    def __init__(self, change: Change, where: str = "", method: str = "", status: int | None = None) -> None:
        self.change = change
        self.where = where
        self.method = method
        self.status = status

    async def answer(self, answer: Answer) -> Answer:
        mine = answer.path.startswith(self.where) and answer.method.startswith(self.method)
        right = answer.failed if self.status is None else answer.status == self.status
        return self.change(answer) if mine and right and answer.path != "/metrics" else answer


def says(**changes: Any) -> Change:
    return lambda answer: answer.with_error(**changes)


def status(code: int, **changes: Any) -> Change:
    return lambda answer: replace(answer.with_error(**{"code": code, **changes}), status=code)


def without(name: str) -> Change:
    return lambda answer: replace(answer, headers={k: v for k, v in answer.headers.items() if k != name})


def break_off(answer: Answer) -> Answer:
    raise Broken


def quotes_the_prompt(answer: Answer) -> Answer:
    return answer.with_error(message=f"cannot draw {json.loads(answer.sent)['prompt'][:40]}")


class Slow(Mutation):
    async def answer(self, answer: Answer) -> Answer:
        if answer.path == "/v1/completions":
            await asyncio.sleep(SLOW_S)
        return answer


class Counts(Mutation):
    """Changes the exposition of the counters."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self.change = change

    async def answer(self, answer: Answer) -> Answer:
        if answer.path != "/metrics":
            return answer
        return replace(answer, body=self.change(answer.body.decode()).encode())


def wrong_class(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(
        line.replace('status="4xx"', 'status="5xx"') if "/v1/images/generations" in line else line for line in lines
    )


def no_clients_errors(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if 'status="4xx"' not in line)


# ---- streams: on the migrated server what fails before the first event is HTTP, so an event is made of that ---------

EVENT = {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "x"}}]}
DONE = "data: [DONE]\n\n"


def data(*events: Any) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def stream(make: Callable[[dict[str, Any]], str], where: str = "/v1/chat") -> Mutation:
    """The error as events of a stream that has begun."""

    def change(answer: Answer) -> Answer:
        headers = {"content-type": "text/event-stream"}
        return replace(answer, status=200, headers=headers, body=make(answer.json).encode())

    return On(change, where)


def cut(answer: Answer) -> Answer:
    return replace(answer, body=answer.body.replace(DONE.encode(), b""))


# ---- sockets --------------------------------------------------------------------------------------------------------


class Errors(Mutation):
    """Changes the error events of sessions."""

    def __init__(self, *change: Callable[[Message], Message | None]) -> None:
        self.changes = change

    async def message(self, path: str, message: Message) -> list[Message]:
        if message.get("type") != "error":
            return [message]
        return [changed for change in self.changes if (changed := change(message)) is not None]


def same(message: Message) -> Message:
    return message


def told(**changes: Any) -> Callable[[Message], Message]:
    def change(message: Message) -> Message:
        error = {**message["error"], **changes}
        return {**message, "error": {key: value for key, value in error.items() if value is not ...}}

    return change


class Closes(Mutation):
    """Closes with this code; without a frame if it is None."""

    def __init__(self, code: int | None) -> None:
        self.code = code

    async def close(self, path: str, code: int, reason: str) -> tuple[int, str]:
        if self.code is None:
            raise Broken
        return self.code, reason


class Accepts(Mutation):
    accepts = True


# ---- jobs -----------------------------------------------------------------------------------------------------------


class Recomputes(Mutation):
    """Derives the error of a job anew each time it is asked for."""

    asked = 0

    async def answer(self, answer: Answer) -> Answer:
        job = answer.json if answer.path.startswith("/v1/videos/") and answer.body.startswith(b"{") else {}
        if not job.get("error") or answer.failed:
            return answer
        self.asked += 1
        error = {**job["error"], "message": f"{job['error']['message']} ({self.asked})"}
        return answer.holding({**job, "error": error})


def in_job(**changes: Any) -> Change:
    def change(answer: Answer) -> Answer:
        job = answer.json
        return answer.holding({**job, "error": {**job["error"], **changes}}) if job.get("error") else answer

    return change


def as_status_of_the_job(answer: Answer) -> Answer:
    return replace(answer, status=500) if answer.json.get("error") else answer


def forgets_errors(answer: Answer) -> Answer:
    body = answer.json
    return answer.holding({**body, "data": [{**job, "error": None} for job in body.get("data", [])]})


class Lists(On):
    async def answer(self, answer: Answer) -> Answer:
        return self.change(answer) if (answer.method, answer.path) == ("GET", "/v1/videos/") else answer


@dataclass(frozen=True)
class Case:
    """A way to break a server, the check that is meant for it, and the rule that it names."""

    title: str
    mutation: Callable[[], Mutation]
    check: str
    rule: str
    server: str = "multi"
    pace: Pace = PACE


IMAGES = "/v1/images/generations"
VIDEOS = "/v1/videos/"

# fmt: off
CASES = (
    Case("wrong status", lambda: On(status(400), IMAGES, status=404), "images.unknown-model", "status"),
    Case("a client's error as a server's", lambda: On(status(500, type="InternalServerError"), "/v1/chat"),
         "chat.no-messages", "status"),
    Case("an internal failure as a client's", lambda: On(status(400, type="BadRequestError"), IMAGES, status=500),
         "fault.stage-value", "status"),
    Case("code is not the status", lambda: On(says(code=400), status=405), "route.method", "code"),
    Case("code is a text", lambda: On(lambda a: a.with_error(code=str(a.status))), "route.method", "envelope"),
    Case("missing field", lambda: On(says(type=...)), "chat.missing-field", "envelope"),
    Case("additional field", lambda: On(says(value=-3)), "chat.temperature", "envelope"),
    Case("another envelope", lambda: On(lambda a: a.holding({"detail": "no"})), "route.unknown", "envelope"),
    Case("empty message", lambda: On(says(message=" ")), "images.n", "envelope"),
    Case("type of another status", lambda: On(says(type="NotFoundError"), status=400), "images.size", "type"),
    Case("type of the guardrail lost", lambda: On(says(type="BadRequestError"), status=400), "fault.guardrail", "type"),
    Case("parameter lost", lambda: On(says(param=None)), "images.size", "param"),
    Case("stage lost", lambda: On(says(error_stage_id=None)), "fault.guardrail", "stage"),
    Case("header of the methods lost", lambda: On(without("allow")), "route.method", "header"),
    Case("header against repetition lost", lambda: On(without("x-should-retry")), "fault.conflict", "retry"),
    Case("header of the request id lost", lambda: On(without("x-request-id")), "images.size", "ids"),
    Case("fields of the ids lost", lambda: On(says(error_stage_id=...)), "images.size", "ids"),
    Case("two request ids", lambda: On(says(request_id="another")), "images.size", "request id"),
    Case("a path in the message", lambda: On(says(message=LEAK)), "chat.missing-field", "leak"),
    Case("a traceback in the message", lambda: On(says(message=TRACEBACK)), "fault.stage-runtime", "leak"),
    Case("the rejected value in the message", lambda: On(says(message="no (parameter=size, value=banana)")),
         "images.size", "echo"),
    Case("the prompt in the message", lambda: On(quotes_the_prompt, IMAGES), "images.size", "canary"),
    Case("a message without end", lambda: On(says(message="no " * 900)), "images.size", "bounded"),
    Case("200 with an error", lambda: On(lambda a: replace(a, status=200), IMAGES), "fault.stage-value",
         "error as success"),
    Case("200 with no image", lambda: On(lambda a: a.holding({"data": []}), IMAGES, status=200), "ok.images",
         "success"),
    Case("counted in another class", lambda: Counts(wrong_class), "images.size", "metric"),
    Case("not counted", lambda: Counts(no_clients_errors), "images.size", "metric"),
    Case("slow answer", Slow, "completions.stalling-name", "answered", pace=IMPATIENT),
    Case("broken off", lambda: On(break_off, IMAGES), "images.n", "answered"),

    Case("200 although nothing was sent", lambda: stream(lambda e: data(e) + DONE), "stream.chat-value",
         "before the stream"),
    Case("two terminal events", lambda: stream(lambda e: data(EVENT, e, e) + DONE), "stream.chat-value", "terminal"),
    Case("a success after the error", lambda: stream(lambda e: data(EVENT, e, EVENT) + DONE), "stream.chat-value",
         "terminal"),
    Case("nothing but the end mark", lambda: stream(lambda e: DONE), "stream.chat-no-image", "terminal"),
    Case("an error that is not nested", lambda: stream(lambda e: data(EVENT, {"object": "error", **e["error"]}) + DONE),
         "stream.chat-value", "terminal"),
    Case("no [DONE] after the error", lambda: stream(lambda e: data(EVENT, e)), "stream.chat-value", "done"),
    Case("no [DONE] after a success", lambda: On(cut, "/v1/chat", status=200), "stream.chat", "done"),
    Case("a path in an event", lambda: stream(lambda e: data(EVENT, {"error": {**e["error"], "message": LEAK}}) + DONE),
         "stream.chat-value", "leak"),
    Case("another status in an event",
         lambda: stream(lambda e: data(EVENT, {"error": {**e["error"], "code": 503}}) + DONE),
         "stream.chat-value", "status"),

    Case("no close frame", lambda: Closes(None), "socket.speech-value", "close"),
    Case("closed as if all were well", lambda: Closes(1000), "socket.speech-value", "close"),
    Case("a success follows the error", lambda: Errors(same, lambda _: {"type": "session.done"}),
         "socket.speech-value", "terminal"),
    Case("an end without an error", lambda: Errors(lambda _: None), "socket.speech-value", "terminal"),
    Case("a mistake ends the session", lambda: Errors(same, lambda _: {"close": 1008}), "socket.speech-type",
         "session"),
    Case("a mistake is not answered", lambda: Errors(lambda m: m if m["error"]["param"] else None),
         "socket.video-chat-frames", "session"),
    Case("an error that is a text", lambda: Errors(lambda m: {"type": "error", "message": m["error"]["message"]}),
         "socket.speech-field", "envelope"),
    Case("the client's event id lost", lambda: Errors(told(event_id=...)), "socket.realtime-event", "session"),
    Case("a path in an event of a session", lambda: Errors(told(message=LEAK)), "socket.speech-field", "leak"),
    Case("accepted to be refused", Accepts, "socket.video", "session"),

    Case("a job's error is derived anew", Recomputes, "job.failed", "job", "video"),
    Case("a failed job as a 5xx", lambda: On(as_status_of_the_job, VIDEOS, "GET", status=200), "job.failed", "status",
         "video"),
    Case("another id in a job", lambda: On(in_job(request_id="another"), VIDEOS, "GET", status=200), "job.failed",
         "job", "video"),
    Case("a path in a job", lambda: On(in_job(message=LEAK), VIDEOS, "GET", status=200), "job.failed", "leak", "video"),
    Case("a list that forgets errors", lambda: Lists(forgets_errors), "job.failed", "job", "video"),
    Case("the content of a failed job is 422", lambda: On(status(422), VIDEOS, status=500), "job.failed", "status",
         "video"),
    Case("the content of a running job is 404", lambda: On(status(404, type="NotFoundError"), VIDEOS, status=409),
         "job.running", "status", "video"),
    Case("a running job that is asked for again and again", lambda: On(without("x-should-retry"), VIDEOS, status=409),
         "job.running", "official client", "video"),
    Case("an unknown job that fails", lambda: On(status(500, type="InternalServerError"), VIDEOS, status=404),
         "job.unknown", "status", "video"),

    Case("the client sees another class", lambda: On(status(409), "/v1/chat", status=404), "client.unknown-model",
         "official client"),
    Case("the client sees no request id", lambda: On(without("x-request-id"), "/v1/chat"), "client.unknown-model",
         "official client"),
    Case("the client raises nothing", lambda: stream(lambda e: data({"detail": "no"}) + DONE), "client.stream",
         "official client"),
)
# fmt: on


def broken(report: Report) -> dict[str, set[str]]:
    """Check → the rules that it found broken."""
    return {check.id: {finding.rule for finding in check.findings} for check in report.checks if check.findings}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_break_is_found_by_the_check_meant_for_it(scripted: Start, case: Case) -> None:
    server = scripted(case.server, "migrated")
    with serving(server.url, case.mutation()) as url:
        report = run(url, pace=case.pace, checks=[check for check in CHECKS if check.id == case.check])
    assert case.rule in broken(report).get(case.check, set()), report.checks


@pytest.mark.parametrize("kind", ["multi", "video"])
def test_the_proxy_itself_breaks_nothing(scripted: Start, kind: str) -> None:
    used = {case.check for case in CASES if case.server == kind}
    with serving(scripted(kind, "migrated").url, Mutation()) as url:
        report = run(url, pace=PACE, checks=[check for check in CHECKS if check.id in used])
    assert broken(report) == {}
    assert [check.id for check in report.checks if check.verdict != "pass"] == []
