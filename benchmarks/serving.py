# SPDX-License-Identifier: Apache-2.0
"""Time and CPU time of an answer, stock against migrated: three errors and a success, the servers by turns."""

import asyncio
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vllm_omni_rig.server import Server

from .measure import Result
from .servers import (
    CLIENT_ERROR,
    MIGRATED,
    STAGE_ERROR,
    STOCK,
    SUCCESS,
    UNKNOWN_ROUTE,
    Ask,
    both,
    client,
    cpu_s,
    ratio,
    say,
    send_all,
)

AT_ONCE = 8
IDLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Batch:
    """So many requests, repeated so often, and the goals of both ratios."""

    ask: Ask
    requests: int
    repetitions: int
    wall_goal: float | None = 1.0
    cpu_goal: float = 1.0


BATCHES = (
    Batch(UNKNOWN_ROUTE, 500, 11),
    Batch(CLIENT_ERROR, 400, 11),
    Batch(STAGE_ERROR, 60, 11),
    Batch(SUCCESS, 60, 15, None, 1.02),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one request, in ms: wall time, the inverse of the rate; CPU time, without what an idle server takes."""

    wall: float
    cpu: float


def run() -> Iterator[Result]:
    """Yield every line of the subject."""
    servers = both()
    for batch in BATCHES:
        say(f"serving: {batch.ask.title}, {batch.repetitions} × {batch.requests} requests to each server")
        costs = asyncio.run(_measure(servers, batch))
        walls = {name: [cost.wall for cost in found] for name, found in costs.items()}
        cpus = {name: [cost.cpu for cost in found] for name, found in costs.items()}
        for times, unit, goal in ((walls, "wall", batch.wall_goal), (cpus, "CPU", batch.cpu_goal)):
            what = f"{batch.ask.title}, {unit}"
            yield Result("serving", f"{what}, migrated / stock", ratio(times[STOCK], times[MIGRATED]), "×", goal)
            for name in servers:
                yield Result("serving", f"{what}, {name}", statistics.median(times[name]), "ms")


async def _measure(servers: Mapping[str, Server], batch: Batch) -> Mapping[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {name: [] for name in servers}
    for name in servers:
        await _cost(servers[name], batch, 0.0)
    idle = await _idle(servers)
    for number in range(batch.repetitions):
        for name in list(servers)[:: -1 if number % 2 else 1]:
            costs[name].append(await _cost(servers[name], batch, idle[name]))
    return costs


async def _cost(server: Server, batch: Batch, idle: float) -> Cost:
    async with client() as session:
        before, began = cpu_s(server), time.perf_counter()
        await send_all(session, server.url, [batch.ask] * batch.requests, AT_ONCE)
        wall, cpu = time.perf_counter() - began, cpu_s(server) - before
    return Cost(1e3 * wall / batch.requests, 1e3 * (cpu - idle * wall) / batch.requests)


async def _idle(servers: Mapping[str, Server]) -> Mapping[str, float]:
    """The share of a CPU that each server takes when it is asked nothing."""
    before = {name: cpu_s(server) for name, server in servers.items()}
    await asyncio.sleep(IDLE_S)
    return {name: (cpu_s(server) - before[name]) / IDLE_S for name, server in servers.items()}
