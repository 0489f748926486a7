# SPDX-License-Identifier: Apache-2.0
"""Running the catalogue against one server. A server that dies or hangs is a finding; the report is always whole."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from vllm_omni_errors.probe.answer import SWITCHED, Answer, Asked, Conversation
from vllm_omni_errors.probe.call import Call, Talk
from vllm_omni_errors.probe.canaries import Canaries
from vllm_omni_errors.probe.check import Check, Danger, Step
from vllm_omni_errors.probe.checks import CHECKS
from vllm_omni_errors.probe.checks import faults as fault_checks
from vllm_omni_errors.probe.checks import last as last_checks
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.client import Client
from vllm_omni_errors.probe.context import RIG_MODEL, Context, Pace, discover
from vllm_omni_errors.probe.contract import TITLES, Contract
from vllm_omni_errors.probe.counters import Measurement, Outcome
from vllm_omni_errors.probe.media import MediaServer
from vllm_omni_errors.probe.record import Evidence, Finding, Report, Result, Verdict
from vllm_omni_errors.probe.rules import ORDER, Judgement, error_object, is_error, is_ordinary

# Routes that vLLM does not count, and statuses that middlewares outside the counting one answer (contract, section 4).
UNCOUNTED_PATHS = frozenset({"/health", "/metrics", "/load", "/ping", "/version", "/server_info"})
UNCOUNTED_STATUSES = frozenset({401, 503})
EVIDENCE_PER_CHECK = 24
WHY_CHARACTERS = 400


class Progress(Protocol):
    """Called before each check (`result` is `None`) and after it."""

    def __call__(self, done: int, total: int, check: Check, result: Result | None) -> None: ...


@dataclass(frozen=True, slots=True)
class _Observed:
    step: Step
    answer: Answer
    counted: Measurement | None


def run(
    url: str,
    *,
    model: str | None = None,
    headers: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    pace: Pace | None = None,
    checks: Sequence[Check] = CHECKS,
    contract: Contract | None = None,
    read_only: bool = False,
    destructive: bool = False,
) -> Report:
    """Probe the server at `url` and return what was found.

    `model` is needed only where the server lists none. `headers` go with every request and are never shown. The server
    is held to `contract`, by default to what it seems to be. `read_only`: nothing is sent that creates something on the
    server, or that may stop a faulty one. `destructive`: what ends a part of the server, on the rig alone, is sent too.
    Raises `ProbeError` when the probe cannot run: nothing answers HTTP there, or no model is known.
    """
    return asyncio.run(
        probe(
            url, model=model, headers=headers, progress=progress, pace=pace or Pace(), checks=checks,
            contract=contract, read_only=read_only, destructive=destructive,
        )
    )  # fmt: skip


async def probe(
    url: str,
    *,
    model: str | None,
    headers: Mapping[str, str] | None,
    progress: Progress | None,
    pace: Pace,
    checks: Sequence[Check],
    contract: Contract | None,
    read_only: bool,
    destructive: bool,
) -> Report:
    """`run`, inside an event loop."""
    started, began = datetime.now(UTC), time.monotonic()
    async with Client(url, headers or {}, pace.requests_per_second) as client, MediaServer() as media:
        canaries = Canaries(secrets=client.secrets)
        context = Context(client, canaries, media, pace, read_only=read_only, destructive=destructive)
        await discover(context, model, contract)
        context.canaries = replace(canaries, model=context.model)
        context.rig_missing = await _why_no_rig(context)
        if context.rig_missing is None:
            await _find_places(context)
        context.notes.insert(0, f"Held to what {TITLES[context.contract.word]} promises.")
        results = await _run_checks(context, checks, progress)
    return Report(
        url=client.root,
        model=context.model,
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 1),
        probe_version=_own_version(),
        server=context.server,
        notes=tuple(context.notes),
        checks=tuple(results),
        contract=context.contract.word,
    )


def _own_version() -> str:
    try:
        return version("vllm-omni-errors")
    except PackageNotFoundError:
        return "unknown"


async def _why_no_rig(context: Context) -> str | None:
    if context.model != RIG_MODEL:
        return "faults on demand exist on the rig only"
    if missing := context.missing_route("POST", make.IMAGES):
        return missing
    plain = await context.client.send(make.images(context), context.pace.generation_s)
    faulty = await context.client.send(
        fault_checks.faulty(context, fault_checks.CONFIRMING_WORD), context.pace.generation_s
    )
    if not is_ordinary(plain):
        return f"an ordinary request for an image fails: {plain.problem or plain.status}"
    if not is_ordinary(faulty):
        return None
    return f"the model is called {RIG_MODEL!r}, but fault words in a prompt have no effect"


async def _find_places(context: Context) -> None:
    """Where this server of the rig can have faults: a word for a place that it has not is refused."""

    async def answer(word: str) -> Answer:
        return await context.client.send(fault_checks.faulty(context, word), context.pace.generation_s)

    context.faults_in_front = is_ordinary(await answer("FAULT:sleep=0@front"))
    context.scripted = (await answer("FAULT:error=404.NotFoundError@message")).status == 404


async def _run_checks(context: Context, checks: Sequence[Check], progress: Progress | None) -> list[Result]:
    results: list[Result] = []
    down: str | None = None
    for number, check in enumerate(checks):
        if progress:
            progress(number, len(checks), check, None)
        if down:
            result = _result(check, "skip", down)
        else:
            result = await _run_check(context, check)
            is_last = number == len(checks) - 1
            result, down = await _aftercare(context, check, result, is_last)
        results.append(result)
        if progress:
            progress(number + 1, len(checks), check, result)
    return results


def _result(check: Check, verdict: Verdict, why: str) -> Result:
    return Result(check.id, check.transport, check.name, check.rule, check.source, verdict, why)


async def _run_check(context: Context, check: Check) -> Result:
    began = time.monotonic()
    for need in check.needs:
        if reason := need(context):
            return _result(check, "skip", reason)
    if reason := _withheld(context, check):
        return _result(check, "skip", reason)
    # A check that may hurt is not repeated to measure it better.
    attempts = context.pace.attempts if check.danger is Danger.HARMLESS else 1
    evidence: list[Evidence] = []
    skips: list[str] = []
    seen: dict[str, None] = {}
    async for observed in _observations(context, check, attempts):
        for item in observed:
            shown, judgement = _judge(context, item)
            evidence.append(shown)
            seen[_seen(item.answer)] = None
            if judgement.skip:
                skips.append(judgement.skip)
            if judgement.unserved:
                context.unserved[item.step.call.path] = judgement.skip or "there is no such session here"
        if check.together:
            evidence[-1] = _with(evidence[-1], _mixed_up(observed))
    everything = _ordered(dict.fromkeys(finding for item in evidence for finding in item.findings))
    findings = tuple(finding for finding in everything if Contract[finding.contract.upper()] <= context.contract)
    beyond = tuple(finding for finding in everything if finding not in findings)
    if findings:
        verdict: Verdict = "fail"
        # What only the contract's own servers can have is worth a word only where nothing else is wrong.
        telling = [finding for finding in findings if finding.rule != "ids"] or findings
        why = "; ".join(finding.text for finding in telling)
    elif skips:
        verdict, why = "skip", skips[0]
    else:
        verdict, why = "pass", ", ".join(seen)
    return replace(
        _result(check, verdict, why if len(why) <= WHY_CHARACTERS else why[:WHY_CHARACTERS] + "…"),
        seconds=round(time.monotonic() - began, 2),
        findings=findings,
        beyond=beyond,
        evidence=tuple(evidence[:EVIDENCE_PER_CHECK]),
    )


def _withheld(context: Context, check: Check) -> str | None:
    """Why a check is not run although the server has what it needs."""
    if context.read_only and check.creates:
        return "--read-only: it would create something on the server"
    if context.read_only and check.danger is not Danger.HARMLESS:
        return "--read-only: it may stop a faulty server"
    if check.danger is Danger.KILLS and not context.destructive:
        return "it ends a part of the server; --destructive runs it"
    return None


async def _observations(context: Context, check: Check, attempts: int) -> AsyncIterator[list[_Observed]]:
    """What came of each step, or of all at once when they are sent together."""
    steps = check.steps(context)
    if check.together:
        yield await _observe(context, list(steps), attempts)
    elif isinstance(steps, Generator):
        with contextlib.suppress(StopIteration):
            step = next(steps)
            while True:
                observed = await _observe(context, [step], attempts)
                yield observed
                step = steps.send(observed[0].answer)
    else:
        for step in steps:
            yield await _observe(context, [step], attempts)


async def _observe(context: Context, steps: Sequence[Step], attempts: int) -> list[_Observed]:
    """Send `steps` at once and measure what was counted; measure again while the counter seems wrong.

    The answers are those of the first attempt. A counter is wrong only when every attempt says so.
    """
    counters = context.counters if all(_is_counted(step) for step in steps) else None
    # What creates something is sent once; a step after it can be measured only once, too.
    attempts = attempts if all(step.call.method != "DELETE" and not step.once for step in steps) else 1
    first: list[Answer] | None = None
    measurement: Measurement | None = None
    for _ in range(attempts):
        before = await counters.read() if counters else None
        answers = list(await asyncio.gather(*(_send(context, step) for step in steps)))
        first = first or answers
        if counters is None:
            break
        measurement = await counters.measure(before, answers)
        if measurement.outcome not in (Outcome.WRONG, Outcome.UNCOUNTED):
            break
    return [_Observed(step, answer, measurement) for step, answer in zip(steps, first or [], strict=True)]


def _is_counted(step: Step) -> bool:
    told = step.until is None and not step.call.official and not isinstance(step.call, Talk)
    return told and step.call.path not in UNCOUNTED_PATHS


async def _send(context: Context, step: Step) -> Answer:
    generates = step.generates or step.expect.success
    deadline_s = context.pace.generation_s if generates else context.pace.deadline_s
    give_up = time.monotonic() + deadline_s
    while True:
        answer = await context.client.send(step.call, deadline_s)
        if step.until is None or step.until(answer) or time.monotonic() > give_up:
            return answer
        await asyncio.sleep(context.pace.poll_s)


def _judge(context: Context, item: _Observed) -> tuple[Evidence, Judgement]:
    """The evidence of one exchange with its findings, and what was made of it."""
    judgement = item.step.expect.judge(item.answer, context.canaries, context.contract)
    findings = judgement.findings
    if item.counted and (wrong := _miscounted(item.counted, item.answer)):
        findings = (*findings, Finding("metric", wrong, Contract.VLLM.word))
    counted = item.counted.text if item.counted else None
    shown = context.client.evidence(item.answer, item.step.expect.describe(), counted, _ordered(findings))
    return shown, judgement


def _miscounted(counted: Measurement, answer: Answer) -> str | None:
    if counted.outcome is Outcome.WRONG:
        return counted.text
    exempt = answer.status in UNCOUNTED_STATUSES
    return counted.text if counted.outcome is Outcome.UNCOUNTED and not exempt else None


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: ORDER.index(finding.rule)))


def _mixed_up(observed: Sequence[_Observed]) -> tuple[Finding, ...]:
    """Answers that went to the wrong request: one id for two, or a text that names what another request asked for."""
    answers = [item.answer for item in observed if item.answer.status is not None]
    ids = [answer.headers["x-request-id"] for answer in answers if answer.headers.get("x-request-id")]
    findings = []
    if len(ids) != len(set(ids)):
        findings.append(Finding("own answer", "two answers have the same x-request-id"))
    for answer in answers:
        asked = answer.call.json.get("model") if isinstance(answer.call.json, dict) else None
        named = set(re.findall(last_checks.UNKNOWN_MODEL_PATTERN, answer.text)) if is_error(answer) else set()
        if named - {asked}:
            text = f"the answer about the model {asked} names {', '.join(sorted(named - {asked}))}"
            findings.append(Finding("own answer", text))
            break
    return tuple(findings)


def _with(evidence: Evidence, findings: tuple[Finding, ...]) -> Evidence:
    return replace(evidence, findings=(*evidence.findings, *findings))


def _seen(answer: Answer) -> str:
    """Such as `400 BadRequestError, param 'size'`."""
    if isinstance(answer, Conversation) and answer.errors:
        told = [f"{_get(event, 'code')} {_get(event, 'type')}" for event in answer.errors]
        return ", ".join(dict.fromkeys(told)) + ("" if answer.code is None else f", closed with {answer.code}")
    if isinstance(answer, Conversation) and answer.status == SWITCHED:
        return "a session"
    if isinstance(answer, Asked) and answer.raised:
        return f"{answer.raised}, param {answer.seen['param']!r}" if answer.seen.get("param") else answer.raised
    error = error_object(answer)
    words = " ".join(str(word) for word in (answer.status, error.get("type")) if word is not None)
    return f"{words}, param {error['param']!r}" if error.get("param") else words


def _get(event: Mapping[str, object], key: str) -> object:
    error = event.get("error")
    return error.get(key) if isinstance(error, Mapping) else None


async def _aftercare(context: Context, check: Check, result: Result, is_last: bool) -> tuple[Result, str | None]:
    """Whether the server is still there after `check`; if not, `result` fails, and why nothing can follow."""
    if result.verdict == "skip":
        return result, None
    unanswered = any(item.response is None for item in result.evidence)
    if is_last and (unanswered or check.danger is Danger.KILLS):
        return result, None
    trouble = await _wait_until_alive(context)
    if trouble is None and check.danger is Danger.MAY_KILL:
        trouble = await _cannot_serve(context)
    if trouble is None:
        return result, None
    finding = Finding("alive", f"after this, the server {trouble}")
    result = replace(
        result,
        verdict="fail",
        why=f"{result.why}; {finding.text}" if result.verdict == "fail" else finding.text,
        findings=_ordered((*result.findings, finding)),
    )
    if trouble.startswith("was gone for"):
        return result, None
    return result, f"not run: since {check.id!r} the server {trouble}"


async def _wait_until_alive(context: Context) -> str | None:
    """`None` when the server answers at once; else what is wrong, or for how long it was gone."""
    path = make.HEALTH if ("GET", make.HEALTH) in context.routes else make.MODELS
    began = time.monotonic()
    refused = 0
    while True:
        answer = await context.client.send(Call("GET", path), context.pace.ready_s)
        gone_s = time.monotonic() - began
        if answer.status is not None:
            if answer.status >= 500:
                return f"says that it is not well: {path} answers {answer.status}"
            return f"was gone for {gone_s:.0f} s" if gone_s >= context.pace.ready_s else None
        refused = refused + 1 if answer.failure == "refused" else 0
        if refused >= 3:
            return "is dead: it takes no connection"
        if gone_s >= context.pace.recovery_s:
            return f"hangs: {path} gives no answer for {gone_s:.0f} s"
        await asyncio.sleep(context.pace.recovery_pause_s)


async def _cannot_serve(context: Context) -> str | None:
    """What is wrong with an ordinary request, after one that may have killed an engine; `None` when it is answered."""
    calls = {make.IMAGES: make.images, make.CHAT: make.chat, make.COMPLETIONS: make.completion}
    for path, call in calls.items():
        if context.missing_route("POST", path) is None:
            answer = await context.client.send(call(context), context.pace.generation_s)
            if answer.status is None or answer.status >= 500:
                return f"fails an ordinary request to {path}: {answer.problem or answer.status}"
            return None
    return None
