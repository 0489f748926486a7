# SPDX-License-Identifier: Apache-2.0
"""What phase `finalize` relies on: a tree in which the ledgers leave nothing open."""

import tempfile
from pathlib import Path

from vllm_omni_errors.audit import AuditError, Finding, audit, seams
from vllm_omni_errors.migrate.rewrites.finalize import LEDGER, VLLM
from vllm_omni_errors.migrate.source import PACKAGE, MigrationError, Source

UNDECIDED = ("open", "expired")
"""Codes of the gate's findings that are about an entry which somebody has to decide."""

MOST_NAMED = 10
"""Open entries in the text of an error; the audit lists them all."""


def open_entries(source: Source) -> tuple[str, ...]:
    """Every entry of the ledgers that is open for a stock tree, named with its ledger, file and function.

    Raises MigrationError if a ledger cannot be read, or the calls into vLLM were not reviewed.
    """
    try:
        reviewed = seams.require_reviewed(VLLM)
        with tempfile.TemporaryDirectory(prefix="omni-errors-") as directory:
            for entry in source.entries:
                if entry.path.startswith(f"{PACKAGE}/") and entry.path.endswith(".py") and entry.link is None:
                    file = Path(directory, entry.path)
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(source.read(entry.path))
            result = audit(Path(directory, PACKAGE), ledger=LEDGER)
            called = seams.findings(reviewed, result.tree)
    except AuditError as error:
        raise MigrationError(source.label, f"the ledgers cannot be used: {error}".rstrip("."), "Repair them.") from None
    return (
        *(f"{LEDGER.name}: {_place(finding)}" for finding in result.findings if finding.code in UNDECIDED),
        *(f"{reviewed.folder.name}: {_place(finding)}" for finding in called if finding.code in UNDECIDED),
        *(f"{reviewed.folder.name}: {row.path}: {row.function}: {row.call}" for row in reviewed.rows if row.is_open),
    )


def incomplete(source: Source, undecided: tuple[str, ...]) -> MigrationError:
    """The refusal of phase `finalize`, with the entries that are open."""
    count = len(undecided)
    entries = "1 entry of the ledgers is" if count == 1 else f"{count} entries of the ledgers are"
    more = f" and {count - MOST_NAMED} more" if count > MOST_NAMED else ""
    return MigrationError(
        source.label,
        f"{entries} open, and phase finalize needs them decided: {'; '.join(undecided[:MOST_NAMED])}{more}",
        "Decide them as ledgers/README.md says, or give --phase transports.",
    )


def _place(finding: Finding) -> str:
    return f"{finding.path}:{finding.line}: {finding.text.rstrip('.')}"
