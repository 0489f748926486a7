# SPDX-License-Identifier: Apache-2.0
"""Audit and migrate in fresh processes: how their time grows with the tree, and migrate's with what it changes."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from .audit import Took, audit_command, installed, timed
from .measure import Result, exponent
from .servers import say

SIZES = (1, 2, 4)
FIRST, *LATER = "bridge", "requests", "finalize"
"""A rewrite names its file, so what grows with the tree is what every phase does, and the first one shows it."""


def run() -> Iterator[Result]:
    """Yield every line of the subject."""
    audits: dict[int, Took] = {}
    bridges: dict[int, Took] = {}
    phases: dict[int, Took] = {}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        trees = {size: _tree(folder / f"tree-{size}", size) for size in SIZES}
        for size, tree in trees.items():
            audits[size] = timed(audit_command(tree / "vllm_omni", folder / f"{size}.sqlite"))
            say(f"growth: audit of {size} × the tree, {audits[size].wall:.0f} s")
            bridges[size], changed = _migrated(tree, folder / f"out-{size}", FIRST)
            phases.setdefault(changed, bridges[size])
        for phase in LATER:
            took, changed = _migrated(trees[1], folder / f"out-{phase}", phase)
            phases[changed] = took
    yield from _lines("audit, with the tree", audits)
    yield from _lines(f"migrate --phase {FIRST}, with the tree", bridges)
    yield from _lines(f"migrate, with the files it changes ({', '.join(map(str, phases))})", phases)
    yield Result("growth", "migrate, the whole tree and all phases, wall", took.wall, "s")
    yield Result("growth", "migrate, the whole tree and all phases", took.cpu, "s")


def _lines(what: str, times: Mapping[int, Took]) -> Iterator[Result]:
    yield Result("growth", f"{what}: exponent, wall", exponent({size: t.wall for size, t in times.items()}), "", 1.1)
    yield Result("growth", f"{what}: exponent", exponent({size: t.cpu for size, t in times.items()}), "", 1.1)


def _tree(folder: Path, size: int) -> Path:
    """A folder with a vLLM-Omni, and in that one as many more as make it so large."""
    package = folder / "vllm_omni"
    for place in (package, *(package / f"copy_{number}" for number in range(1, size))):
        shutil.copytree(installed(), place, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def _migrated(tree: Path, out: Path, phase: str) -> tuple[Took, int]:
    """What it took, and how many files it changed."""
    done = out.with_suffix(".json")
    unaudited = f"XDG_CACHE_HOME={out.with_suffix('.cache')}"  # else only the first run reads the tree
    command = ["env", unaudited, sys.executable, "-m", "vllm_omni_errors.cli", "migrate", str(tree)]
    took = timed([*command, "--out", str(out), "--phase", phase, "--json", str(done)])
    changed = len(json.loads(done.read_text())["files"])
    say(f"growth: migrate --phase {phase}, {changed} files, {took.wall:.0f} s")
    return took, changed
