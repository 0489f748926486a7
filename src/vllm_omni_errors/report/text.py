# SPDX-License-Identifier: Apache-2.0
"""Reports as tables in a terminal, of one run or of several side by side."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from vllm_omni_errors.report.model import (
    TRANSPORTS,
    WORDS,
    Reportable,
    as_json,
    beyond,
    by_check,
    counts,
    skips,
    summary,
)

STYLES: Mapping[str, str] = {"pass": "green", "fail": "bold red", "skip": "dim"}
MARKS: Mapping[str, str] = {"pass": "✓", "fail": "✗", "skip": "–"}
# A cell tells the plainest things; the page and the JSON tell everything.
WHY_CHARACTERS = 200
COMPARED_CHARACTERS = 110


def print_report(report: Reportable, console: Console) -> None:
    """One row per check that was run, by transport; then what was skipped and why, and a summary."""
    data = as_json(report)
    for transport, title in TRANSPORTS.items():
        checks = [item for item in data["checks"] if item["transport"] == transport]
        if run := [item for item in checks if item["verdict"] != "skip"]:
            console.print(Text.assemble("\n", (title, "bold"), f" · {counts(checks)}"))
            console.print(_table_of(run))
    if skipped := skips(data):
        console.print(Text("\nSkipped", style="bold"))
        console.print(_table_of_skips(skipped))
    console.print()
    if broken := [item for item in data["checks"] if item["verdict"] == "fail"]:
        console.print(Text(f"Broken: {', '.join(item['id'] for item in broken)}\n", style=STYLES["fail"]))
    for note in data["notes"]:
        console.print(Text(note, style="dim"))
    if more := beyond(data):
        console.print(Text(f"{more} checks saw something that this kind of server never promised.", style="dim"))
    console.print(
        f"{escape(str(data['url']))} · model {escape(str(data['model']))} · {data['seconds']:.0f} s", highlight=False
    )
    console.print(f"[bold]{summary(data)}[/bold]", highlight=False)


def _table_of(checks: Iterable[Mapping[str, Any]]) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, show_header=False)
    table.add_column(width=1)
    table.add_column(ratio=3, overflow="fold")
    table.add_column(ratio=5, overflow="fold")
    for item in checks:
        style = STYLES[item["verdict"]]
        name = Text(item["name"], style="" if item["verdict"] == "fail" else style)
        table.add_row(Text(MARKS[item["verdict"]], style=style), name, _why(item, WHY_CHARACTERS))
    return table


def _table_of_skips(skipped: Mapping[str, Iterable[str]]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    for why, names in skipped.items():
        table.add_row(MARKS["skip"], Text(f"{_clean(why, WHY_CHARACTERS)}: {'; '.join(names)}"), style=STYLES["skip"])
    return table


def print_comparison(sides: Mapping[str, Reportable], console: Console) -> None:
    """One row per check, one column per side."""
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, show_edge=False)
    table.add_column("Check", ratio=3, overflow="fold")
    for name in sides:
        table.add_column(name, ratio=5, overflow="fold")
    for item, results in by_check(sides):
        cells = [_marked(result) for result in results.values()]
        table.add_row(Text(item["name"]), *cells)
    console.print(table)
    for name, report in sides.items():
        console.print(f"[bold]{escape(name)}[/bold]: {summary(as_json(report))}", highlight=False)


def _marked(result: Mapping[str, Any]) -> Text:
    verdict = result["verdict"]
    return Text.assemble((f"{MARKS[verdict]} ", STYLES[verdict]), _why(result, COMPARED_CHARACTERS))


def _why(item: Mapping[str, Any], characters: int) -> Text:
    why = _clean(item["why"] or WORDS[item["verdict"]], characters)
    return Text(why, style="" if item["verdict"] == "fail" else STYLES[item["verdict"]])


def _clean(text: str, characters: int) -> str:
    """A text without control characters, which a server's answer may have, and bounded."""
    clean = "".join(character if character.isprintable() else "·" for character in text)
    return clean if len(clean) <= characters else clean[: characters - 1] + "…"
