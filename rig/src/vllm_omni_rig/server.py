# SPDX-License-Identifier: Apache-2.0
"""Starts and stops the server: ``with start(2) as server: …``.

What is started is vLLM-Omni's own ``vllm-omni serve --omni`` (or the scripted server, ``vllm_omni_rig.scripted``) with
nothing changed but what ``vllm_omni_rig.environment`` lists. It serves the model ``tiny`` on the loopback interface.
"""

import contextlib
import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import psutil

from vllm_omni_rig import census, checkpoint, faults, notes
from vllm_omni_rig.environment import variables as workaround_variables
from vllm_omni_rig.preloaded import python
from vllm_omni_rig.scripted import KINDS

PROGRAM = Path(sysconfig.get_path("scripts"), "vllm-omni")
MODEL_NAME = "tiny"
HOST = "127.0.0.1"
PORTS = range(20_000, 30_000)
"""Below those that the system gives to clients: the server takes its port only some time after it was found free."""
READY_DEADLINE_S = 420.0
PROGRESS_EVERY_S = 5.0
STOP_DEADLINE_S = 30.0
LOG_TAIL_LINES = 30

SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB, the least that it takes
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # vLLM-Omni starts the stages' processes itself
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }
)
"""Environment variables of the server that are the rig's choice; ``start(environment=…)`` may override them."""

_DIFFUSION = {
    "max_num_seqs": 1,
    "enforce_eager": True,
    "default_sampling_params": {"seed": 1, "num_inference_steps": 2},
}
_LANGUAGE = {
    "max_num_seqs": 4,
    "max_model_len": 256,
    "max_num_batched_tokens": 2048,
    "gpu_memory_utilization": 0.2,
    "num_gpu_blocks_override": 32,
    "enforce_eager": True,
    "enable_prefix_caching": False,
    "load_format": "dummy",
    "logits_processors": ["vllm_omni_rig.language:FaultLogitsProcessor"],
    "default_sampling_params": {"temperature": 0.0, "max_tokens": 8, "ignore_eos": True},
}
DEPLOYMENTS: Mapping[int, Mapping[str, object]] = MappingProxyType(
    {
        1: {
            "pipeline": "rig_one",
            "async_chunk": False,
            "stages": [{"stage_id": 0, "devices": "0", "model_class_name": "RigOnlyPipeline", **_DIFFUSION}],
        },
        2: {
            "pipeline": "rig_two",
            "async_chunk": False,
            "dtype": "float32",
            "distributed_executor_backend": "uni",  # `mp` needs a torch accelerator: README, "Not here"
            "stages": [
                {"stage_id": 0, "devices": "0", **_LANGUAGE},
                {"stage_id": 1, "devices": "1", "model_class_name": "RigPipeline", **_DIFFUSION},
            ],
        },
    }
)
"""Number of stages → vLLM-Omni's deployment file; its pipelines are in :mod:`vllm_omni_rig.topology`."""

SHARED_DEPLOYMENT: Mapping[str, object] = MappingProxyType(
    {
        **DEPLOYMENTS[2],
        "pipeline": "rig_text",
        "stages": [{"stage_id": 0, "devices": "0", **_LANGUAGE}],
    }
)
"""For several API processes, which cannot share a diffusion stage."""

PHASES = (
    ("Application startup complete", "almost there"),
    ("Route: /health", "the server is made"),
    ("StageDiffusionProc initialized", "the diffusion stage is up"),
    ("init engine (profile", "the AR stage is up"),
    ("Initializing a V1 LLM engine", "the AR stage starts"),
    ("Available plugins for group", "vLLM-Omni is imported"),
    ("", "Python imports torch, vLLM and vLLM-Omni"),
)
"""What a line in the log means, the latest first."""

_LABEL = re.compile(r'(\w+)="([^"]*)"')

Progress = Callable[[str], None]


class RigError(Exception):
    """The server could not be started; the text says why and what to do."""


class Server:
    """A running server. As a context manager it stops the server at the end."""

    def __init__(self, port: int, log: Path, run: Path, guard: subprocess.Popen[str]) -> None:
        self.port = port
        self.url = f"http://{HOST}:{port}"
        self.log = log
        self.process = 0
        """The API process's number; the guard says it first of all, after its own."""
        self._guard_process = 0
        self._run = run
        self._guard = guard

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def exit_code(self) -> int | None:
        """The API process's exit code, 128 and the number if a signal ended it; None while it runs."""
        return self._guard.poll()

    def alive(self) -> bool:
        """Whether the API process runs (and whoever watches over it, too)."""
        with contextlib.suppress(psutil.NoSuchProcess):
            status = psutil.Process(self.process).status()
            return self.exit_code is None and status not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return False

    def wait_until_dead(self, deadline_s: float) -> bool:
        """Wait until the server has ended by itself; False if it has not after ``deadline_s`` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(deadline_s)
            return True
        return False

    def stage_pids(self) -> dict[int, int]:
        """Stage → the process that runs it, which for an inline stage is the API process; those that are alive."""
        return {note.stage: note.pid for note in notes.read(self._run) if note.stage is not None and _exists(note.pid)}

    def code_paths(self) -> dict[int, Path]:
        """Process → the directory of the ``vllm_omni`` that it imported: the API process's and the stages'."""
        wanted = {self.process, *self.stage_pids().values()}
        return {note.pid: Path(note.vllm_omni) for note in notes.read(self._run) if note.pid in wanted}

    def requests_total(self) -> Counter[tuple[str, str, str]]:
        """What ``http_requests_total`` says: (method, handler, status class such as ``4xx``) → requests.

        The request for it is counted itself, after it has been answered.
        """
        with urllib.request.urlopen(f"{self.url}/metrics/", timeout=30) as response:
            lines = response.read().decode().splitlines()
        total: Counter[tuple[str, str, str]] = Counter()
        for line in lines:
            if line.startswith("http_requests_total{"):
                labels = dict(_LABEL.findall(line))
                total[labels["method"], labels["handler"], labels["status"]] += int(float(line.rsplit(maxsplit=1)[1]))
        return total

    def census(self, number: int) -> dict[int, Counter[str]]:
        """Stage, or -1 for the API process → what it holds (``vllm_omni_rig.census``, which must be switched on)."""
        pids = {-1: self.process} | self.stage_pids()
        found = census.take(self._run, [*pids.values()], number)
        return {stage: found[pid] for stage, pid in pids.items()}

    def processes(self) -> list[psutil.Process]:
        """Every process of the server, with the one that watches over it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            guard = psutil.Process(self._guard_process)
            return [guard, *guard.children(recursive=True)]
        return []

    def pause(self) -> None:
        """Freeze the server: an idle one takes up to half a CPU."""
        self._signal(psutil.Process.suspend)

    def resume(self) -> None:
        """Let a server go on that was frozen."""
        self._signal(psutil.Process.resume)

    def _signal(self, send: Callable[[psutil.Process], None]) -> None:
        for process in self.processes()[1:]:  # not the one that watches over it
            with contextlib.suppress(psutil.NoSuchProcess):
                send(process)

    def stop(self) -> None:
        """Stop the server and every process of it; may be called more than once, and after its death."""
        self.resume()
        processes = self.processes()
        if self._guard.stdin:
            self._guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(STOP_DEADLINE_S)
        for process in processes:  # none is left, unless that took too long or somebody killed the guard
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._guard.wait()
        if self._guard.stdout:
            self._guard.stdout.close()
        shutil.rmtree(self._run, ignore_errors=True)  # the guard does it, unless it was killed


def start(
    stages: int = 2,
    *,
    tree: Path | None = None,
    port: int | None = None,
    scripted: str | None = None,
    workers: int = 1,
    environment: Mapping[str, str] = MappingProxyType({}),
    arguments: Sequence[str] = (),
    log: Path | None = None,
    progress: Progress | None = None,
) -> Server:
    """Start a server, wait until it answers, and return it.

    Args:
        stages: 1, a diffusion stage inside the API process; or 2, an AR stage and a diffusion stage, each a process.
        tree: a directory that holds a ``vllm_omni`` package, used by every process instead of the installed one.
        port: a free one if None.
        scripted: serve with the scripted engine of that kind instead (``vllm_omni_rig.scripted``); no stage then.
        workers: API processes; several share one AR stage that gives text, whatever ``stages`` says.
        environment: variables for the server, over :data:`SETTINGS`.
        arguments: more arguments for the server's command line.
        log: file that the server's output is added to; by default one in the temporary directory, which stays.
        progress: gets a short text every few seconds until the server answers.

    Raises:
        RigError: nothing was started (port in use, no such tree), or the server did not come up within
            :data:`READY_DEADLINE_S`; then everything of it is ended again.
    """
    port = port or _free_port()
    _check(stages, scripted, tree, port)
    run = Path(tempfile.mkdtemp(prefix="vllm-omni-rig-"))
    log = (log or Path(tempfile.gettempdir()) / f"{run.name}.log").absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    command = _command(run, stages, port, scripted, workers) + list(arguments)
    kind = "scripted" if scripted else "shared" if workers > 1 else str(stages)
    variables = os.environ | _variables(run, tree, kind) | dict(environment)
    guarded = ["-P", "-m", "vllm_omni_rig.guard", str(run), str(log), *command]
    began = log.stat().st_size
    try:
        forked = workers == 1 and command[0] == sys.executable
        guarding = python(variables, guarded) if forked else [sys.executable, *guarded]
    except RuntimeError as error:
        shutil.rmtree(run)
        raise RigError(str(error)) from error
    guard = subprocess.Popen(
        guarding,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=variables,
        start_new_session=True,
        text=True,
    )
    server = Server(port, log, run, guard)
    try:
        server._guard_process, server.process = _process_numbers(guard, log)
        _wait_until_ready(server, began, progress or (lambda _: None))
        _check_code(server, tree)
    except BaseException:
        server.stop()
        raise
    return server


def _command(run: Path, stages: int, port: int, scripted: str | None, workers: int) -> list[str]:
    model = checkpoint.write(run / "model")
    common = ["--host", HOST, "--port", str(port), "--served-model-name", MODEL_NAME, "--trust-request-chat-template"]
    if scripted is not None:
        return [sys.executable, "-P", "-m", "vllm_omni_rig.scripted", scripted, "--model", str(model), *common]
    deployment = run / "deployment.json"
    wanted, program, several = DEPLOYMENTS[stages], [str(PROGRAM)], []
    if workers > 1:
        wanted, program = SHARED_DEPLOYMENT, ["-P", "-m", "vllm_omni_rig.shared"]
        several = ["--api-server-count", str(workers)]
    deployment.write_text(json.dumps(dict(wanted)), encoding="utf-8")
    serve = ["serve", str(model), "--omni", "--deploy-config", str(deployment)]
    return [sys.executable, *program, *serve, *common, *several]


def _process_numbers(guard: subprocess.Popen[str], log: Path) -> tuple[int, int]:
    """The guard's and the server's."""
    assert guard.stdout is not None
    numbers = guard.stdout.readline().split()
    if len(numbers) != 2:
        raise RigError(f"The server's process could not be started.\n{_tail(log)}")
    return int(numbers[0]), int(numbers[1])


def _variables(run: Path, tree: Path | None, kind: str) -> dict[str, str]:
    temporary = run / "tmp"
    temporary.mkdir()
    return {
        **SETTINGS,
        **workaround_variables(tree=tree.absolute() if tree else None),
        notes.RUN: str(run),
        faults.SWITCH: ",".join(faults.PLACES_OF[kind]),
        "TMPDIR": str(temporary),
    }


def _free_port() -> int:
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise RigError(f"No port from {PORTS[0]} to {PORTS[-1]} is free.")


def _check(stages: int, scripted: str | None, tree: Path | None, port: int) -> None:
    """Refuse what cannot work, before anything is started or written."""
    if stages not in DEPLOYMENTS:
        raise RigError(f"There is no pipeline with {stages} stages; there are pipelines with 1 and 2.")
    if scripted is not None and scripted not in KINDS:
        raise RigError(f"There is no scripted server {scripted}; there are {', '.join(KINDS)}.")
    if tree is not None and not (tree / "vllm_omni" / "__init__.py").is_file():
        raise RigError(f"{tree} holds no vllm_omni package; name a directory that does, such as build/migrated.")
    if not PROGRAM.is_file():
        raise RigError(f"There is no {PROGRAM}; install vllm-omni into this environment first.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            reason = f"Port {port} cannot be used ({error.strerror}); choose another, or none to get a free one."
            raise RigError(reason) from error


def _exists(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def _wait_until_ready(server: Server, began: int, progress: Progress) -> None:
    started = shown = time.monotonic()
    while not _answers(server.port):
        now = time.monotonic()
        if not server.alive():
            server.wait_until_dead(STOP_DEADLINE_S)
            raise RigError(
                f"The server ended with exit code {server.exit_code} before it answered.\n{_tail(server.log)}"
            )
        if now - started > READY_DEADLINE_S:
            raise RigError(f"The server did not answer within {READY_DEADLINE_S:.0f} s.\n{_tail(server.log)}")
        if now - shown > PROGRESS_EVERY_S:
            shown = now
            progress(f"{now - started:4.0f} s  {_phase(server.log, began)}")
        time.sleep(0.25)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _phase(log: Path, began: int) -> str:
    with log.open(encoding="utf-8", errors="replace") as file:
        file.seek(began)
        text = file.read()
    return next(phase for sign, phase in PHASES if sign in text)


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"The end of {log}:", *(f"    {line}" for line in lines[-LOG_TAIL_LINES:])])


def _check_code(server: Server, tree: Path | None) -> None:
    """The tree must be what every process imported: an import path that silently lost would prove nothing."""
    if tree is None:
        return
    expected = (tree / "vllm_omni").resolve()
    paths = server.code_paths()
    wrong = {pid: path for pid, path in paths.items() if path != expected}
    if wrong or server.process not in paths:
        raise RigError(f"The server did not run the code of {expected}: processes and what they imported are {paths}.")
