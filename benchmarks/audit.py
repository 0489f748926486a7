# SPDX-License-Identifier: Apache-2.0
"""The audit of the installed vLLM-Omni in fresh processes, beside the parser alone and semgrep with one rule."""

import importlib.util
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import semgrep
from .measure import Result

REPETITIONS = 5
SAMPLE_S = 0.02
LIMIT_S = 900
PARSER = """
import ast, pathlib, sys, time
texts = [path.read_bytes() for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.py"))]
wall, cpu = time.perf_counter(), time.process_time()
for text in texts:
    ast.parse(text)
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


@dataclass(frozen=True, slots=True)
class Took:
    """What a program took, all its processes together, in seconds."""

    wall: float
    cpu: float


def run() -> Iterator[Result]:
    """Yield every line of the subject."""
    tree = installed()
    parser, cold, warm = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(REPETITIONS):
            command = audit_command(tree, Path(folder) / f"{number}.sqlite")
            parser.append(_parsing(tree))
            cold.append(timed(command))
            warm.append(timed(command))
        peak_mib = _peak_mib(audit_command(tree, Path(folder) / "peak.sqlite"))
        other = _semgrep(tree, Path(folder))
    pairs = list(zip(cold, parser, strict=True))
    yield Result(
        "audit", "cold / ast.parse alone, wall", statistics.median(c.wall / p.wall for c, p in pairs), "×", 1.2
    )
    yield Result("audit", "cold / ast.parse alone", statistics.median(c.cpu / p.cpu for c, p in pairs), "×")
    yield Result("audit", "cold, wall", statistics.median(took.wall for took in cold), "s")
    yield Result("audit", "warm, wall", statistics.median(took.wall for took in warm), "s", 1)
    yield Result("audit", "cold, memory of all its processes at its peak", peak_mib, "MiB", 150)
    if other is not None:
        yield Result("audit", "semgrep with one rule, wall", other.wall, "s")
        yield Result("audit", "semgrep with one rule / cold", other.cpu / statistics.median(c.cpu for c in cold), "×")


def installed() -> Path:
    """The directory of the installed ``vllm_omni``."""
    spec = importlib.util.find_spec("vllm_omni")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def audit_command(tree: Path, cache: Path) -> list[str]:
    """The command line that audits a tree with a cache of its own."""
    return [sys.executable, "-m", "vllm_omni_errors.cli", "audit", str(tree), "--cache", str(cache)]


def _parsing(tree: Path) -> Took:
    """One loop over texts that are in memory already; neither the program's start nor its reading counts."""
    command = [sys.executable, "-c", PARSER, str(tree)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S)
    return Took(*map(float, done.stdout.split()))


def timed(command: Sequence[str], cwd: Path | None = None) -> Took:
    """Seconds of a whole program and its children, from its start to its end.

    Raises subprocess.CalledProcessError if it fails, subprocess.TimeoutExpired after ``LIMIT_S``.
    """
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S, cwd=cwd)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _peak_mib(command: Sequence[str]) -> float:
    """The most memory that a program and its children had at one time; what they share counts once."""
    peak = 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(_proportional_mib, [process.pid, *_children(process.pid)])))
            time.sleep(SAMPLE_S)
    assert process.returncode == 0, process.returncode
    return peak


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _proportional_mib(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:  # it ended meanwhile
        pass
    return 0.0


def _semgrep(tree: Path, folder: Path) -> Took | None:
    """Semgrep over the same files, once; None if there is no semgrep."""
    program = semgrep.program()
    if program is None:
        return None
    copy = folder / "tree"  # outside of any checkout, whose ignored folders semgrep would skip
    shutil.copytree(
        tree,
        copy,
        ignore=lambda place, names: {n for n in names if (Path(place) / n).is_file() and not n.endswith(".py")},
    )
    return timed(semgrep.command(program, folder), cwd=copy)
