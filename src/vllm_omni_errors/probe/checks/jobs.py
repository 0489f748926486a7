# SPDX-License-Identifier: Apache-2.0
"""Video jobs: a failed one keeps its error, whoever asks for it and however often."""

import json
from collections.abc import Generator
from typing import Any

from vllm_omni_errors.probe.answer import Answer
from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.check import Check, Step, rig, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.checks.faults import NO_EFFECT
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.jobs import Failed, Listed
from vllm_omni_errors.probe.official import Raises
from vllm_omni_errors.probe.rules import Expect, refused, success

SOURCE = "RFC, open question 4; contract, section 6"
NEEDS = (route("POST", make.VIDEOS), route("GET", make.VIDEO), route("GET", make.VIDEO_CONTENT), rig)
INTERNAL = refused(500, types=("InternalServerError",), accepted=NO_EFFECT, unserved=(503,))
GUARDRAIL = refused(400, types=("GuardrailViolationError",), accepted=NO_EFFECT, unserved=(503,))
NOT_STARTED = (400, 404, 422, 500, 501, 503)
RUNNING = ("queued", "in_progress")

Script = Generator[Step, Answer, None]


def _is_job(answer: Answer) -> str | None:
    return None if _id(answer) else "a job with an id was expected"


def _id(answer: Answer) -> str:
    body = answer.json()
    return str(body.get("id") or body.get("session_id") or "") if isinstance(body, dict) else ""


def _over(answer: Answer) -> bool:
    body = answer.json()
    return not isinstance(body, dict) or body.get("status") not in RUNNING


def _create(context: Context, word: str) -> Step:
    call = make.video(context, f"{context.canaries.prompt} {word}")
    return Step(call, success(_is_job, unserved=NOT_STARTED), once=True)


def _fails(context: Context, word: str, expect: Expect) -> Script:
    identity = _id((yield _create(context, word)))
    if not identity:
        return
    get = make.at("GET", make.VIDEO, identity)
    first = yield Step(get, Failed(expect, identity), until=_over)
    other = _id((yield _create(context, word)))
    if other:
        yield Step(make.at("GET", make.VIDEO, other), Failed(expect, other), until=_over)
    stored = _error(first)
    if isinstance(stored, dict) and stored.get("code") in expect.unserved:
        return
    yield Step(get, Failed(expect, identity, stored))
    if ("GET", make.VIDEOS) in context.routes:
        yield Step(make.at("GET", make.VIDEOS, ""), Listed(identity, stored))
    content = make.at("GET", make.VIDEO_CONTENT, identity)
    yield Step(content, expect)
    yield Step(make.official(content), Raises(expect, once=True))
    for each in filter(None, (identity, other)):
        yield Step(make.at("DELETE", make.VIDEO, each), success(make.any_answer))
    yield Step(get, refused(404, types=("NotFoundError",)))


def _error(answer: Answer) -> Any:
    body = answer.json()
    return json.loads(json.dumps(body.get("error"))) if isinstance(body, dict) else None


def _runs(context: Context) -> Script:
    identity = _id((yield _create(context, "FAULT:sleep=3")))
    if not identity:
        return
    content = make.at("GET", make.VIDEO_CONTENT, identity)
    conflict = refused(409, types=("ConflictError",), unserved=(503,))
    if (yield Step(content, conflict, once=True)).status in conflict.unserved:
        return
    yield Step(make.official(content), Raises(conflict, once=True))
    yield Step(make.at("GET", make.VIDEO, identity), success(_is_job), until=_over)
    yield Step(make.at("DELETE", make.VIDEO, identity), success(make.any_answer))


def _rollout(context: Context) -> Script:
    opened = Step(
        Call("POST", make.SESSIONS, json={"model": context.model}), success(_is_job, unserved=NOT_STARTED), once=True
    )
    identity = _id((yield opened))
    if not identity:
        return
    observation = {"prompt": f"{context.canaries.prompt} FAULT:value", "extra": {}}
    body = {"step_id": 0, "observation": observation, "action": {}}
    yield Step(make.at("POST", make.SESSION_STEP, identity, json=body), INTERNAL, generates=True, once=True)
    yield Step(make.at("POST", make.SESSION_CLOSE, identity), success(make.any_answer), once=True)


CHECKS = (
    Check(
        id="job.failed",
        name="a job that fails in a stage",
        rule="A failed job stores its error once: HTTP 200 with the error inside, and its own status for its content.",
        source=f"{SOURCE}; cases J01 and J05",
        needs=NEEDS,
        steps=lambda c: _fails(c, "FAULT:value", INTERNAL),
        transport="job",
        creates=True,
    ),
    Check(
        id="job.rejected",
        name="a job that a guardrail rejects",
        rule="What a job failed with keeps its category, type and status.",
        source=SOURCE,
        needs=NEEDS,
        steps=lambda c: _fails(c, "FAULT:guard", GUARDRAIL),
        transport="job",
        creates=True,
    ),
    Check(
        id="rollout.step",
        name="ValueError in a stage, step of a rollout",
        rule="A step that fails has the status that its error says, never 200.",
        source="RFC, Motivation 1; contract, section 4",
        needs=(route("POST", make.SESSIONS), route("POST", make.SESSION_STEP), rig),
        steps=_rollout,
        transport="job",
        creates=True,
    ),
    Check(
        id="job.running",
        name="content of a job that runs",
        rule="What a running job has not made yet is a conflict, 409, which no client repeats by itself.",
        source=f"{SOURCE}; case M35",
        needs=NEEDS,
        steps=_runs,
        transport="job",
        creates=True,
    ),
)
