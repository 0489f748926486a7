# SPDX-License-Identifier: Apache-2.0
"""What `http_requests_total` says about requests, on a server that others use too.

A request is attributed by the labels `handler`, `method` and `status` (contract, section 4). Other traffic on the same
handler can add to a series but never take away from it. So a request that was counted wrongly shows as a class that did
not grow although it should have; one that others' requests might hide is not judged.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from prometheus_client.parser import text_string_to_metric_families

from vllm_omni_errors.probe.answer import Answer
from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.client import Client

COUNTER = "http_requests_total"
READ_DEADLINE_S = 5.0
# The counter grows when the response is over, which the client may see a little earlier.
SETTLING_S = (0.0, 0.05, 0.2, 0.5)
UNMATCHED_HANDLER = "none"

Series = Counter[tuple[str, str, str]]


class Outcome(Enum):
    """Of one measurement."""

    RIGHT = auto()
    WRONG = auto()
    UNCOUNTED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Measurement:
    outcome: Outcome
    text: str


def parse(text: str) -> Series:
    """`(handler, method, status class such as "4xx")` → count, from a Prometheus exposition. Raises `ValueError`."""
    lines = "\n".join(line for line in text.splitlines() if line.startswith(COUNTER + "{"))
    series: Series = Counter()
    for family in text_string_to_metric_families(lines + "\n"):
        for sample in family.samples:
            labels = sample.labels
            if {"handler", "method", "status"} <= labels.keys():
                series[labels["handler"], labels["method"], labels["status"][:1] + "xx"] += int(sample.value)
    return series


class Counters:
    """Reads one server's `/metrics`."""

    settling_s: Sequence[float] = SETTLING_S

    def __init__(self, client: Client, path: str = "/metrics") -> None:
        self._client = client
        self._call = Call("GET", path)

    async def read(self) -> Series | None:
        """The series now, or `None` when the server does not say."""
        answer = await self._client.send(self._call, READ_DEADLINE_S)
        if answer.status != 200:
            return None
        try:
            return parse(answer.text)
        except ValueError:
            return None

    async def offered(self) -> bool:
        answer = await self._client.send(self._call, READ_DEADLINE_S)
        return answer.status == 200 and f" {COUNTER} " in answer.text

    async def measure(self, before: Series | None, answers: Iterable[Answer]) -> Measurement:
        """How the series changed since `before` against what `answers` should have added to them."""
        expected: dict[str, Counter[str]] = {}
        calls: dict[str, Call] = {}
        for answer in answers:
            if answer.status is None:
                return Measurement(Outcome.UNKNOWN, "not judged: there was no answer")
            key = f"{answer.call.method} {answer.call.route or answer.call.path}"
            calls[key] = answer.call
            expected.setdefault(key, Counter())[f"{answer.status // 100}xx"] += 1
        measurement = Measurement(Outcome.UNKNOWN, "not judged: /metrics did not answer")
        for wait_s in self.settling_s:
            await asyncio.sleep(wait_s)
            after = await self.read()
            if before is None or after is None:
                return measurement
            parts = [_compare(calls[key], before, after, classes) for key, classes in expected.items()]
            worst = max(parts, key=lambda part: _BADNESS[part.outcome])
            measurement = Measurement(worst.outcome, "; ".join(dict.fromkeys(part.text for part in parts)))
            if worst.outcome is Outcome.RIGHT:
                break
        return measurement


_BADNESS = {Outcome.RIGHT: 0, Outcome.UNKNOWN: 1, Outcome.UNCOUNTED: 2, Outcome.WRONG: 3}


def _compare(call: Call, before: Series, after: Series, expected: Counter[str]) -> Measurement:
    handlers = {call.route or call.path, UNMATCHED_HANDLER}

    def mine(series: Series) -> Counter[str]:
        classes: Counter[str] = Counter()
        for (handler, method, status), count in series.items():
            if handler in handlers and method == call.method:
                classes[status] += count
        return classes

    old, new = mine(before), mine(after)
    change = Counter({status: new[status] - old[status] for status in new if new[status] != old[status]})
    where = f"{COUNTER} of {call.method} {call.path}"
    shown = ", ".join(f"{status} +{count}" for status, count in sorted(change.items()))
    if not change:
        return Measurement(Outcome.UNCOUNTED, f"{where} did not change")
    short = [status for status, count in expected.items() if change[status] < count]
    if short:
        wanted = ", ".join(f"{status} +{count}" for status, count in sorted(expected.items()))
        return Measurement(Outcome.WRONG, f"{where}: {shown}, expected {wanted}")
    if change == expected:
        return Measurement(Outcome.RIGHT, f"{where}: {shown}")
    return Measurement(Outcome.UNKNOWN, f"{where}: {shown}; other traffic, not judged")
