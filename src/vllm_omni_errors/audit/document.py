# SPDX-License-Identifier: Apache-2.0
"""An audit as JSON: totals, what the gate says, and everything that a reviewer needs about each site."""

import fnmatch
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from vllm_omni_errors.audit import Audit, facts
from vllm_omni_errors.audit.inventory import Inventory, Site, certain_kinds
from vllm_omni_errors.audit.reach import Arrival
from vllm_omni_errors.audit.vocabulary import DECISIONS

FORMAT = 1
RFC_TYPES = ("ValueError", "TypeError", "RuntimeError", "VLLMValidationError", "GuardrailViolationError")
BOUNDARIES = "today: stock vLLM-Omni over vLLM 0.27 or later; after: by the decision, and 500 for what stays raw"


def totals(sites: Iterable[Site]) -> dict[str, dict[str, int]]:
    """Number of sites by kind and type. An except clause counts under each of its types, a response under its form."""
    counts: dict[str, Counter[str]] = {"raise": Counter(), "except": Counter(), "response": Counter()}
    for site in sites:
        names = [site.form] if site.kind == "response" else site.exception.split(", ")
        counts[site.kind].update(dict.fromkeys(names, 1))
    return {kind: dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))) for kind, found in counts.items()}


def areas(sites: Iterable[Site]) -> dict[str, dict[str, dict[str, int]]]:
    """`totals` by the first folder."""
    groups: dict[str, list[Site]] = defaultdict(list)
    for site in sites:
        groups[site.path.partition("/")[0] if "/" in site.path else "(top)"].append(site)
    return {name: totals(found) for name, found in sorted(groups.items())}


def trend_point(inventory: Inventory) -> dict[str, Any]:
    """The numbers of the RFC's table for one version, and how many sites a review has to decide."""
    raised = [site for site in inventory.sites if site.kind == "raise"]
    return {
        "version": inventory.version,
        "files": inventory.files,
        "lines": inventory.lines,
        "raises": len(raised),
        "excepts": sum(site.kind == "except" for site in inventory.sites),
        "types": {name: sum(site.exception == name for site in raised) for name in (*RFC_TYPES, "HTTPException")},
        "entrypoints": {
            name: sum(site.exception == name and site.path.startswith("entrypoints/") for site in raised)
            for name in RFC_TYPES
        },
        "asked": sum(site.asked for site in inventory.sites),
    }


def summary(audit: Audit) -> dict[str, Any]:
    """The numbers that say where the review stands."""
    sites = audit.inventory.sites
    asked = [site for site in sites if site.asked]
    by = Counter((audit.decision(site) or ("", "open"))[1].partition(" ")[0] for site in asked)
    return {
        "raises": sum(site.kind == "raise" for site in sites),
        "excepts": sum(site.kind == "except" for site in sites),
        "responses": sum(site.kind == "response" for site in sites),
        "asked": len(asked),
        "decided_by_row": by["row"],
        "decided_by_rule": by["rule"],
        "open": by["open"],
        "request_path": dict(Counter(site.request_path for site in sites if site.raw)),
        "guessed": sum(bool(site.arrivals) and not certain_kinds(site) for site in sites),
        "unparsed": len(audit.inventory.problems),
    }


def document(
    audit: Audit,
    *,
    sites: Sequence[Site] | None = None,
    context_lines: int = 0,
    trend: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """The whole audit. `sites` limits which are listed, `context_lines` adds the source around each."""
    inventory = audit.inventory
    twins: dict[str, list[str]] = defaultdict(list)
    for site in inventory.sites:
        if site.twin is not None:
            twins[site.twin].append(site.fingerprint)
    source = _source_reader(audit, context_lines) if context_lines else None
    shown = inventory.sites if sites is None else sites
    return {
        "format": FORMAT,
        "package": inventory.package,
        "version": inventory.version,
        "files": inventory.files,
        "lines": inventory.lines,
        "counting_rule": _counting_rule(),
        "statuses": BOUNDARIES,
        "totals": totals(inventory.sites),
        "areas": areas(inventory.sites),
        "summary": summary(audit),
        "trend": list(trend),
        "boundaries": [
            {"kind": boundary.kind, "name": boundary.name, "function": boundary.function}
            for boundary in inventory.boundaries
            if boundary.kind not in ("model", "command")
        ],
        "decisions": {
            name: {"kinds": list(decision.kinds), "meaning": decision.meaning, "status": decision.status}
            for name, decision in DECISIONS.items()
        },
        "rules": [
            {"name": rule.name, "decision": rule.decision, "reason": rule.reason, "reviewed_sites": rule.sites,
             "sites": audit.matched.covered[rule.name]}
            for rule in (audit.ledger.rules if audit.ledger else ())
            if audit.matched is not None
        ],
        "moved": [
            {"from": {"path": move.row.path, "function": move.row.function}, "path": move.site.path,
             "line": move.site.line, "function": move.site.function, "fingerprint": move.site.fingerprint}
            for move in (audit.matched.moved if audit.matched else ())
        ],
        "findings": [
            {"code": finding.code, "path": finding.path, "line": finding.line, "text": finding.text,
             "next_step": finding.next_step, "fingerprint": finding.fingerprint, "note": finding.note}
            for finding in audit.findings
        ],
        "sites": [site_json(audit, site, twins, source) for site in shown],
    }  # fmt: skip


def site_json(
    audit: Audit, site: Site, twins: dict[str, list[str]], source: Callable[[Site], list[str]] | None = None
) -> dict[str, Any]:
    """One site."""
    row = audit.matched.rows.get(site.fingerprint) if audit.matched else None
    rule = audit.matched.rules.get(site.fingerprint) if audit.matched else None
    decided = row or rule
    found: dict[str, Any] = {
        "path": site.path,
        "line": site.line,
        "function": site.function,
        "kind": site.kind,
        "exception": site.exception,
        "fingerprint": site.fingerprint,
        "decision": decided.decision if decided else None,
        "decided_by": "row" if row else f"rule {rule.name}" if rule else None,
        "reason": decided.reason if decided else None,
        "parameter": row.parameter if row else None,
        "text": row.text if row else None,
        "message": site.text,
        "message_hash": site.message,
        "nth": site.nth,
        "echo": list(site.echo),
        "raw": site.raw,
        "asked": site.asked,
        "request_path": site.request_path,
        "today": list(site.today),
        "after": after(audit, site),
        "boundaries": site.boundaries,
        "reach": [_arrival(arrival) for arrival in site.arrivals],
        "twins": [other for other in twins.get(site.twin or "", ()) if other != site.fingerprint],
        "pydantic_validator": site.validator,
        "inside_except": list(site.handled) if site.handled is not None else None,
    }
    if site.kind == "except":
        found |= {"does": list(site.does), "catches": list(site.catches), "client_errors": list(site.client_errors)}
    if site.kind == "response":
        found |= {"form": site.form, "status": site.status}
    if site.kind == "raise":
        found |= {"status": site.status}
    if source is not None:
        found["source"] = source(site)
    return found


def after(audit: Audit, site: Site) -> int | None:
    """The status that a client sees after the migration; None where no client sees one, or where it depends."""
    decided = audit.decision(site)
    if decided is None:
        if not (site.asked and site.kind == "raise" and site.raw):
            return None
        return site.status if site.exception == "HTTPException" else 500
    name = decided[0]
    if name == "keep":
        return site.status or (site.today[0] if len(site.today) == 1 else None)
    return DECISIONS[name].status


def selected(audit: Audit, only: Sequence[str], *, open_only: bool) -> list[Site]:
    """The sites of some paths; `open_only` leaves those that a review has to decide and did not."""
    return [
        site
        for site in audit.inventory.sites
        if (not only or any(fnmatch.fnmatch(site.path, glob) for glob in only))
        and (not open_only or (site.asked and audit.decision(site) is None))
    ]


def _arrival(arrival: Arrival) -> dict[str, Any]:
    return {
        "kind": arrival.boundary.kind,
        "boundary": arrival.boundary.name,
        "path": list(arrival.steps),
        "clauses": list(arrival.clauses),
        "caught_by": arrival.caught_by,
        "today": arrival.today,
        "outcome": arrival.outcome,
        "certain": not arrival.guesses,
        "guesses": list(arrival.guesses),
    }


def _source_reader(audit: Audit, context_lines: int) -> Callable[[Site], list[str]]:
    texts: dict[str, list[str]] = {}

    def read(site: Site) -> list[str]:
        if site.path not in texts:
            texts[site.path] = audit.tree.text(site.path).decode("utf-8", "replace").splitlines()
        first = max(site.line - 1 - context_lines, 0)
        last = site.line + context_lines
        return [f"{number}: {line}" for number, line in enumerate(texts[site.path][first:last], first + 1)]

    return read


def _counting_rule() -> str:
    rule = (facts.__doc__ or "").partition("\n\n")[2].partition(":\n\n")[2]
    return " ".join(rule.split())
