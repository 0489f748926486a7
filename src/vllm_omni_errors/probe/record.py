# SPDX-License-Identifier: Apache-2.0
"""What a probe run found, and its JSON.

`Report.to_json()` gives `{"checks": [...], "passed": int, "failed": int, "skipped": int, ...}`. Each check is
`{"id", "transport", "name", "rule", "source", "verdict": "pass" | "fail" | "skip", "why", "seconds", "findings",
"beyond", "evidence"}`, where `beyond` are rules that broke but that this kind of server never promised; each piece of
evidence is one exchange with the server: `{"request", "response", "seconds", "problem", "expected", "counted",
"findings"}`, all texts bounded, nothing secret.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["pass", "fail", "skip"]

FORMAT = 2


class ProbeError(Exception):
    """The probe could not run at all; the message says what to do next."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: its name (see `rules.RULES`), what was seen, and the least contract that has the rule."""

    rule: str
    text: str
    contract: str = "openai"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One exchange, ready to be shown and repeated.

    `request` has `method`, `path`, `headers`, `body` and `curl`; `response` has `status`, `headers` and `body`, or is
    `None` when none came, and `problem` says why. `counted`: what `http_requests_total` did, or why it was not judged.
    """

    request: dict[str, Any]
    response: dict[str, Any] | None
    seconds: float
    problem: str | None
    expected: str
    counted: str | None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on one check. `why` is one line for people; `findings` say which rules broke.

    `beyond` are broken rules that are not in the server's own contract; they fail nothing.
    """

    id: str
    transport: str
    name: str
    rule: str
    source: str
    verdict: Verdict
    why: str
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    beyond: tuple[Finding, ...] = ()
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Everything about one run. `started` is UTC in ISO 8601; `server` holds what the server says of itself.

    `contract` is the one that it was held to (`contract.Contract.word`).
    """

    url: str
    model: str
    started: str
    seconds: float
    probe_version: str
    server: dict[str, Any]
    notes: tuple[str, ...]
    checks: tuple[Result, ...] = field(default=())
    contract: str = "omni"

    def count(self, verdict: Verdict) -> int:
        return Counter(check.verdict for check in self.checks)[verdict]

    @property
    def passed(self) -> int:
        return self.count("pass")

    @property
    def failed(self) -> int:
        return self.count("fail")

    @property
    def skipped(self) -> int:
        return self.count("skip")

    def to_json(self) -> dict[str, Any]:
        """The report as JSON-ready values, in the shape that the module's docstring gives."""
        return {
            "format": FORMAT,
            "passed": self.passed,
            "failed": self.failed,
            "skipped": self.skipped,
            **asdict(self),
        }
