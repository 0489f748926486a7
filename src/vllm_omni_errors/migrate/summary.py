# SPDX-License-Identifier: Apache-2.0
"""What a migration did, or why it could not, for a terminal and as JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vllm_omni_errors.migrate import Result, RewriteRow
from vllm_omni_errors.migrate.manifest import LIBRARY, library_version
from vllm_omni_errors.migrate.rewrite import PHASES
from vllm_omni_errors.migrate.series import Series
from vllm_omni_errors.migrate.source import Matched, MigrationError, Unmatched

MOST_ROWS = 60
FOLDER_PARTS = 2


def show_result(console: Console, result: Result) -> None:
    """Print the rewrites by phase and file, the totals, and where everything lies."""
    if len(result.rewrites) > MOST_ROWS:
        _show_folders(console, result.rewrites)
        _sentence(console, "Every rewrite with its reason: --json FILE; every change: --diff FILE.")
        console.print()
    elif result.rewrites:
        _show_rewrites(console, result)
    for note in result.notes:
        _sentence(console, note)
    if result.new_phases:
        places = sum(row.places for row in result.rewrites)
        _sentence(
            console,
            f"vLLM-Omni {result.version or 'of unknown version'}, {_phases(result)}:"
            f" {_count(len(result.rewrites), 'rewrite')} in {_count(places, 'place')};"
            f" {_count(len(result.files), 'file')} changed or new, +{result.added} -{result.removed} lines;"
            f" {_count(result.unchanged, 'file')} unchanged.",
        )
    for name, path in (("Tree", result.out), ("Wheel", result.wheel), ("Diff", result.diff)):
        if path is not None:
            _line(console, f"{name + ':':<7}{path}")
    depends = " (the wheel depends on it)" if result.wheel else ""
    _sentence(console, f"Needs: {LIBRARY} {library_version()} or later where it runs{depends}.")


def show_series(console: Console, series: Series) -> None:
    """Print the patches, and what they apply to."""
    table = Table(show_edge=False, pad_edge=False, box=None)
    table.add_column("Patch", overflow="fold")
    table.add_column("Files", justify="right")
    table.add_column("Lines", justify="right")
    for patch in series.patches:
        table.add_row(patch.subject, str(patch.files), f"+{patch.added} -{patch.removed}")
    console.print(table)
    console.print()
    _line(console, f"Patches: {series.directory}/*.patch, in this order; `git am` applies them.")
    _sentence(
        console,
        f"Base:    vLLM-Omni {series.version or 'of unknown version'}, committed: `git rev-parse HEAD:vllm_omni` is"
        f" {series.base} before the first and {series.result} after the last.",
    )


def _show_rewrites(console: Console, result: Result) -> None:
    lines = {file.path: f"+{file.added} -{file.removed}" for file in result.files}
    widest = max(len(row.rewrite) for row in result.rewrites)
    header = _grid(widest)
    header.add_row("Rewrite", "Places", "Why", style="dim")
    console.print(header)

    def place(row: RewriteRow) -> tuple[int, str]:
        return result.phases.index(row.phase), row.path

    for (phase, path), rows in groupby(sorted(result.rewrites, key=place), key=place):
        heading = Text.assemble(
            (f"{result.phases[phase]}  {path}", "bold"), (f"  {lines.get(path, '')}".rstrip(), "dim")
        )
        console.print(heading, soft_wrap=True)
        table = _grid(widest)
        for row in rows:
            table.add_row(row.rewrite, str(row.places), Text(row.why))
        console.print(table)
    console.print()


def _show_folders(console: Console, rows: Sequence[RewriteRow | Matched]) -> None:
    """One line for each phase and folder, for more rewrites than anybody reads in a terminal."""
    table = Table(show_edge=False, pad_edge=False, box=None)
    table.add_column("Phase", no_wrap=True)
    table.add_column("Folder", overflow="fold")
    for column in ("Files", "Rewrites", "Places"):
        table.add_column(column, justify="right")

    def place(row: RewriteRow | Matched) -> tuple[int, str]:
        return _phase_number(row.phase), "/".join(row.path.split("/")[1:-1][:FOLDER_PARTS]) or "."

    for (phase, folder), group in groupby(sorted(rows, key=place), key=place):
        members = list(group)
        numbers = (len({row.path for row in members}), len(members), sum(row.places for row in members))
        table.add_row(PHASES[phase], folder, *map(str, numbers))
    console.print(table)


def _grid(widest: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(width=widest + 2, no_wrap=True)
    grid.add_column(width=len("Places"), justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def show_unmatched(console: Console, error: MigrationError) -> None:
    """Print which rewrites found their places and which did not, by phase; nothing if that was not the reason."""
    if not error.unmatched:
        return
    if error.matched:
        console.print(Text("What matched", style="bold"))
        _show_folders(console, error.matched)
        console.print()
    console.print(Text("What did not match", style="bold"))

    def place(row: Unmatched) -> tuple[int, str]:
        return _phase_number(row.phase), row.path

    for (phase, path), rows in groupby(sorted(error.unmatched, key=place), key=place):
        _line(console, f"{PHASES[phase]}  {path}", style="bold")
        for row in rows:
            found = f"{_count(row.found, 'place')} instead of {row.expected} in {row.function or 'the module'}"
            _sentence(console, f"{row.rewrite}: {found}; {row.reason}", indent=2)
            for site in row.sites:
                _sentence(console, site, indent=4)
    console.print()
    totals = Table(show_edge=False, pad_edge=False, box=None)
    totals.add_column("Phase", no_wrap=True)
    for column in ("Matched", "Not matched"):
        totals.add_column(column, justify="right")
    for name, matched, unmatched in _by_phase(error):
        totals.add_row(name, str(matched), str(unmatched))
    console.print(totals)
    _sentence(console, "Nothing was written. Every rewrite by itself: --json FILE.")


def error_json(error: MigrationError) -> dict[str, Any]:
    """A failure as plain objects, for `json.dumps`."""
    return {
        "error": {
            "subject": error.subject,
            "reason": error.reason,
            "next_step": error.next_step,
            "phases": [
                {"phase": phase, "matched": matched, "unmatched": unmatched}
                for phase, matched, unmatched in _by_phase(error)
            ],
            "matched": [asdict(row) for row in error.matched],
            "unmatched": [asdict(row) for row in error.unmatched],
        }
    }


def _by_phase(error: MigrationError) -> list[tuple[str, int, int]]:
    """Each phase that was asked for, with the numbers of rewrites that matched and that did not."""
    matched = Counter(row.phase for row in error.matched)
    unmatched = Counter(row.phase for row in error.unmatched)
    return [(phase, matched[phase], unmatched[phase]) for phase in PHASES if phase in {*matched, *unmatched}]


def _phase_number(phase: str) -> int:
    names: Sequence[str] = PHASES
    return names.index(phase)


def _phases(result: Result) -> str:
    return f"phase{'' if len(result.new_phases) == 1 else 's'} {', '.join(result.new_phases)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _sentence(console: Console, text: str, *, indent: int = 0) -> None:
    """Print a text in lines of whole words."""
    console.print(Padding(Text(text), (0, 0, 0, indent), expand=False))


def _line(console: Console, text: str, *, style: str = "") -> None:
    """Print a line that stays one, so that a path in it can be copied."""
    console.print(Text(text, style=style), soft_wrap=True)
