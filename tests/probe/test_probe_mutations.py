# SPDX-License-Identifier: Apache-2.0
"""A server broken in one way is found by the check meant for it; one that is not broken gives no finding."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from faithful_server import PNG, Faithful, Problem, serving
from starlette.types import Scope, Send

from vllm_omni_errors.probe import CHECKS, Report
from vllm_omni_errors.probe.rules import ORDER

Probe = Callable[..., Report]


def broken(report: Report) -> dict[str, set[str]]:
    """Check → the rules that it found broken."""
    return {c.id: {f.rule for f in c.findings} for c in report.checks if c.verdict == "fail"}


class WrongStatus(Faithful):
    def status(self, problem: Problem, path: str) -> int:
        return 400 if problem.type == "NotFoundError" and "images" in path else problem.status

    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        answer = super().error(problem, path, request_id, body)
        answer["error"]["code"] = self.status(problem, path)
        answer["error"]["type"] = "BadRequestError" if self.status(problem, path) == 400 else problem.type
        return answer


class InternalAsClient(Faithful):
    def fault(self, word: str) -> Any:
        if word == "FAULT:badoutput":
            raise Problem(400, "BadRequestError", "cannot write the image")
        return super().fault(word)


class ClientAsInternal(Faithful):
    def chat(self, body: dict[str, Any]) -> Any:
        if body.get("messages") == []:
            raise Problem(500, "InternalServerError", "Internal server error")
        return super().chat(body)


class CodeDiffers(Faithful):
    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        answer = super().error(problem, path, request_id, body)
        if problem.status == 405:
            answer["error"]["code"] = 400
        return answer


class CodeIsText(Faithful):
    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        answer = super().error(problem, path, request_id, body)
        if problem.status == 405:
            answer["error"]["code"] = "405"
        return answer


class FieldMissing(Faithful):
    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        answer = super().error(problem, path, request_id, body)
        if problem.param == "temperature":
            del answer["error"]["type"]
        return answer


class FieldAdded(Faithful):
    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        answer = super().error(problem, path, request_id, body)
        if problem.param == "temperature":
            answer["error"]["value"] = -3
        return answer


class StageMissing(Faithful):
    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        answer = super().error(problem, path, request_id, body)
        if problem.param == "temperature":
            del answer["error"]["error_stage_id"]
        return answer


class Flat(Faithful):
    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        return {"detail": problem.message} if "probe-" in path else super().error(problem, path, request_id, body)


class EmptyMessage(Faithful):
    def unprocessable(self) -> Problem:
        return Problem(422, "UnprocessableEntityError", " ", "image")


class WrongType(Faithful):
    def check_length(self, prompt: str) -> None:
        try:
            super().check_length(prompt)
        except Problem as problem:
            problem.type = "InternalServerError"
            raise


class ParamLost(Faithful):
    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        answer = super().error(problem, path, request_id, body)
        if problem.param == "size":
            answer["error"]["param"] = None
        return answer


class AllowLost(Faithful):
    def headers(self, problem: Problem, request_id: str) -> dict[str, str]:
        return {"x-request-id": request_id}


class RequestIdMissing(Faithful):
    def headers(self, problem: Problem, request_id: str) -> dict[str, str]:
        return {} if problem.param == "temperature" else super().headers(problem, request_id)


class RequestIdDiffers(Faithful):
    def headers(self, problem: Problem, request_id: str) -> dict[str, str]:
        return super().headers(problem, "another" if problem.param == "temperature" else request_id)


class Echo(Faithful):
    """Brings the prompt back."""

    def chat(self, body: dict[str, Any]) -> Any:
        try:
            return super().chat(body)
        except Problem as problem:
            if problem.param == "temperature":
                problem.message = f"cannot answer {body['messages'][0]['content'][:60]}"
            raise


class EchoInHeader(Faithful):
    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        self.last = body
        return super().error(problem, path, request_id, body)

    def headers(self, problem: Problem, request_id: str) -> dict[str, str]:
        headers = super().headers(problem, request_id)
        if problem.param == "temperature":
            headers["x-prompt"] = json.loads(self.last)["messages"][0]["content"]
        return headers


class Says(Faithful):
    """Says something in the answer to a negative temperature."""

    text = ""

    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        answer = super().error(problem, path, request_id, body)
        if problem.param == "temperature":
            answer["error"]["message"] = self.text
        return answer


class LeakedPath(Says):
    text = "cannot read /opt/models/weights.bin"


class LeakedTraceback(Says):
    text = 'Traceback (most recent call last):\n  File "x.py", line 3, in f'


class LeakedAddress(Says):
    text = "bad value at 0x7f5ec2e7c0de"


class LeakedRepr(Says):
    text = "cannot identify image file <_io.BytesIO object>"


class LeakedValue(Says):
    text = "temperature must not be negative (parameter=temperature, value=-3)"


class TooLong(Says):
    text = "no " * 900


class EchoesInput(Faithful):
    """Brings back one error per item, as a validation library does."""

    def chat(self, body: dict[str, Any]) -> Any:
        items = body.get("messages") or []
        if items and not isinstance(items[0], dict):
            raise Problem(400, "Bad Request", "; ".join(f"'input': '{item}'" for item in items), "messages")
        return super().chat(body)


class ErrorAsSuccess(Faithful):
    def status(self, problem: Problem, path: str) -> int:
        return 200 if problem.type == "InternalServerError" else problem.status


class NoImagesAsSuccess(Faithful):
    def fault(self, word: str) -> Any:
        return {"data": []} if word == "FAULT:output=none" else super().fault(word)


class SuccessWithoutImage(Faithful):
    def images(self, body: dict[str, Any]) -> Any:
        return {"data": [{"b64_json": ""}]}


class MetricOff(Faithful):
    def counted(self, path: str, status: int) -> str | None:
        return "5xx" if path == "/tokenize" and status == 400 else super().counted(path, status)


class MetricLost(Faithful):
    def counted(self, path: str, status: int) -> str | None:
        return None if path == "/tokenize" and status == 400 else super().counted(path, status)


class MetricOffForSuccess(Faithful):
    def counted(self, path: str, status: int) -> str | None:
        return "5xx" if path == "/v1/images/edits" and status == 200 else super().counted(path, status)


class StageUnknown(Faithful):
    def fault(self, word: str) -> Any:
        if word == "FAULT:oom":
            raise Problem(500, "InternalServerError", "Internal server error")
        return super().fault(word)


class OtherSentence(Faithful):
    async def fetch(self, url: str) -> None:
        try:
            await super().fetch(url)
        except Problem as problem:
            if problem.status == 500:
                problem.message = "Internal server error"
            raise


class MixedUp(Faithful):
    """Answers with the id that the request before it had."""

    last = "first"

    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        return super().error(problem, path, self.last, body)

    def headers(self, problem: Problem, request_id: str) -> dict[str, str]:
        return super().headers(problem, self.last)


class NamesAnother(Faithful):
    """Names the unknown model that the request before it asked for."""

    last = "none"

    def generate(self, path: str, body: dict[str, Any]) -> Any:
        try:
            return super().generate(path, body)
        except Problem as problem:
            if problem.status == 404:
                problem.message = f"The model `{self.last}` does not exist."
                self.last = str(body.get("model"))
            raise


class Slow(Faithful):
    """Needs long for a long model name."""

    def generate(self, path: str, body: dict[str, Any]) -> Any:
        if len(str(body.get("model"))) > 1_000:
            import time

            time.sleep(6)
        return super().generate(path, body)


class Drops(Faithful):
    """Ends the connection in the middle of an answer to a DELETE."""

    async def before(self, scope: Scope, send: Send) -> bool:
        if scope["method"] != "DELETE":
            return False
        await send({"type": "http.response.start", "status": 405, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"{"})
        return True


class Hangs(Faithful):
    """Answers nothing any more after a seed that is too large."""

    hung = False

    async def before(self, scope: Scope, send: Send) -> bool:
        if self.hung:
            await asyncio.sleep(30)
        return False

    def generate(self, path: str, body: dict[str, Any]) -> Any:
        self.hung = self.hung or body.get("seed", 0) >= 2**63
        return super().generate(path, body)


class Dies(Faithful):
    """Takes no connection any more after a seed that is too large."""

    def generate(self, path: str, body: dict[str, Any]) -> Any:
        if body.get("seed", 0) >= 2**63:
            assert self.server is not None
            for listener in self.server.servers:
                listener.close()
        return super().generate(path, body)


class EngineDies(Faithful):
    """Answers, but generates nothing any more after a seed that is too large."""

    dead = False

    def generate(self, path: str, body: dict[str, Any]) -> Any:
        if self.dead:
            raise Problem(500, "InternalServerError", "The engine is dead.")
        self.dead = body.get("seed", 0) >= 2**63
        return super().generate(path, body)


MUTATIONS = [
    (WrongStatus, "images.unknown-model", "status"),
    (InternalAsClient, "fault.bad-output", "status"),
    (ClientAsInternal, "chat.no-messages", "status"),
    (CodeDiffers, "route.method", "code"),
    (CodeIsText, "route.method", "code"),
    (FieldMissing, "chat.temperature", "envelope"),
    (FieldAdded, "chat.temperature", "envelope"),
    (StageMissing, "chat.temperature", "ids"),
    (Flat, "route.unknown", "envelope"),
    (EmptyMessage, "edits.undecodable", "envelope"),
    (WrongType, "images.long-prompt", "type"),
    (ParamLost, "images.size", "param"),
    (AllowLost, "route.method", "header"),
    (RequestIdMissing, "chat.temperature", "ids"),
    (RequestIdDiffers, "chat.temperature", "request id"),
    (Echo, "chat.temperature", "canary"),
    (EchoInHeader, "chat.temperature", "canary"),
    (LeakedPath, "chat.temperature", "leak"),
    (LeakedTraceback, "chat.temperature", "leak"),
    (LeakedAddress, "chat.temperature", "leak"),
    (LeakedRepr, "chat.temperature", "leak"),
    (LeakedValue, "chat.temperature", "echo"),
    (TooLong, "chat.temperature", "bounded"),
    (EchoesInput, "chat.wrong-items", "bounded"),
    (ErrorAsSuccess, "fault.stage-value", "error as success"),
    (NoImagesAsSuccess, "fault.no-images", "status"),
    (SuccessWithoutImage, "ok.images", "success"),
    (MetricOff, "tokenize.chat-template", "metric"),
    (MetricLost, "tokenize.chat-template", "metric"),
    (MetricOffForSuccess, "ok.edits", "metric"),
    (StageUnknown, "fault.out-of-memory", "stage"),
    (OtherSentence, "edits.url-503", "message"),
    (MixedUp, "server.concurrent", "own answer"),
    (NamesAnother, "server.concurrent", "own answer"),
    (Slow, "completions.stalling-name", "answered"),
    (Drops, "route.method", "answered"),
    (EngineDies, "images.seed", "alive"),
]


def test_every_rule_has_a_server_that_breaks_it() -> None:
    """Those of other transports than HTTP are broken on the real server, in tests/rig."""
    others = {"before the stream", "terminal", "done", "session", "close", "official client", "job", "secret", "retry"}
    assert {rule for _, _, rule in MUTATIONS} == set(ORDER) - others


def test_a_server_that_keeps_the_contract_has_no_finding(probe: Probe) -> None:
    with serving(Faithful()) as url:
        report = probe(url)
    assert broken(report) == {}
    skipped = {check.why for check in report.checks if check.verdict == "skip"}
    assert {why.partition(" /v1/")[0] for why in skipped} == {
        "the server has no POST",
        "the server has no GET",
        "the server has no DELETE",
        "there is no such session here: 403",
        "it ends a part of the server; --destructive runs it",
        "this server of the rig has no fault there",
    }


@pytest.mark.parametrize(("mutant", "check", "rule"), MUTATIONS, ids=lambda value: getattr(value, "__name__", None))
def test_a_broken_server_is_found_by_the_check_meant_for_it(
    probe: Probe, mutant: type[Faithful], check: str, rule: str
) -> None:
    with serving(mutant()) as url:
        report = probe(url, checks=[item for item in CHECKS if item.id == check])
    assert rule in broken(report).get(check, set())


@pytest.mark.parametrize(
    ("mutant", "checks"),
    [
        (LeakedPath, {"chat.temperature"}),
        (AllowLost, {"route.method"}),
        (StageUnknown, {"fault.out-of-memory"}),
        (SuccessWithoutImage, {"ok.images", "ok.edits", "server.concurrent"}),
        (OtherSentence, {"edits.url-503", "edits.url-refused"}),
    ],
)
def test_a_break_in_one_place_is_found_there_alone(probe: Probe, mutant: type[Faithful], checks: set[str]) -> None:
    with serving(mutant()) as url:
        report = probe(url, checks=[check for check in CHECKS if check.transport == "http"])
    assert broken(report).keys() == checks


@pytest.mark.parametrize("mutant", [Hangs, Dies, EngineDies])
def test_after_a_death_the_report_is_whole_and_says_why_the_rest_was_not_run(
    probe: Probe, mutant: type[Faithful]
) -> None:
    dangerous = [check for check in CHECKS if check.id.endswith((".seed", "stop-token-ids"))]
    with serving(mutant()) as url:
        report = probe(url, checks=dangerous)
    rest = [check for check in report.checks if check.why.startswith("not run: since 'images.seed' the server")]
    assert {check.id for check in rest} == {"chat.seed", "edits.seed", "chat.stop-token-ids"}
    assert {check.verdict for check in rest} == {"skip"}
    assert "alive" in broken(report)["images.seed"]
    assert PNG not in json.dumps([check.why for check in rest])
