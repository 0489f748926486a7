# SPDX-License-Identifier: Apache-2.0
"""The process between the rig and the server that it starts: when one of them ends, nothing of the other stays.

Run as ``python -m vllm_omni_rig.guard RUN_DIRECTORY LOG COMMAND...``. It writes its own process number and the
server's on stdout, and stops the server when its stdin ends, which also happens when whoever started it is killed. It
adopts the server's orphans, so that it can end every process that the server ever started. Then it removes the run's
directory, and ends with the server's exit code, or 128 and the signal's number.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from vllm_omni_rig import preloaded

GRACE_S = 15.0
"""Time that the server has to stop by itself after SIGTERM."""
KILL_S = 5.0
POLL_S = 0.1


def shared_memory_of(processes: Iterable[psutil.Process]) -> set[Path]:
    """The files in ``/dev/shm`` that are mapped by ``processes``."""
    files: set[Path] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
            paths = (line.split(maxsplit=5)[-1].removesuffix(" (deleted)") for line in lines if "/dev/shm/" in line)
            files.update(Path(path) for path in paths)
    return files


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _stopped_from_outside() -> bool:
    """Whether stdin has ended; waits a moment for it."""
    ready, _, _ = select.select([sys.stdin], [], [], POLL_S)
    return bool(ready) and not os.read(sys.stdin.fileno(), 1024)


def _exit_code(server: psutil.Process, timeout_s: float = 0.0) -> int | None:
    """The server's exit code, minus the number of the signal that ended it; None if it has not ended by then."""
    with contextlib.suppress(psutil.TimeoutExpired):
        return server.wait(timeout_s)
    return None


def _stop(server: psutil.Process) -> int:
    """Ask the server to stop, and kill it if it does not."""
    server.terminate()
    code = _exit_code(server, GRACE_S)
    if code is None:
        server.kill()
        code = server.wait()
    return code


def _end_orphans() -> None:
    """Kill what is left of the server's processes; new ones may appear meanwhile."""
    deadline = time.monotonic() + KILL_S
    while (orphans := _descendants()) and time.monotonic() < deadline:
        for orphan in orphans:
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.kill()
        psutil.wait_procs(orphans, timeout=1)


def watch(server: psutil.Process) -> int:
    """Return the server's exit code when it has ended, by itself or because stdin did; nothing of it is left then."""
    shared: set[Path] = set()
    code: int | None = None  # SIGTERM may come before the first look
    try:
        while (code := _exit_code(server)) is None and not _stopped_from_outside():
            pass
    finally:
        shared |= shared_memory_of(_descendants())
        if code is None:
            code = _stop(server)
        shared |= shared_memory_of(_descendants())
        _end_orphans()
        for file in shared:
            file.unlink(missing_ok=True)
    return 128 - code if code < 0 else code


def _start(run: Path, log: Path, command: list[str]) -> psutil.Process:
    with log.open("ab") as output:
        if preloaded.forked():
            return psutil.Process(preloaded.fork(command[1:], run, output.fileno()))
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=run,
            preexec_fn=preloaded.die_with_parent,
        )
    return psutil.Process(process.pid)


def main(run: Path, log: Path, command: list[str]) -> int:
    preloaded.adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        server = _start(run, log, command)
        print(os.getpid(), server.pid, flush=True)
        return watch(server)
    finally:
        shutil.rmtree(run, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
