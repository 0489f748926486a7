# SPDX-License-Identifier: Apache-2.0
"""Writing decisions: a reviewer names sites by fingerprint and says what they are; the rows go where they belong."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from vllm_omni_errors.audit import ledger as ledgers
from vllm_omni_errors.audit.inventory import Inventory, Site
from vllm_omni_errors.audit.ledger import LedgerError, Row

GIVEN = frozenset({"fingerprint", "decision", "parameter", "text", "reason", "reviewed", "expires", "apart", "twins"})


def read(text: str) -> list[dict[str, Any]]:
    """Decisions as a reviewer writes them: one JSON object a line; empty lines do not matter.

    Keys: ``fingerprint``, ``decision``, ``reason``; if need be ``parameter``, ``text``, ``expires``, ``apart``; and
    ``twins: true`` to decide all open sites with the same message alike. Raises LedgerError.
    """
    found = []
    for number, line in enumerate(ledgers.lines_in(text), 1):
        if not line.strip():
            continue
        try:
            value = ledgers.parsed(json.loads, line)
        except ValueError as error:
            raise LedgerError(f"decision {number} is not JSON: {error}.") from None
        if not isinstance(value, dict) or not isinstance(value.get("fingerprint"), str):
            raise LedgerError(f"decision {number} has no fingerprint. `omni-errors audit TREE --json -` shows them.")
        strange = sorted(set(value) - GIVEN)
        if strange:
            raise LedgerError(
                f"decision {number} has an unknown key {strange[0]!r}; known are {', '.join(sorted(GIVEN))}."
            )
        found.append(value)
    return found


def decide(folder: Path, inventory: Inventory, decisions: Sequence[Mapping[str, Any]], today: date) -> list[Row]:
    """Write decisions; a site that has a row gets the new one. All are written, or none.

    Returns the rows. Raises LedgerError if a site does not exist, or a decision is not one for it.
    """
    with ledgers.alone(folder):
        ledger = ledgers.load(folder)
        made: dict[str, Row] = {}
        sites = {site.fingerprint: site for site in inventory.sites}
        for number, values in enumerate(decisions, 1):
            for site in _sites(sites, ledger, values, number):
                row = _row(site, values, today, f"decision {number} ({site.path}:{site.line})")
                if site.fingerprint in made and made[site.fingerprint] != row:
                    raise LedgerError(f"decision {number}: {site.fingerprint} is decided twice.")
                made[site.fingerprint] = row
        rows = {**ledger.rows, **made}
        paths = {row.path for row in made.values()}
        ledgers.write(folder, {path: [row for row in rows.values() if row.path == path] for path in paths})
    return list(made.values())


def _sites(sites: Mapping[str, Site], ledger: ledgers.Ledger, values: Mapping[str, Any], number: int) -> list[Site]:
    site = sites.get(values["fingerprint"])
    if site is None:
        raise LedgerError(
            f"decision {number}: no site of this tree has the fingerprint {values['fingerprint']}. "
            "Take it from `omni-errors audit` of the same tree."
        )
    if values.get("twins") is not True or site.twin is None:
        return [site]
    twins = [other for other in sites.values() if other.twin == site.twin and other.asked and other.kind == site.kind]
    return [site, *(other for other in twins if other is not site and other.fingerprint not in ledger.rows)]


def _row(site: Site, values: Mapping[str, Any], today: date, where: str) -> Row:
    given = {key: value for key, value in values.items() if key not in ("fingerprint", "twins") and value is not None}
    identity = {
        "function": site.function,
        "kind": site.kind,
        "exception": site.exception,
        "message": site.message,
        "nth": site.nth,
    }
    return ledgers.row_of(where, site.path, {"reviewed": today.isoformat(), **given, **identity})


def reanchor(folder: Path, inventory: Inventory) -> list[ledgers.Move]:
    """Write the rows that only moved to their new places. Returns them."""
    with ledgers.alone(folder):
        ledger = ledgers.load(folder)
        moves = ledgers.match(ledger, inventory.sites).moved
        rows = {key: row for key, row in ledger.rows.items() if key not in {move.row.fingerprint for move in moves}}
        paths = {move.row.path for move in moves}
        for move in moves:
            row = ledgers.moved_to(move)
            rows[row.fingerprint] = row
            paths.add(row.path)
        ledgers.write(folder, {path: _of(rows.values(), path) for path in paths})
    return moves


def _of(rows: Iterable[Row], path: str) -> list[Row]:
    return [row for row in rows if row.path == path]
