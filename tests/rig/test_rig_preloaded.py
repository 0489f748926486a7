# SPDX-License-Identifier: Apache-2.0
"""A program in a fork of an interpreter that has imported vLLM-Omni is a program as any other."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from test_rig_server import gone

from vllm_omni_rig.environment import variables
from vllm_omni_rig.preloaded import Interpreters, python
from vllm_omni_rig.server import SETTINGS, Server

ENVIRONMENT = os.environ | SETTINGS | variables()
DEADLINE_S = 120

ENDS = {
    "at its end": ("print('whole')", 0),
    "with a code": ("import sys; sys.exit(7)", 7),
    "with a sentence": ("import sys; sys.exit('no such model')", 1),
    "with an exception": ("raise ValueError('wrong')", 1),
    "with what is registered": ("import atexit; atexit.register(print, 'last')", 0),
    "with what a thread still does": (
        "import threading, time; threading.Thread(target=lambda: (time.sleep(0.5), print('last'))).start()",
        0,
    ),
}


def run(command: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    said = [line for line in done.stderr.splitlines() if not line.startswith("vllm-omni-rig: ")]
    return done.returncode, done.stdout, said[-1] if said else ""


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], list[str]]:
    """``program(text)``: what follows ``python`` on the command line that runs the text."""

    def write(text: str) -> list[str]:
        path = tmp_path / "program.py"
        path.write_text(text)
        return ["-P", str(path)]

    return write


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_as_it_would_anew(end: str, program: Callable[[str], list[str]]) -> None:
    text, code = ENDS[end]
    anew, forked = ([sys.executable, *program(text)], python(ENVIRONMENT, program(text)))
    assert anew != forked
    assert run(forked) == run(anew)
    assert run(forked)[0] == code


def test_only_imports_are_there_before_it_begins(program: Callable[[str], list[str]]) -> None:
    text = "import sys, threading; print('torch' in sys.modules, threading.active_count(), __name__, sys.argv[1:])"
    assert run([*python(ENVIRONMENT, program(text)), "--word"])[1] == "True 1 __main__ ['--word']\n"


def test_a_program_sees_its_own_environment(
    program: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = python(ENVIRONMENT, program("import os; print(os.environ['OF_THIS_ONE'])"))
    monkeypatch.setitem(ENVIRONMENT, "OF_THIS_ONE", "here")
    assert run(command)[1] == "here\n"


def test_who_asks_and_is_killed_takes_the_program_with_it(program: Callable[[str], list[str]]) -> None:
    text = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen(
        python(ENVIRONMENT, program(text)), env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as asking:
        assert asking.stdout is not None
        process = psutil.Process(int(asking.stdout.readline()))
        assert process.is_running()
        asking.kill()
    assert gone([process], 30)


def test_the_processes_of_a_server_are_its_children_and_have_imported_nothing_again(stock: Server) -> None:
    """A stage that imports everything anew takes over 15 s of CPU time for that alone."""
    for pid in stock.stage_pids().values():
        process = psutil.Process(pid)
        assert process.ppid() == stock.process
        assert "spawn_main" not in " ".join(process.cmdline())


def test_an_interpreter_that_was_killed_is_started_again(program: Callable[[str], list[str]]) -> None:
    with Interpreters():
        command = python(ENVIRONMENT, program("print('whole')"))
        [interpreter] = [each for each in psutil.Process().children() if command[4] in each.cmdline()]
        interpreter.kill()
        interpreter.wait(30)
        assert run(python(ENVIRONMENT, program("print('whole')"))) == (0, "whole\n", "")


def test_a_program_goes_on_when_its_interpreter_has_ended(program: Callable[[str], list[str]]) -> None:
    with Interpreters():
        command = python(ENVIRONMENT, program("print('began', flush=True); print(input())"))
        asking = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert asking.stdout is not None
        assert asking.stdout.readline() == "began\n"
    assert asking.communicate("went on\n", DEADLINE_S) == ("went on\n", None)
    assert asking.returncode == 0


def test_an_interpreter_ends_with_who_started_it(tmp_path: Path) -> None:
    text = (
        "import os\nfrom vllm_omni_rig.preloaded import Interpreters, python\n"
        "with Interpreters():\n    python(os.environ, [])\n    print('up', flush=True)\n    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starting:
        assert starting.stdout is not None
        assert starting.stdout.readline() == "up\n"
        children = psutil.Process(starting.pid).children()
        assert len(children) == 1
        starting.kill()
    assert gone(children, 30)
