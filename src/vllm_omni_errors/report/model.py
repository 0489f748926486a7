# SPDX-License-Identifier: Apache-2.0
"""What a report must offer to be shown: its JSON, or a `to_json()` that gives it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

WORDS: Mapping[str, str] = {"pass": "kept", "fail": "broken", "skip": "skipped"}
MISSING = {"verdict": "skip", "why": "not part of this run", "findings": [], "beyond": [], "evidence": []}
TRANSPORTS: Mapping[str, str] = {
    "http": "HTTP",
    "sse": "Streams",
    "websocket": "WebSockets",
    "job": "Jobs",
    "openai": "Official client",
}


class HasJson(Protocol):
    def to_json(self) -> dict[str, Any]: ...


Reportable = HasJson | Mapping[str, Any]


def as_json(report: Reportable) -> Mapping[str, Any]:
    """The JSON of a report, given either way."""
    return report if isinstance(report, Mapping) else report.to_json()


def by_check(sides: Mapping[str, Reportable]) -> list[tuple[Mapping[str, Any], dict[str, Mapping[str, Any]]]]:
    """Checks in the order of the first side that has them, each with its result on every side.

    A side that did not run a check has a skip in its place.
    """
    results = {name: {item["id"]: item for item in as_json(report)["checks"]} for name, report in sides.items()}
    order: dict[str, Mapping[str, Any]] = {}
    for checks in results.values():
        for identifier, item in checks.items():
            order.setdefault(identifier, item)
    return [
        (item, {name: checks.get(identifier, MISSING) for name, checks in results.items()})
        for identifier, item in order.items()
    ]


def summary(report: Mapping[str, Any]) -> str:
    """Such as `31 kept, 20 broken (18 of them in the ids alone), 1 skipped`."""
    ids = f" ({minor} of them in the ids alone)" if (minor := ids_alone(report)) else ""
    return f"{report['passed']} kept, {report['failed']} broken{ids}, {report['skipped']} skipped"


def counts(checks: Iterable[Mapping[str, Any]]) -> str:
    """Such as `3 kept, 2 broken`, without what there is none of."""
    verdicts = Counter(item["verdict"] for item in checks)
    return ", ".join(f"{verdicts[verdict]} {word}" for verdict, word in WORDS.items() if verdicts[verdict])


def skips(report: Mapping[str, Any]) -> dict[str, list[str]]:
    """Why checks were skipped → their names."""
    found: dict[str, list[str]] = {}
    for item in report["checks"]:
        if item["verdict"] == "skip":
            found.setdefault(item["why"], []).append(item["name"])
    return found


def beyond(report: Mapping[str, Any]) -> int:
    """How many checks broke a rule that this kind of server never promised."""
    return sum(bool(item.get("beyond")) for item in report["checks"])


def ids_alone(report: Mapping[str, Any]) -> int:
    """How many checks broke no rule but the one about the ids, which only servers that know the contract can keep."""
    failed = (item for item in report["checks"] if item["verdict"] == "fail")
    return sum(all(finding["rule"] == "ids" for finding in item["findings"]) for item in failed)
