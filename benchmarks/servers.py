# SPDX-License-Identifier: Apache-2.0
"""The stock and the migrated server, two stages each, up at the same time; what they are asked, and what it costs."""

import asyncio
import atexit
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from vllm_omni_rig import census
from vllm_omni_rig.preloaded import Interpreters
from vllm_omni_rig.server import Server, start

ROOT = Path(__file__).parents[1]
STOCK, MIGRATED = "stock", "migrated"
TREES: Mapping[str, Path | None] = {STOCK: None, MIGRATED: ROOT / "build" / "migrated"}
DEADLINE_S = 60.0
"""For an answer; the slowest one waits for all of a flood that came before it."""

_both: dict[str, Server] = {}
_began = time.monotonic()


def say(words: str) -> None:
    """One line of progress."""
    print(f"{time.monotonic() - _began:5.0f} s  {words}", file=sys.stderr, flush=True)


def both() -> Mapping[str, Server]:
    """The two servers, started if they are not up. Raises `RigError` if one does not start."""
    if not _both:
        say("starting the stock and the migrated server, a minute or two")
        atexit.register(close)
        with Interpreters():  # started alike, they differ less
            for name in TREES:
                _both[name] = _start(name)
    return _both


def _start(name: str) -> Server:
    log = ROOT / "build" / f"bench-{name}.log"
    log.unlink(missing_ok=True)
    return start(2, tree=TREES[name], log=log, environment={census.SWITCH: "1"})


def close() -> None:
    """Stop both, if they are up."""
    while _both:
        _both.popitem()[1].stop()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and the status that both servers answer it with."""

    title: str
    method: str
    path: str
    body: Mapping[str, Any] | None
    status: int


def image(title: str, prompt: str, status: int, size: str = "64x64") -> Ask:
    """A request for an image."""
    return Ask(title, "POST", "/v1/images/generations", {"prompt": prompt, "size": size}, status)


CLIENT_ERROR = image("client error", "x", 400, size="axb")
STAGE_ERROR = image("stage error", "FAULT:raise=RuntimeError@stage1", 500)
UNKNOWN_ROUTE = Ask("unknown route", "GET", "/v1/nothing", None, 404)
SUCCESS = image("success", "a neighbour", 200)


class WrongAnswerError(Exception):
    """An answer with another status than the request is about: nothing was measured."""


@asynccontextmanager
async def client(*, keep: bool = True) -> AsyncIterator[aiohttp.ClientSession]:
    """For any number of requests at once, each with a deadline.

    Without `keep` each has a connection of its own: one that waits for the next may be closed by the server meanwhile.
    """
    limits = aiohttp.TCPConnector(limit=0, force_close=not keep)
    async with aiohttp.ClientSession(connector=limits, timeout=aiohttp.ClientTimeout(DEADLINE_S)) as session:
        yield session


async def send(session: aiohttp.ClientSession, url: str, ask: Ask) -> float:
    """Seconds until the whole answer was there.

    Raises `WrongAnswerError` for one with another status, and what aiohttp raises for none.
    """
    began = time.perf_counter()
    async with session.request(ask.method, url + ask.path, json=ask.body) as answer:
        text = await answer.text()
    if answer.status != ask.status:
        raise WrongAnswerError(f"{ask.title}: {answer.status}, not {ask.status}: {text[:200]}")
    return time.perf_counter() - began


async def send_all(session: aiohttp.ClientSession, url: str, asks: Iterable[Ask], at_once: int) -> None:
    """Send them all, so many at once: the next one when one is answered."""
    left = iter(asks)

    async def keep_asking() -> None:
        for ask in left:
            await send(session, url, ask)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(keep_asking())


def cpu_s(server: Server) -> float:
    """Seconds of CPU time that all processes of a server had since they began."""
    return sum(_cpu_s(process.pid) for process in server.processes())


def _cpu_s(pid: int) -> float:
    """In nanoseconds, where /proc and psutil count hundredths of a second: the clock of clock_getcpuclockid(3)."""
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)
    return 0.0


def memory_mib(server: Server) -> float:
    """What all processes of a server hold; what they share counts once."""
    found = 0
    for process in server.processes():
        with suppress(psutil.NoSuchProcess):
            found += process.memory_full_info().pss
    return found / 2**20


def quantile(values: Iterable[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ratio(theirs: Iterable[float], ours: Iterable[float]) -> float:
    """Median of ours / theirs, by repetition."""
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True))
