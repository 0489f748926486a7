# SPDX-License-Identifier: Apache-2.0
"""The process that ends everything: on small programs in the server's place."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from vllm_omni_rig import guard as guard_module

Guard = Callable[..., "subprocess.Popen[str]"]

WAIT = "import time; time.sleep(60)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {WAIT}"
WITH_AN_ORPHAN = f'''
import subprocess, sys
middle = """
import subprocess, sys
command = [sys.executable, "-c", {WAIT!r}]
print(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True).pid)
"""
print(subprocess.run([sys.executable, "-c", middle], capture_output=True, text=True).stdout, flush=True)
{WAIT}
'''
WITH_SHARED_MEMORY = f"""
import mmap
file = open("/dev/shm/vllm-omni-rig-test", "w+b")
file.truncate(4096)
shared = mmap.mmap(file.fileno(), 4096)
print("mapped", flush=True)
{WAIT}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    return directory


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def guard(run: Path, log: Path) -> Iterator[Guard]:
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-P", "-m", "vllm_omni_rig.guard", str(run), str(log), sys.executable, "-c", code]
        started.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


def server(guard: "subprocess.Popen[str]") -> psutil.Process:
    assert guard.stdout is not None
    own, servers = map(int, guard.stdout.readline().split())
    assert own == guard.pid
    return psutil.Process(servers)


def wait_for(log: Path, process: psutil.Process) -> str:
    """What the server wrote first."""
    while not (text := log.read_text()):
        assert process.is_running()
    return text.strip()


def let_go(guard: "subprocess.Popen[str]") -> None:
    assert guard.stdin is not None
    guard.stdin.close()


def test_it_ends_with_the_servers_exit_code(guard: Guard) -> None:
    assert guard("raise SystemExit(7)").wait(20) == 7


def test_a_signal_that_ended_the_server_is_its_exit_code(guard: Guard) -> None:
    process = guard(WAIT)
    server(process).kill()
    assert process.wait(20) == 128 + 9


def test_the_servers_output_goes_to_the_log(guard: Guard, log: Path) -> None:
    guard("import sys; print('out', flush=True); print('err', file=sys.stderr)").wait(20)
    assert log.read_text() == "out\nerr\n"


def test_it_works_in_the_runs_directory_and_removes_it(guard: Guard, run: Path, log: Path) -> None:
    guard("import os; print(os.getcwd())").wait(20)
    assert log.read_text().strip() == str(run)
    assert not run.exists()


def test_the_server_is_asked_to_stop_when_nobody_holds_the_guard(guard: Guard) -> None:
    process = guard(WAIT)
    server(process)
    let_go(process)
    assert process.wait(10) == 128 + 15


def test_a_server_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "GRACE_S", 0.2)
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        assert deaf.stdout.readline() == b"deaf\n"
        assert guard_module._stop(psutil.Process(deaf.pid)) == -9


def test_an_orphan_in_a_session_of_its_own_is_ended_too(guard: Guard, log: Path) -> None:
    process = guard(WITH_AN_ORPHAN)
    orphan = psutil.Process(int(wait_for(log, server(process))))
    let_go(process)
    process.wait(20)
    assert not orphan.is_running()


def test_the_orphans_of_a_server_that_died_are_ended_too(guard: Guard, log: Path) -> None:
    process = guard(WITH_AN_ORPHAN)
    parent = server(process)
    orphan = psutil.Process(int(wait_for(log, parent)))
    parent.kill()
    process.wait(20)
    assert not orphan.is_running()


def test_shared_memory_of_a_killed_server_is_removed(guard: Guard, log: Path) -> None:
    process = guard(WITH_SHARED_MEMORY)
    wait_for(log, server(process))
    assert Path("/dev/shm/vllm-omni-rig-test").exists()
    let_go(process)
    process.wait(20)
    assert not Path("/dev/shm/vllm-omni-rig-test").exists()


def test_the_server_dies_with_a_guard_that_is_killed(guard: Guard) -> None:
    process = guard(WAIT)
    orphan = server(process)
    process.kill()
    process.wait()
    assert psutil.wait_procs([orphan], timeout=10)[1] == []


def test_a_command_that_cannot_be_started_is_an_error(run: Path, log: Path) -> None:
    command = [sys.executable, "-P", "-m", "vllm_omni_rig.guard", str(run), str(log), "/no/such/program"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert result.returncode != 0
    assert result.stdout == ""
    assert not run.exists()
