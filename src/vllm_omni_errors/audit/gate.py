# SPDX-License-Identifier: Apache-2.0
"""The gate: a tree held against its ledger. It can only get better."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from typing import Literal

from vllm_omni_errors.audit.inventory import Inventory, Site
from vllm_omni_errors.audit.ledger import Ledger, Matched

Code = Literal["open", "expired", "stale", "rule-count", "row-count", "needless", "twins", "unparsed", "other-version"]

CODES: dict[Code, str] = {
    "open": "A site on a request path that nobody decided.",
    "expired": "A decision that was for a time which is over.",
    "stale": "A row whose site is gone.",
    "rule-count": "A rule that covers more or fewer sites than were reviewed.",
    "row-count": "More or fewer rows than were reviewed are about sites that the audit does not ask about.",
    "needless": "A row for a raise that already says whose fault it is.",
    "twins": "Sites with the same message that were decided differently.",
    "unparsed": "A file that is no valid Python.",
    "other-version": "The ledger was made for another version; what moved is found again, the rest is open.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the gate does not let pass, unless it is a note.

    Attributes:
        code: which, of `CODES`.
        path: file below the package, or of the ledger.
        line: in the tree, 1 if there is none.
        text: what is wrong.
        next_step: what to do.
        fingerprint: of the site or row, empty if there is none.
        note: whether it is only said.
    """

    code: Code
    path: str
    line: int
    text: str
    next_step: str
    fingerprint: str = ""
    note: bool = False


def findings(inventory: Inventory, ledger: Ledger | None, matched: Matched | None, today: date) -> list[Finding]:
    """Everything that the gate has to say, in order of path and line."""
    found = [
        Finding("unparsed", path, 1, f"It does not parse: {problem}", "Repair the file.")
        for path, problem in inventory.problems.items()
    ]
    if ledger is None or matched is None:
        return sorted(found, key=_place)
    if ledger.version not in (inventory.version, "unknown") and inventory.version != "unknown":
        text = f"The ledger is of {ledger.version}, and the tree of {inventory.version}."
        found.append(Finding("other-version", "", 1, text, "Review what is open.", note=True))
    for site in inventory.sites:
        row, rule = matched.rows.get(site.fingerprint), matched.rules.get(site.fingerprint)
        if row is None and rule is None and site.asked:
            found.append(open_site(site))
        elif row is not None and row.expires is not None and row.expires <= today:
            text = f"{_title(site)} was {row.decision} until {row.expires}: {row.reason}"
            found.append(Finding("expired", site.path, site.line, text, "Decide it again.", site.fingerprint))
        if row is not None and site.kind == "raise" and not site.raw:
            text = f"{_title(site)} says already whose fault it is, and has a row."
            found.append(Finding("needless", site.path, site.line, text, "Remove the row.", site.fingerprint))
    for row in matched.stale:
        where = row.function or "the module"
        text = f"{where}: the {row.kind} of {row.exception} ({row.message}) is gone, or says something else."
        found.append(
            Finding("stale", row.path, 1, text, "Remove the row, and decide what is there now.", row.fingerprint)
        )
    for rule in ledger.rules:
        if rule.expires is not None and rule.expires <= today:
            text = f"The rule {rule.name} was for the time until {rule.expires}."
            found.append(Finding("expired", "ledger.toml", 1, text, "Review what it covers."))
        covered = matched.covered[rule.name]
        if covered != rule.sites:
            text = f"The rule {rule.name} covers {covered} sites; {rule.sites} were reviewed."
            step = (
                f"Decide the new ones; then write sites = {covered}."
                if covered > rule.sites
                else f"Write sites = {covered}."
            )
            found.append(Finding("rule-count", "ledger.toml", 1, text, step))
    beyond = sum(site.fingerprint in matched.rows and not site.asked for site in inventory.sites)
    if ledger.beyond not in (None, beyond):
        text = f"{beyond} rows are about sites that the audit does not ask about; {ledger.beyond} were reviewed."
        step = f"See which row is new or gone; if that is right, write beyond = {beyond}."
        found.append(Finding("row-count", "ledger.toml", 1, text, step))
    found += _twins(inventory, matched)
    return sorted(found, key=_place)


def _place(finding: Finding) -> tuple[str, int, str, str]:
    return finding.path, finding.line, finding.code, finding.fingerprint


def _title(site: Site) -> str:
    what = {"raise": "raise of", "except": "except", "response": "error response by"}[site.kind]
    return f"{site.function or 'the module'}: {what} {site.exception}"


def open_site(site: Site) -> Finding:
    """The finding that nobody decided a site."""
    seen = f"; a client sees {', '.join(map(str, site.today))} today" if site.today else ""
    step = "Make it a semantic exception, or decide it: omni-errors audit TREE --ledger LEDGER --decide -"
    return Finding("open", site.path, site.line, f"{_title(site)} is not decided{seen}.", step, site.fingerprint)


def _twins(inventory: Inventory, matched: Matched) -> list[Finding]:
    groups: dict[str, list[Site]] = defaultdict(list)
    for site in inventory.sites:
        row = matched.rows.get(site.fingerprint)
        if site.twin is not None and row is not None and not row.apart:
            groups[site.twin].append(site)
    found = []
    for group in groups.values():
        decisions = {matched.rows[site.fingerprint].decision for site in group}
        if len(decisions) > 1:
            places = ", ".join(f"{s.path}:{s.line} {matched.rows[s.fingerprint].decision}" for s in group)
            text = f"The same message is decided differently: {places}."
            step = "Decide them alike, or set apart = true in each row and say why."
            found.append(Finding("twins", group[0].path, group[0].line, text, step, group[0].fingerprint))
    return found
