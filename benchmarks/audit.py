# SPDX-License-Identifier: Apache-2.0
"""How long the audit of an installed vLLM-Omni takes, beside what the parser alone needs in the same run.

    python benchmarks/audit.py [--tree DIR] [--rounds N] [--out FILE]

Writes JSON: seconds of wall time (least of the rounds), the ratio of cold to the parser, peak memory of all processes
in MiB. Semgrep with one equivalent rule (`raise ValueError(...)`) is timed if it is installed.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

COLD_RATIO_LIMIT = 1.2
WARM_LIMIT_S = 1.0
MEMORY_LIMIT_MIB = 150
SAMPLE_S = 0.02

_PARSE = """
import ast, pathlib, sys, time
texts = [path.read_bytes() for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.py"))]
start = time.perf_counter()
for text in texts:
    ast.parse(text)
print(time.perf_counter() - start)
"""
_AUDIT = """
import sys
from vllm_omni_errors.audit.command import audit
sys.argv = ["audit", *sys.argv[1:]]
audit()
"""


def installed() -> Path:
    """The installed vLLM-Omni, without importing it."""
    spec = importlib.util.find_spec("vllm_omni")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def parse_seconds(tree: Path) -> float:
    """What ``ast.parse`` needs for every file, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", _PARSE, str(tree)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def audit_seconds(tree: Path, cache: Path) -> tuple[float, float]:
    """Wall time of a whole `omni-errors audit`, and the peak memory of it and its children, in MiB."""
    command = [sys.executable, "-c", _AUDIT, str(tree), "--cache", str(cache)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = [0.0]

    def watch() -> None:
        while process.poll() is None:
            peak[0] = max(peak[0], sum(map(_proportional_mib, [process.pid, *_children(process.pid)])))
            time.sleep(SAMPLE_S)

    watching = threading.Thread(target=watch)
    watching.start()
    code = process.wait()
    seconds = time.perf_counter() - start
    watching.join()
    assert code == 0, code
    return seconds, peak[0]


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _proportional_mib(pid: int) -> float:
    """Memory of a process; what it shares with others counts in parts."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def semgrep_seconds(tree: Path) -> float | None:
    """Semgrep with one equivalent rule, or None if it is not installed."""
    program = shutil.which("semgrep") or shutil.which("semgrep", path=str(Path(sys.executable).parent))
    if program is None:
        return None
    command = [program, "--lang", "python", "--pattern", "raise ValueError(...)", "--metrics", "off", "--json"]
    start = time.perf_counter()
    subprocess.run([*command, "--no-git-ignore", str(tree)], check=False, capture_output=True)
    return time.perf_counter() - start


def measure(tree: Path, rounds: int) -> dict[str, Any]:
    """All numbers; parser and audit take turns, so that both meet the same load."""
    parse, cold, warm, cold_mib, warm_mib = [], [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            cache = Path(folder) / f"{number}.sqlite"
            parse.append(parse_seconds(tree))
            for seconds, memory in ((cold, cold_mib), (warm, warm_mib)):
                took, used = audit_seconds(tree, cache)
                seconds.append(took)
                memory.append(used)
    return {
        "tree": tree.name,
        "cores": len(os.sched_getaffinity(0)),
        "python": ".".join(map(str, sys.version_info[:3])),
        "parse_s": round(min(parse), 3),
        "cold_s": round(min(cold), 3),
        "warm_s": round(min(warm), 3),
        "cold_to_parse": round(min(c / p for c, p in zip(cold, parse, strict=True)), 3),
        "cold_mib": round(max(cold_mib), 1),
        "warm_mib": round(max(warm_mib), 1),
        "semgrep_s": semgrep_seconds(tree),
        "limits": {"cold_to_parse": COLD_RATIO_LIMIT, "warm_s": WARM_LIMIT_S, "mib": MEMORY_LIMIT_MIB},
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    found = measure(arguments.tree or installed(), arguments.rounds)
    text = json.dumps({"audit": found}, indent=1) + "\n"
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
