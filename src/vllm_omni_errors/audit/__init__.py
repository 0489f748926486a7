# SPDX-License-Identifier: Apache-2.0
"""The inventory of a vLLM-Omni's raise, catch and answer sites, and the reviewed ledger that they are held against.

    from vllm_omni_errors.audit import audit

    report = audit(Path("vllm-omni"), ledger=Path("ledgers/vllm-omni-0.30.0"))
    report.findings

`omni-errors audit` is this function. It imports neither vLLM nor torch, and needs no extra.
"""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from vllm_omni_errors.audit import gate, ledger, read
from vllm_omni_errors.audit.cache import Cache, default_path
from vllm_omni_errors.audit.gate import Finding
from vllm_omni_errors.audit.inventory import Inventory, Site
from vllm_omni_errors.audit.ledger import Ledger, LedgerError, Matched, Row, Rule
from vllm_omni_errors.audit.tree import AuditError, Tree, find

__all__ = [
    "Audit",
    "AuditError",
    "Finding",
    "Inventory",
    "Ledger",
    "LedgerError",
    "Matched",
    "Row",
    "Rule",
    "Site",
    "Tree",
    "audit",
]


@dataclass(frozen=True, slots=True)
class Audit:
    """A tree's inventory, the ledger that it was held against, and what the gate says."""

    tree: Tree
    inventory: Inventory
    ledger: Ledger | None
    matched: Matched | None
    findings: list[Finding]

    @property
    def failures(self) -> list[Finding]:
        """What the gate does not let pass."""
        return [finding for finding in self.findings if not finding.note]

    def decision(self, site: Site) -> tuple[str, str] | None:
        """The decision about a site, and what it is by: ``row``, or ``rule`` and its name."""
        if self.matched is None:
            return None
        row = self.matched.rows.get(site.fingerprint)
        if row is not None:
            return row.decision, "row"
        rule = self.matched.rules.get(site.fingerprint)
        return (rule.decision, f"rule {rule.name}") if rule is not None else None


def audit(source: Path, *, ledger: Path | None = None, cache: Path | None = None, today: date | None = None) -> Audit:
    """Audit a tree.

    Args:
        source: a checkout, a package's folder, or a wheel.
        ledger: the ledger's folder, or its ``ledger.toml``.
        cache: where results are kept; by default in the user's cache folder.
        today: for decisions that expire.

    Raises:
        AuditError: the tree, or as LedgerError the ledger, cannot be read.
    """
    tree = find(source)
    loaded = _load(ledger)
    kept = Cache(cache or default_path())
    try:
        inventory = read.inventory_of(tree, kept)
    finally:
        kept.close()
    return hold(tree, inventory, loaded, today or date.today())


def hold(tree: Tree, inventory: Inventory, loaded: Ledger | None, today: date) -> Audit:
    """Hold an inventory against a ledger."""
    matched = None
    if loaded is not None:
        if loaded.package != inventory.package:
            raise LedgerError(f"{loaded.folder} is a ledger of {loaded.package}, and the tree is {inventory.package}.")
        matched = _match(loaded, inventory)
    return Audit(tree, inventory, loaded, matched, gate.findings(inventory, loaded, matched, today))


def _load(place: Path | None) -> Ledger | None:
    return None if place is None else ledger.load(place)


def _match(loaded: Ledger, inventory: Inventory) -> Matched:
    return ledger.match(loaded, inventory.sites)
