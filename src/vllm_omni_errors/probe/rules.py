# SPDX-License-Identifier: Apache-2.0
"""The rules that every answer is held to, whatever the check (contract, sections 1 to 4).

`Expect` says what is particular to a check; its `judge` gives one `Finding` per broken rule, each with the least
contract that has the rule. The rules for streams, sockets, jobs and the official client apply these to the error
objects that they find.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Protocol

from vllm_omni_errors.probe.answer import Answer
from vllm_omni_errors.probe.canaries import Canaries
from vllm_omni_errors.probe.contract import Contract
from vllm_omni_errors.probe.record import Finding

MESSAGE_CHARACTERS = 2_000
ERROR_BODY_BYTES = 32 * 1024
SHOWN_CHARACTERS = 160

# Fields that the contract adds to vLLM's; servers that never heard of it lack them everywhere.
IDS = ("request_id", "error_stage_id")
ENVELOPE: Mapping[str, tuple[type, ...]] = {
    "message": (str,),
    "type": (str,),
    "param": (str, type(None)),
    "code": (int,),
    "request_id": (str, type(None)),
    "error_stage_id": (int, type(None)),
}

# Contract, section 1: the catalogue's type for each status. The HTTP phrase is upstream's for its own HTTPExceptions.
TYPES: Mapping[int, frozenset[str]] = {
    400: frozenset({"BadRequestError", "GuardrailViolationError"}),
    404: frozenset({"NotFoundError"}),
    409: frozenset({"ConflictError"}),
    422: frozenset({"UnprocessableEntityError", "Unprocessable Entity", "Unprocessable Content"}),
    500: frozenset({"InternalServerError"}),
    501: frozenset({"NotImplementedError"}),
    503: frozenset({"ServiceUnavailableError"}),
    504: frozenset({"GatewayTimeoutError"}),
}
CATALOGUE_TYPES = frozenset().union(*TYPES.values())
PHRASES: Mapping[str, int] = {status.phrase: int(status) for status in HTTPStatus}

# What no error text may hold, planted by us or not (contract, section 3): first what is a weakness on any server.
LEAKS: Mapping[str, re.Pattern[str]] = {
    "a traceback": re.compile(r'Traceback \(most recent call last\)|File \\?"[^"\n]{1,300}", line \d+'),
    "a file path": re.compile(
        r"(?<![\w/.:-])/(?:root|home|usr|opt|tmp|var|srv|mnt|workspace|etc|proc|Users|nix|app)/[^\s\"'\\,)]+|\b[A-Za-z]:\\\\?\w+\\|"
        r"site-packages|\b\w+/\w+\.py\b"
    ),
    "a memory address": re.compile(r"\b0x[0-9a-fA-F]{6,}\b"),
    "the repr of an object": re.compile(r"<[\w.]+ object|<class '|<function |<bound method "),
    "credentials of a URL": re.compile(r"://[^/\s\"'@]+:[^/\s\"'@]+@"),
    "a key": re.compile(r"-----BEGIN |\bsk-[A-Za-z0-9]{16,}|\bBearer [\w.-]{16,}"),
}

ECHOES: Mapping[str, re.Pattern[str]] = {
    "a rejected value": re.compile(r"\b(?:input_)?value=|\(parameter="),
    "the input of a validation error": re.compile(r"""['"](?:input|ctx)\\?['"]: """),
    "a data URI": re.compile(r"\bdata:[\w.+-]+/[\w.+-]+[;,]"),
    "a long run of base64 or hex": re.compile(r"[A-Za-z0-9+/_-]{150,}"),
    "a tensor or an array": re.compile(r"\btensor\(|\barray\(\["),
    "a link into a library's documentation": re.compile(r"errors\.pydantic\.dev"),
}

# What says `x-should-retry: false` (contract, section 1).
NEVER_RETRIED = frozenset({(409, "ConflictError"), (501, "NotImplementedError"), (504, "GatewayTimeoutError")})

# Of an ordinary request: nothing else about the route can be judged then.
UNSERVED_STATUSES = frozenset({404, 501, 503})

Shape = Callable[[Answer], str | None]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an answer broke; `skip` says why the check does not apply, `unserved` that its route never will."""

    findings: tuple[Finding, ...] = ()
    skip: str | None = None
    unserved: bool = False


class Expectation(Protocol):
    """What is right for one exchange, on whatever transport."""

    @property
    def success(self) -> bool:
        """Whether an ordinary answer, which may take as long as a generation, is right."""
        ...

    def describe(self) -> str:
        """One line: what would have been right."""
        ...

    def judge(self, answer: Answer, canaries: Canaries, contract: Contract) -> Judgement:
        """What `answer` broke, of a server with that contract."""
        ...


@dataclass(frozen=True, slots=True)
class Expect:
    """What is right for one request.

    `statuses`: all that are right. `types`: empty means any that suits the status. `param`: `None` not judged, `""` any
    that is not empty, else that field, alone or at the end of a path. `stage`: `error_stage_id` must be known.
    `message`: the exact text. `header`: must be there and hold the text. `shape` says what is wrong with a success, or
    `None`. `accepted`: why an ordinary success is no finding but means that the check does not apply. `unserved`:
    statuses which mean that the server does not do this at all.
    """

    statuses: frozenset[int]
    types: frozenset[str] = frozenset()
    param: str | None = None
    stage: bool = False
    message: str | None = None
    header: tuple[str, str] | None = None
    shape: Shape | None = None
    accepted: str | None = None
    lenient: bool = True
    unserved: frozenset[int] = field(default=frozenset())
    absent: frozenset[int] = UNSERVED_STATUSES
    beyond: frozenset[str] = field(default=frozenset())

    @property
    def success(self) -> bool:
        return max(self.statuses) < 400

    def describe(self) -> str:
        """One line: what would have been right."""
        words = " or ".join(str(status) for status in sorted(self.statuses))
        if self.types:
            words += " " + " or ".join(sorted(self.types))
        if self.param is not None:
            words += f", param {self.param!r}" if self.param else ", with a param"
        if self.stage:
            words += ", with the stage"
        if self.message:
            words += f", message {self.message!r}"
        if self.header:
            words += f", header {self.header[0]} with {self.header[1]}"
        return words

    def judge(self, answer: Answer, canaries: Canaries, contract: Contract) -> Judgement:
        """All rules that `answer` breaks, the plainest first; nothing when it is right."""
        findings = broken_rules(answer, self, canaries)
        if answer.status is None or answer.status in self.statuses:
            return Judgement(findings)
        accepted = self.accepted or (ACCEPTED if self.lenient and contract is Contract.OPENAI else None)
        if accepted and is_ordinary(answer):
            return Judgement(skip=accepted)
        if answer.status in self.unserved or (self.success and contract is not Contract.OMNI):
            message = error_object(answer).get("message", answer.text[:SHOWN_CHARACTERS])
            certain = answer.status in self.absent or contract is not Contract.OMNI
            words = "not served here" if certain else "may not be served here"
            kept = tuple(finding for finding in findings if finding.rule != "status")
            return Judgement(kept, f"{words}: {answer.status} {message!r}", certain and self.success)
        return Judgement(findings)


ACCEPTED = "this server takes it, and promised nothing about it"


def success(shape: Shape, *, unserved: tuple[int, ...] = (), absent: frozenset[int] = UNSERVED_STATUSES) -> Expect:
    """An ordinary answer of the given shape; see `Expect` for what else says that the server has no such model."""
    return Expect(frozenset({200}), shape=shape, unserved=frozenset(unserved), absent=absent)


def refused(
    *statuses: int,
    types: tuple[str, ...] = (),
    param: str | None = None,
    stage: bool = False,
    message: str | None = None,
    header: tuple[str, str] | None = None,
    accepted: str | None = None,
    lenient: bool = True,
    unserved: tuple[int, ...] = (),
    beyond: tuple[str, ...] = (),
) -> Expect:
    """An error answer with one of `statuses`; see `Expect`."""
    return Expect(
        frozenset(statuses), frozenset(types), param, stage, message, header,
        accepted=accepted, lenient=lenient, unserved=frozenset(unserved), beyond=frozenset(beyond),
    )  # fmt: skip


def broken_rules(answer: Answer, expect: Expect, canaries: Canaries) -> tuple[Finding, ...]:
    """All rules that `answer` breaks, the plainest first; empty when it is right."""
    if answer.status is None:
        return (Finding("answered", answer.problem or "no answer"),)
    findings: dict[tuple[str, str], Finding] = {}
    for name, contract, rule in RULES:
        least = Contract.OMNI if name in expect.beyond else contract
        for text in rule(answer, expect, canaries):
            findings.setdefault((name, text), Finding(name, text, least.word))
    return tuple(findings.values())


def of_error(answer: Answer, error: Any) -> Answer:
    """The HTTP answer that an error object found inside `answer` would have been."""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else 500
    return Answer(answer.call, answer.seconds, status, body=json.dumps({"error": error}).encode())


def broken_inside(answer: Answer, error: Any, expect: Expect, canaries: Canaries, carrier: Any) -> tuple[Finding, ...]:
    """The rules that an error object breaks which came in an event, a message or a job: in `carrier`."""
    if not isinstance(error, dict):
        return (Finding("envelope", f"there is no error object in {shown(carrier)}"),)
    seen = of_error(answer, error)
    findings = broken_rules(seen, replace(expect, header=None), canaries)
    has_code = error.get("code") == seen.status
    code = () if has_code else (Finding("code", f"error.code is {shown(error.get('code'))}", Contract.VLLM.word),)
    kept = tuple(f for f in findings if f.rule not in ("code", "ids", "retry") and (has_code or f.rule != "status"))
    missing = [key for key in IDS if key not in error]
    ids = (Finding("ids", f"no {', '.join(missing)}", Contract.OMNI.word),) if missing else ()
    return (*kept, *code, *ids)


def is_ordinary(answer: Answer) -> bool:
    """Whether an answer is a success with something in it; a list of no images, say, is none."""
    if answer.status != 200 or is_error(answer):
        return False
    body = answer.json()
    if isinstance(body, dict):
        return any(bool(body.get(key)) for key in ("data", "choices", "tokens", "output", "content", "embedding"))
    return bool(answer.body) and answer.headers.get("content-type", "").partition(";")[0] != "application/json"


def is_error(answer: Answer) -> bool:
    """Whether an answer is one, by its status or by what is in it."""
    return answer.status is not None and (answer.status >= 400 or error_inside(answer) is not None)


def error_inside(answer: Answer) -> Any:
    """The error that a body carries whatever its status, or `None`."""
    body = answer.json()
    if isinstance(body, dict):
        if body.get("error"):
            return body["error"]
        if body.get("object") == "error":
            return body
        choices = body.get("choices")
        if isinstance(choices, list) and any(
            isinstance(c, dict) and c.get("finish_reason") == "error" for c in choices
        ):
            return "finish_reason 'error'"
    return None


def error_object(answer: Answer) -> dict[str, Any]:
    """The canonical object of an error answer; empty where there is none."""
    body = answer.json()
    inner = body.get("error") if isinstance(body, dict) else None
    return inner if isinstance(inner, dict) else {}


def _status_class(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if answer.status is not None and answer.status // 100 not in {status // 100 for status in expect.statuses}:
        yield f"answered {answer.status}, expected {expect.describe()}"


def _status(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if answer.status not in expect.statuses:
        yield f"answered {answer.status}, expected {expect.describe()}"


def _success(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if answer.status == 200 and expect.shape and not is_error(answer):
        wrong = expect.shape(answer)
        if wrong:
            yield wrong


def _error_as_success(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if answer.status is not None and answer.status < 400 and (inside := error_inside(answer)) is not None:
        yield f"HTTP {answer.status} with an error inside: {shown(inside)}"


def _envelope(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if answer.status is None or answer.status < 400:
        return
    body = answer.json()
    if not isinstance(body, dict) or not isinstance(body.get("error"), dict):
        yield f"the body is not the error object: {shown(body if body is not None else answer.text)}"
    elif not isinstance(body["error"].get("message"), str) or not body["error"]["message"].strip():
        yield f"error.message is {shown(body['error'].get('message'))}"


def _fields(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    error = error_object(answer)
    if answer.status is None or answer.status < 400 or not error:
        return
    if missing := [key for key in ENVELOPE if key not in error and key not in IDS]:
        yield f"the error has no {', '.join(missing)}"
    for key, kinds in ENVELOPE.items():
        value = error.get(key)
        if key in error and (not isinstance(value, kinds) or isinstance(value, bool)):
            yield f"error.{key} is {shown(value)}"


def _additions(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    body = answer.json()
    if answer.status is None or answer.status < 400 or not isinstance(body, dict) or not error_object(answer):
        return
    if extra := sorted(body.keys() - {"error"}):
        yield f"the body has more than the error: {', '.join(extra)}"
    if unknown := sorted(body["error"].keys() - ENVELOPE.keys()):
        yield f"the error has unknown fields: {', '.join(unknown)}"


def _code(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    error = error_object(answer)
    if answer.status is not None and answer.status >= 400 and "code" in error and error["code"] != answer.status:
        yield f"status {answer.status}, but error.code {shown(error['code'])}"


def _type(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    kind = error_object(answer).get("type")
    status = answer.status
    if not isinstance(kind, str) or status is None or status < 400:
        return
    if status in expect.statuses and expect.types and kind not in expect.types:
        yield f"error.type is {kind!r}, expected {' or '.join(sorted(expect.types))}"
    elif not type_suits(kind, status):
        yield f"error.type {kind!r} does not suit status {status}"


def type_suits(kind: str, status: int) -> bool:
    """Whether `kind` can stand for `status`: the catalogue's, the HTTP phrase, or a type of the error's own."""
    if kind in TYPES.get(status, ()):
        return True
    if kind in PHRASES:
        return PHRASES[kind] == status
    if kind in CATALOGUE_TYPES:
        return kind == ("BadRequestError" if status < 500 else "InternalServerError")
    return bool(kind.strip())


def _param(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if expect.param is None or answer.status not in expect.statuses:
        return
    param = error_object(answer).get("param")
    if not isinstance(param, str) or not param:
        yield f"error.param is {shown(param)}, expected {expect.param or 'the name of the field'}"
    elif expect.param and param.rpartition(".")[2] != expect.param:
        yield f"error.param is {shown(param)}, expected {expect.param}"


def _stage(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    error = error_object(answer)
    if expect.stage and answer.status in expect.statuses and error.get("error_stage_id") is None:
        yield "error.error_stage_id is not known"


def _message(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    message = error_object(answer).get("message")
    if expect.message and answer.status in expect.statuses and message != expect.message:
        yield f"error.message is {shown(message)}, expected {expect.message!r}"


def _header(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if expect.header:
        name, text = expect.header
        value = answer.headers.get(name)
        if value is None or text not in value:
            yield f"header {name} is {shown(value)}, expected one with {text}"


def _request_id(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if answer.status is None or answer.status < 400:
        return
    header = answer.headers.get("x-request-id")
    inside = error_object(answer).get("request_id")
    if header and inside is not None and inside != header:
        yield f"x-request-id is {shown(header)}, but error.request_id {shown(inside)}"


def _ids(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if answer.status is None or answer.status < 400:
        return
    error = error_object(answer)
    missing = [key for key in IDS if error and key not in error]
    if not answer.headers.get("x-request-id"):
        missing.append("x-request-id header")
    if missing:
        yield f"no {', '.join(missing)}"


def _bounded(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if not is_error(answer):
        return
    if len(answer.body) > ERROR_BODY_BYTES:
        yield f"an error body of {len(answer.body):,} bytes"
    message = error_object(answer).get("message")
    if isinstance(message, str) and len(message) > MESSAGE_CHARACTERS:
        yield f"error.message has {len(message):,} characters"


def _canary(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if is_error(answer):
        found = canaries.found_in([answer.text, *answer.headers.keys(), *answer.headers.values()])
        if found:
            yield "came back: " + ", ".join(found)


def _secret(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if is_error(answer) and canaries.secret_in([answer.text, *answer.headers.values()]):
        yield "came back: a header given with --header"


def _leak(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    yield from _shows(answer, LEAKS, canaries)


def _echo(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    yield from _shows(answer, ECHOES, canaries)


def _shows(answer: Answer, patterns: Mapping[str, re.Pattern[str]], canaries: Canaries) -> Iterator[str]:
    if is_error(answer):
        text = canaries.removed_from(answer.text)
        for words, pattern in patterns.items():
            if hit := pattern.search(text):
                yield f"shows {words}: {shown(hit.group())}"


def _retry(answer: Answer, expect: Expect, canaries: Canaries) -> Iterator[str]:
    if (answer.status, error_object(answer).get("type")) in NEVER_RETRIED:
        value = answer.headers.get("x-should-retry")
        if value != "false":
            yield f"x-should-retry is {shown(value)}, expected 'false'"


def shown(value: Any) -> str:
    """A value for people, bounded."""
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
    return repr(text) if isinstance(value, str) else text


Rule = Callable[[Answer, Expect, Canaries], Iterator[str]]

# Name, least contract that has it, rule; the plainest first.
RULES: tuple[tuple[str, Contract, Rule], ...] = (
    ("status", Contract.OPENAI, _status_class),
    ("status", Contract.VLLM, _status),
    ("success", Contract.OPENAI, _success),
    ("error as success", Contract.OPENAI, _error_as_success),
    ("envelope", Contract.OPENAI, _envelope),
    ("envelope", Contract.VLLM, _fields),
    ("envelope", Contract.OMNI, _additions),
    ("code", Contract.VLLM, _code),
    ("type", Contract.VLLM, _type),
    ("param", Contract.OMNI, _param),
    ("stage", Contract.OMNI, _stage),
    ("message", Contract.OMNI, _message),
    ("header", Contract.OPENAI, _header),
    ("retry", Contract.OMNI, _retry),
    ("request id", Contract.OMNI, _request_id),
    ("bounded", Contract.OMNI, _bounded),
    ("canary", Contract.OMNI, _canary),
    ("secret", Contract.OPENAI, _secret),
    ("leak", Contract.OPENAI, _leak),
    ("echo", Contract.OMNI, _echo),
    ("ids", Contract.OMNI, _ids),
)

# What the runner and the other transports find besides, each where it comes in a report.
ORDER: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            "answered",
            "alive",
            "status",
            "success",
            "error as success",
            "metric",
            "own answer",
            "before the stream",
            "terminal",
            "done",
            "session",
            "close",
            "official client",
            "job",
            *(name for name, _, _ in RULES),
        )
    )
)
