# SPDX-License-Identifier: Apache-2.0
"""An audit as tables in a terminal."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vllm_omni_errors.audit import Audit
from vllm_omni_errors.audit.document import RFC_TYPES, after, summary, totals
from vllm_omni_errors.audit.inventory import Site, certain_kinds

MOST_TYPES = 10
MOST_FINDINGS = 40
KIND_ORDER = ("route", "stream", "socket", "job", "task", "offline", "stage", "model", "command")


def print_audit(audit: Audit, console: Console, *, trend: Sequence[dict[str, Any]] = (), gate: bool = False) -> None:
    """Totals, the trend if there is one, the queue or what the gate says, and where the review stands."""
    inventory = audit.inventory
    title = f"{inventory.package} {inventory.version}: {inventory.files} files, {inventory.lines} lines"
    console.print(f"[bold]{escape(title)}[/bold]", highlight=False)
    console.print(_totals(audit))
    if len(trend) > 1:
        console.print(_trend(trend))
    if not gate:
        _queue(audit, console)
    _findings(audit, console, gate=gate)
    _where_it_stands(audit, console)


def queue(audit: Audit) -> list[Site]:
    """The sites to decide, those that clients see most first: what is certain before what is guessed, then by boundary,
    then a wrong 4xx before the rest, then by how many boundaries lead there."""
    found = [site for site in audit.inventory.sites if site.asked and audit.decision(site) is None]
    return sorted(found, key=weight)


def weight(site: Site) -> tuple[bool, int, int, int, str, int]:
    """A key that sorts a site into the queue."""
    certain = certain_kinds(site)
    nearest = min((KIND_ORDER.index(kind) for kind in certain or site.boundaries), default=len(KIND_ORDER))
    seen = any(400 <= status < 500 or status == 200 for status in site.today)
    return not certain, nearest, 0 if seen else 1, -sum(site.boundaries.values()), site.path, site.line


def _plain(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 else "right")
    return table


def _totals(audit: Audit) -> Table:
    sites = audit.inventory.sites
    entry = totals(site for site in sites if site.path.startswith("entrypoints/"))["raise"]
    asked = totals(site for site in sites if site.asked)["raise"]
    table = _plain("raise", "everywhere", "entrypoints", "on request paths, raw")
    counts = totals(sites)["raise"]
    for name in [*counts][:MOST_TYPES]:
        table.add_row(name, str(counts[name]), str(entry.get(name, 0)), str(asked.get(name, 0)))
    table.add_row(
        Text("all raises", style="bold"), str(sum(counts.values())), str(sum(entry.values())), str(sum(asked.values()))
    )
    return table


def _trend(trend: Sequence[dict[str, Any]]) -> Table:
    table = _plain("", *(point["version"] for point in trend))
    for name in RFC_TYPES:
        table.add_row(f"raise {name}", *(str(point["types"][name]) for point in trend))
    table.add_row("… ValueError in entrypoints", *(str(point["entrypoints"]["ValueError"]) for point in trend))
    table.add_row("all raises", *(str(point["raises"]) for point in trend))
    table.add_row("except clauses", *(str(point["excepts"]) for point in trend))
    table.add_row("sites that a review decides", *(str(point["asked"]) for point in trend))
    return table


def _queue(audit: Audit, console: Console) -> None:
    found = queue(audit)
    if not found:
        return
    table = _plain("to decide", "today", "after", "reached from")
    table.columns[0].overflow = "fold"
    for site in found[:MOST_TYPES]:
        place = Text.assemble((f"{site.path}:{site.line}", "cyan"), f" {site.function} ", (site.exception, "bold"))
        kinds = ", ".join(
            f"{number} {kind}" for kind, number in site.boundaries.items() if kind not in ("model", "command")
        )
        table.add_row(place, ", ".join(map(str, site.today)) or "–", str(after(audit, site) or "–"), kinds or "–")
    console.print(table)
    if len(found) > MOST_TYPES:
        console.print(f"… and {len(found) - MOST_TYPES} more: --html and --json have them all.", style="dim")


def _findings(audit: Audit, console: Console, *, gate: bool) -> None:
    shown = [finding for finding in audit.findings if gate or finding.code != "open"]
    for finding in shown[:MOST_FINDINGS]:
        mark = Text("note" if finding.note else finding.code, style="yellow" if finding.note else "bold red")
        place = f"{finding.path}:{finding.line}" if finding.path else ""
        console.print(Text.assemble(mark, f" {place} ", finding.text), highlight=False, soft_wrap=True)
        finger = f"  [{finding.fingerprint}]" if finding.fingerprint else ""
        console.print(Text(f"     {finding.next_step}{finger}", style="dim"), soft_wrap=True)
    if len(shown) > MOST_FINDINGS:
        console.print(f"… and {len(shown) - MOST_FINDINGS} more findings: --json has them all.", style="dim")
    for move in audit.matched.moved if audit.matched else ():
        text = f"moved {move.row.path}:{move.row.function} → {move.site.path}:{move.site.function}, {move.row.decision}"
        console.print(Text(text, style="yellow"), soft_wrap=True)
    if audit.matched and audit.matched.moved:
        console.print("--reanchor writes the moved rows to their new places.", style="dim")


def _where_it_stands(audit: Audit, console: Console) -> None:
    found = summary(audit)
    words = f"{found['asked']} sites on request paths ask for a decision"
    if audit.ledger is not None:
        words += f": {found['decided_by_row']} by rows, {found['decided_by_rule']} by rules, {found['open']} open"
    console.print(f"[bold]{words}.[/bold]", highlight=False)
    if found["guessed"]:
        console.print(f"The reach of {found['guessed']} sites is only guessed; --json says why of each.", style="dim")
