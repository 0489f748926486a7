# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks [SUBJECT …] [--json FILE]``: a table on stdout, and the same numbers as JSON."""

import argparse
import importlib
import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vllm_omni_rig import environment

from .measure import Result

SUBJECTS = ("conversion", "wire", "sanitizer", "imports", "audit", "growth", "serving", "flood", "probe", "killed")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)}; all by default")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    unknown = set(options.subjects) - set(SUBJECTS)
    if unknown:
        parser.error(f"no subject {', '.join(sorted(unknown))}; known are {', '.join(SUBJECTS)}")
    environment.activate()
    results = [
        result
        for subject in options.subjects or SUBJECTS
        for result in importlib.import_module(f"benchmarks.{subject}").run()
    ]
    show(results)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        lines = [{**asdict(result), "verdict": result.verdict} for result in results]
        options.json.write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n")


def show(results: list[Result]) -> None:
    """Print the table."""
    table = Table(title="Medians of interleaved repetitions, CPU time unless it says wall")
    for column in ("subject", "what", "measured", "goal", ""):
        table.add_column(column, justify="right" if column in ("measured", "goal") else "left")
    for result in results:
        goal = "" if result.goal is None else f"≤ {result.goal:,g} {result.unit}"
        style = {"met": "green", "missed": "red"}.get(result.verdict, "")
        table.add_row(
            result.subject, result.what, f"{result.value:,.3g} {result.unit}", goal, result.verdict, style=style
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
