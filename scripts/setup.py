#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the environment that every target of the Makefile runs in.

    python3 scripts/setup.py --venv .venv        a fresh one, from requirements.lock
    python3 scripts/setup.py --venv /opt/gpu     an existing one: adds what is missing, replaces nothing

Standard library only; running it again does nothing, or finishes what an interrupted run began.
Exit code 0, or 1 with one sentence on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
TORCH = "torch==2.13.0"
SUPPORTED = ((3, 11), (3, 14))
FREE_BYTES_NEEDED = 6 * 1024**3
STAMP = "vllm-omni-errors-setup.sha256"
INPUTS = ("scripts/setup.py", "requirements.lock", "pyproject.toml", "rig/pyproject.toml")

# What pip prints -> what it means for the reader.
CAUSES = (
    (r"No space left on device", "the disk is full; free about 6 GB"),
    (
        r"Connection ?Error|ConnectionRefused|NewConnectionError|Max retries|Read timed out|Temporary failure"
        r"|ProxyError|SSLError|HTTP err|connection broken|Cannot connect",
        "a download failed; check the network or pip's settings",
    ),
    (
        r"Could not find a version|No matching distribution",
        "the package registry does not offer a package of this version for this Python and machine",
    ),
    (r"ResolutionImpossible|conflicting dependencies", "a missing package would replace one that is already there"),
)


class SetupError(Exception):
    """A sentence for the user."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def version_of(python: Path) -> tuple[int, int]:
    """Major and minor version of an interpreter. Raises SetupError if it does not run."""
    try:
        out = subprocess.run(
            [str(python), "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=True
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError) as exc:
        raise SetupError(f"{python} does not run ({exc}); remove the directory, or give another one as VENV=…") from exc
    return int(out[0]), int(out[1])


def check_version(version: tuple[int, int], which: str) -> None:
    low, high = SUPPORTED
    if not low <= version < high:
        raise SetupError(
            f"{which} is Python {version[0]}.{version[1]}, and 3.11, 3.12 or 3.13 is needed; "
            "name one with `make setup PYTHON=python3.11`."
        )


class Log:
    """Runs commands, shows a line of progress, keeps their output in one file."""

    def __init__(self, path: Path, steps: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.steps, self.step = path, steps, 0
        self.file = path.open("w")

    def run(self, what: str, command: list[str]) -> None:
        """Run one step. Raises SetupError with the cause if it fails."""
        self.step += 1
        start = time.monotonic()
        say(f"[{self.step}/{self.steps}] {what} …")
        self.file.write(f"\n$ {' '.join(command)}\n")
        self.file.flush()
        begin = self.file.tell()
        process = subprocess.Popen(command, stdout=self.file, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            code = self._wait(process)
            while code is None:
                say(f"      still at it, {time.monotonic() - start:.0f} s")
                code = self._wait(process)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if code != 0:
            raise SetupError(f"{what}: {self._cause(begin)}. The log is {self.path}; run the same command again.")
        say(f"      done in {time.monotonic() - start:.0f} s")

    @staticmethod
    def _wait(process: subprocess.Popen[bytes]) -> int | None:
        try:
            return process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            return None

    def _cause(self, begin: int) -> str:
        text = self.path.read_text(errors="replace")[begin:]
        for pattern, meaning in CAUSES:
            if re.search(pattern, text):
                return meaning
        errors = [line for line in text.splitlines() if line.startswith("ERROR")]
        return errors[-1] if errors else "the installation failed"


def fingerprint(mode: str) -> str:
    digest = hashlib.sha256(mode.encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def create(venv: Path, log: Log) -> None:
    """A fresh environment of our own."""
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    log.run("Virtual environment", [sys.executable, "-m", "venv", str(venv)])
    log.run("pip", [*pip, "install", "--upgrade", "pip>=25.1"])
    log.run("vLLM, vLLM-Omni, tools and tests", [*pip, "install", "--no-deps", "--requirement", str(LOCK)])
    log.run("PyTorch (the largest download)", [*pip, "install", TORCH])
    log.run("This project", [*pip, "install", "--no-deps", "--no-build-isolation", "-e", ".", "-e", "rig"])


def extend(venv: Path, log: Log) -> None:
    """Add what is missing to an environment that somebody else made, and replace nothing in it."""
    import tomllib

    python = str(venv / "bin" / "python")
    for module in ("torch", "vllm", "vllm_omni"):
        probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        if subprocess.run([python, "-c", probe], check=False).returncode:
            raise SetupError(
                f"{venv} has no {module}; install it there first, or leave VENV out to get a fresh environment."
            )
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    frozen = subprocess.run([*pip, "freeze", "--exclude-editable"], capture_output=True, text=True, check=True).stdout
    kept = log.path.with_name("setup-constraints.txt")
    kept.write_text("".join(line + "\n" for line in frozen.splitlines() if "==" in line))
    ours, rig = (tomllib.loads((ROOT / name).read_text()) for name in ("pyproject.toml", "rig/pyproject.toml"))
    wanted = [
        *ours["project"]["dependencies"],
        *ours["project"]["optional-dependencies"]["tools"],
        *ours["dependency-groups"]["dev"],
        *rig["project"]["dependencies"],
    ]
    log.run("Tools and tests that are missing", [*pip, "install", "--constraint", str(kept), *wanted])
    log.run("This project", [*pip, "install", "--no-deps", "-e", ".", "-e", "rig"])


def setup(venv: Path) -> None:
    """Bring `venv` up to date. Raises SetupError."""
    check_version(sys.version_info[:2], sys.executable)
    own = venv == ROOT / ".venv"
    python = venv / "bin" / "python"
    stamp = venv / STAMP
    wanted = fingerprint("own" if own else "theirs")
    if stamp.exists() and stamp.read_text() == wanted and python.exists():
        return
    if own:
        if venv.exists():
            try:
                check_version(version_of(python), str(python))
            except SetupError:
                say(f"{venv} is unusable and is made anew.")
                shutil.rmtree(venv)
        free = shutil.disk_usage(ROOT).free
        if not venv.exists() and free < FREE_BYTES_NEEDED:
            raise SetupError(f"{free / 1024**3:.1f} GB are free under {ROOT}, and 6 GB are needed; free some space.")
    elif not python.exists():
        raise SetupError(f"{venv} is no virtual environment (no bin/python); make it first, or leave VENV out.")
    else:
        check_version(version_of(python), str(python))
    log = Log(ROOT / "build" / "setup.log", steps=5 if own else 2)
    say(f"Setting up {venv}: about {'4 minutes' if own else '1 minute'}, log in {log.path}")
    (create if own else extend)(venv, log)
    stamp.write_text(wanted)


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """One set-up at a time; the second one waits and then finds the work done."""
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("Another set-up is running; waiting for it …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _terminate(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, _terminate)
    parser = argparse.ArgumentParser(description="Make or extend the project's environment.")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="directory (default: .venv)")
    venv = Path(os.path.abspath(parser.parse_args().venv))
    try:
        with exclusive():
            setup(venv)
    except SetupError as exc:
        say(f"setup: {exc}")
        return 1
    except OSError as exc:
        say(f"setup: {exc.strerror} ({exc.filename or venv}); free some space or choose another directory with VENV=….")
        return 1
    except KeyboardInterrupt:
        say("setup: interrupted; run the same command again to finish.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
