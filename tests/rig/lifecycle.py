# SPDX-License-Identifier: Apache-2.0
"""Scenes: a request in flight in the diffusion stage, one with a fault, and what is left of the server after it."""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from calls import chat, images
from support import Call, error_object

from vllm_omni_rig.server import Server, start

AHEAD = 2
"""Servers that start while a test runs: two at a time take little longer than one."""

IN_FLIGHT = "FAULT:sleep=3"
HEAD_START_S = 1.0
MEANWHILE_S = 1.0
HANG_S = 6.0
"""No answer in this time, where others take less than one second, is called a hang; for those who expect one."""
PATIENCE_S = 60.0
"""For those who expect an answer, on a machine that has other work too."""
SURVIVAL_S = 3.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended: status, or `hang` or `refused` in its place; the error's shape, text and stage."""

    status: int | str
    message: str = ""
    keys: frozenset[str] = frozenset()
    stage: int | None = None


def outcome(url: str, call: Call, deadline_s: float = PATIENCE_S) -> Outcome:
    try:
        response = httpx.request(call.method, url + call.path, json=call.json, timeout=deadline_s)
    except httpx.ReadTimeout:
        return Outcome("hang")
    except httpx.TransportError:
        return Outcome("refused")
    error = error_object(response.json())
    return Outcome(response.status_code, error.get("message", ""), frozenset(error), error.get("error_stage_id"))


def health(server: Server) -> int | str:
    return outcome(server.url, Call("GET", "/health")).status


@dataclass(frozen=True, slots=True)
class Scene:
    """A server, and how the request in flight and the one with the fault ended."""

    server: Server
    in_flight: Outcome
    faulty: Outcome

    def later(self, deadline_s: float = PATIENCE_S) -> list[Outcome]:
        """How requests end that come after the fault, on either route."""
        with ThreadPoolExecutor(2) as pool:
            calls = (images("later"), chat("later"))
            return [*pool.map(lambda call: outcome(self.server.url, call, deadline_s), calls)]

    def survives(self) -> bool:
        """Whether the server's process runs on, whatever it still can do."""
        return not self.server.wait_until_dead(SURVIVAL_S) and self.server.alive()


class Supply:
    """Servers for so many tests, one each; while a test runs, the server of the next one starts."""

    def __init__(self, count: int, logs: Path) -> None:
        self._left = count
        self._logs = logs
        self._pool = ThreadPoolExecutor(AHEAD)
        self._next: deque[Future[Server]] = deque()
        for _ in range(AHEAD):
            self._order()

    def _order(self) -> None:
        if self._left:
            log = self._logs / f"{self._left}.log"
            self._next.append(self._pool.submit(start, log=log))
            self._left -= 1

    def take(self) -> Server:
        server = self._next.popleft().result()
        self._order()
        return server

    def close(self) -> None:
        self._left = 0
        while self._next:
            server = self.take()
            kill(server)
            server.stop()
        self._pool.shutdown()


def kill(server: Server) -> None:
    """End what is left of a broken server at once: its own shutdown would take 10 s and more."""
    for process in server.processes()[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def play(
    server: Server,
    pool: Executor,
    fault: str,
    deadline_s: float = PATIENCE_S,
    meanwhile: Callable[[Server], None] = lambda _: None,
) -> Scene:
    """Send a request, then one with the fault; do ``meanwhile`` to the server while both are under way."""
    in_flight = pool.submit(outcome, server.url, images(IN_FLIGHT), deadline_s)
    time.sleep(HEAD_START_S)
    with ThreadPoolExecutor(1) as other:
        faulty = other.submit(outcome, server.url, chat(fault), deadline_s)
        time.sleep(MEANWHILE_S)
        meanwhile(server)
        return Scene(server, in_flight.result(), faulty.result())
