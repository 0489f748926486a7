# SPDX-License-Identifier: Apache-2.0
"""Interpreters that have imported vLLM-Omni once, and fork for each server: a start costs no imports then.

In a block ``with Interpreters():`` the servers that this process starts are forks. There is one interpreter for each
``PYTHONPATH``, that is for each tree, started when it is first asked for. It imports the module that vLLM-Omni's
command imports and does nothing else: it has no thread but those of numerical libraries, which allow for a fork.

A server that is forked starts its processes, those of the stages, from a fork as well: what :mod:`multiprocessing`
would execute anew (its method ``spawn``) is run in a fork of a process that was forked before the server began, and
becomes the server's child. Everything else of a server is as it is without.

Not for what must see its environment at the import of a module: several API processes (``prometheus_client`` chooses
there how it counts), or another Python environment.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import multiprocessing.util
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from vllm_omni_rig import notes

MODULE = "vllm_omni.entrypoints.cli.main"
"""What vLLM-Omni's command imports."""

_MESSAGE_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Ask the kernel to make this process the parent of its descendants that lose theirs."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


_in_use: "Interpreters | None" = None
_is_forked = False


def python(environment: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
    """The command for ``python ARGUMENTS``: in a fork, in a block of :class:`Interpreters`, and otherwise anew.

    Raises:
        RuntimeError: an interpreter with that environment could not import vLLM-Omni; why is on stderr.
    """
    address = [] if _in_use is None else ["-P", "-m", "vllm_omni_rig.preloaded", _in_use.address(environment)]
    return [sys.executable, *address, *arguments]


def forked() -> bool:
    """Whether this process is a fork of such an interpreter."""
    return _is_forked


class Interpreters:
    """The interpreters, by ``PYTHONPATH``; as a context manager it ends them."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="vllm-omni-rig-")
        self._started: dict[str, tuple[str, subprocess.Popen[str]]] = {}
        self._lock = threading.Lock()
        self._outer: Interpreters | None = None

    def __enter__(self) -> Self:
        global _in_use
        self._outer, _in_use = _in_use, self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _in_use
        _in_use = self._outer
        for _, process in self._started.values():
            _end(process)
        self._directory.cleanup()

    def address(self, environment: Mapping[str, str]) -> str:
        """Where the interpreter for that environment listens; starts it, if there is none or it was killed."""
        path = environment["PYTHONPATH"]
        with self._lock:
            address, process = self._started.get(path, ("", None))
            if process is not None and process.poll() is None:
                return address
            address = str(Path(tempfile.mkdtemp(dir=self._directory.name), "socket"))
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "vllm_omni_rig.preloaded", address],
                stdin=subprocess.PIPE,  # it ends with whoever holds the other end
                stdout=subprocess.PIPE,
                env={**environment, notes.RUN: self._directory.name},  # the rig's platform is chosen at an import
                text=True,
                start_new_session=True,
            )
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                _end(process)
                raise RuntimeError(f"An interpreter with PYTHONPATH={path} could not import {MODULE}.")
            self._started[path] = address, process
            return address


def _end(process: subprocess.Popen[str]) -> None:
    with process:  # not until the end of its stdout, which its forks have too
        process.kill()


def main(address: str, *arguments: str) -> None:
    """Without arguments be the interpreter at that address, otherwise have it run them."""
    if arguments:
        sys.exit(_ask(address, [*arguments]))
    _serve(address)


def _ask(address: str, arguments: list[str]) -> int:
    """Have ``python ARGUMENTS`` run in a fork, with this process's files, environment and directory; its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        _send(connection, [arguments, dict(os.environ), str(Path.cwd())], [0, 1, 2])
        return int(connection.recv(16) or 1)


def _serve(address: str) -> None:
    with contextlib.redirect_stdout(sys.stderr):
        importlib.import_module(MODULE)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not os.fork():
                listener.close()
                _end_with(_answer, connection)
            connection.close()


def _answer(connection: socket.socket) -> None:
    (arguments, environment, directory), files = _receive(connection)
    process = os.fork()
    if not process:
        connection.close()
        _place(dict(enumerate(files)))
        os.setsid()
        os.chdir(directory)
        _set_environment(environment)
        _end_with(_run, arguments)
    ended = os.pidfd_open(process)
    ready, _, _ = select.select([connection.fileno(), ended], [], [])
    if ended not in ready:  # who asked was killed
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(BrokenPipeError):
        connection.send(str(128 - code if code < 0 else code).encode())


def fork(arguments: Sequence[str], directory: Path, output: int) -> int:
    """Run ``python ARGUMENTS`` in a fork of this process, its output in that file; returns the process's number."""
    process = os.fork()
    if not process:
        die_with_parent()
        _place({0: os.open(os.devnull, os.O_RDONLY), 1: output, 2: os.dup(output)})
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(directory)
        _spawn_from_a_fork()
        _end_with(_run, arguments)
    return process


def _run(arguments: Sequence[str]) -> None:
    """What ``python [-P] (-m MODULE | FILE) ARGUMENT…`` does."""
    words = list(arguments[1:] if arguments[0] == "-P" else arguments)
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def _end_with(program: Callable[..., object], *arguments: object) -> NoReturn:
    """Call the program and end this process as Python would: nothing below on the stack is this process's."""
    global _is_forked
    _is_forked = True
    code: object = 0
    try:
        program(*arguments)
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit((code or 0) & 0xFF)


def _spawn_from_a_fork() -> None:
    """Have what :mod:`multiprocessing` executes run in forks of this process as it is now, as children of it."""
    mine, other = socket.socketpair()
    if not os.fork():
        die_with_parent()
        mine.close()
        _end_with(_fork_on_demand, other)
    other.close()
    adopt_orphans()
    lock = threading.Lock()
    execute: Callable[[bytes, Sequence[str], Sequence[int]], int] = vars(multiprocessing.util)["spawnv_passfds"]

    def spawn(path: bytes, arguments: Sequence[str], files: Sequence[int]) -> int:
        words = [os.fsdecode(word) for word in arguments]
        if "-c" not in words:
            return execute(path, arguments, files)
        with lock:
            _send(mine, [words[words.index("-c") :], dict(os.environ), list(files)], files)
            return int(mine.recv(16))

    vars(multiprocessing.util)["spawnv_passfds"] = spawn


def _fork_on_demand(connection: socket.socket) -> None:
    """Fork for each request; the parent of a fork ends at once, so that who asked becomes its parent."""
    while True:
        (words, environment, numbers), files = _receive(connection)
        reader, writer = os.pipe()
        if not (between := os.fork()):
            if process := os.fork():
                os.write(writer, str(process).encode())
                os._exit(0)
            for end in (reader, writer, connection.detach()):
                os.close(end)
            _place(dict(zip(numbers, files, strict=True)))
            _set_environment(environment)
            sys.argv = ["-c", *words[2:]]
            _spawn_from_a_fork()
            _end_with(exec, words[1], {"__name__": "__main__"})
        os.waitpid(between, 0)
        connection.send(os.read(reader, 16))
        for file in (reader, writer, *files):
            os.close(file)


def _set_environment(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None


def _place(files: Mapping[int, int]) -> None:
    """Give open files the numbers that are wanted: number → file; each file is closed under its own."""
    above = max([*files, *files.values(), 2]) + 1
    moved = {number: os.dup2(file, above + place) for place, (number, file) in enumerate(files.items())}
    for file in files.values():
        os.close(file)
    for number, file in moved.items():
        os.dup2(file, number)  # inheritable, as after an exec
        os.close(file)


def _send(connection: socket.socket, message: object, files: Sequence[int]) -> None:
    data = json.dumps(message).encode()
    socket.send_fds(connection, [len(data).to_bytes(4)], files)
    connection.sendall(data)


def _receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """A message and its files; ends this process at the end of the connection."""
    size, files, _, _ = socket.recv_fds(connection, 4, 253)
    if not size:
        sys.exit()
    data = b""
    while len(data) < int.from_bytes(size):
        if not (part := connection.recv(_MESSAGE_BYTES)):
            sys.exit()
        data += part
    return json.loads(data), files


if __name__ == "__main__":
    from vllm_omni_rig import preloaded  # the guard, in a fork, asks this module, not __main__

    preloaded.main(*sys.argv[1:])
