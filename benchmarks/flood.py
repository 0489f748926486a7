# SPDX-License-Identifier: Apache-2.0
"""10,000 failing requests, 64 at once, to each server, beside a trickle that succeeds: what that waits, and memory."""

import asyncio
import itertools
from collections.abc import Coroutine, Iterator, Mapping, Sequence

import aiohttp

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
    memory_mib,
    quantile,
    say,
    send,
    send_all,
)

REQUESTS = 10_000
PARTS = 4
"""The servers take turns; memory is measured after each part."""
AT_ONCE = 64
FAILURES: Sequence[Ask] = (STAGE_ERROR, *[CLIENT_ERROR, UNKNOWN_ROUTE] * 12)
"""By turns. A stage is the narrow place: each of its errors waits for those before it."""
NEIGHBOUR_EVERY_S = 0.25
QUIET_S = 5.0
PART_LIMIT_S = 150.0
MEMORY_GOAL_MIB = 5.0
"""A kilobyte for each of 5,000 requests: what a request leaves would be more."""


def run() -> Iterator[Result]:
    """Yield every line of the subject."""
    servers = both()
    quiet, waits, memory = asyncio.run(_measure(servers))
    for share in (0.5, 0.99):
        found = {name: quantile(waits[name], share) for name in servers}
        what = f"neighbours during the flood, p{100 * share:.0f}"
        yield Result("flood", f"{what}, migrated / stock", found[MIGRATED] / found[STOCK], "×", 1.1)
        for name in servers:
            yield Result("flood", f"{what}, {name}", 1e3 * found[name], "ms")
    for name in servers:
        yield Result("flood", f"neighbours without a flood, p50, {name}", 1e3 * quantile(quiet[name], 0.5), "ms")
    for name in servers:
        growth = memory[name][-1] - memory[name][PARTS // 2 - 1]
        goal = MEMORY_GOAL_MIB if name == MIGRATED else None
        yield Result("flood", f"memory, growth in the second half, {name}", growth, "MiB", goal)


Series = Mapping[str, list[float]]


async def _measure(servers: Mapping[str, Server]) -> tuple[Series, Series, Series]:
    """Of each server: seconds that neighbours waited without a flood, and during it; MiB after each part."""
    quiet: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {name: [] for name in servers}
    memory: dict[str, list[float]] = {name: [] for name in servers}
    async with client(keep=False) as session:
        for name, server in servers.items():
            quiet[name] = await _beside(session, server.url, asyncio.sleep(QUIET_S))
        for part in range(PARTS):
            for name, server in servers.items():
                asks = itertools.islice(itertools.cycle(FAILURES), REQUESTS // PARTS)
                async with asyncio.timeout(PART_LIMIT_S):
                    waits[name] += await _beside(session, server.url, send_all(session, server.url, asks, AT_ONCE))
                server.census(part)  # has it give back what is free
                memory[name].append(memory_mib(server))
                say(f"flood: part {part + 1} of {PARTS}, {name}: {memory[name][-1]:.0f} MiB")
    return quiet, waits, memory


async def _beside(session: aiohttp.ClientSession, url: str, work: Coroutine[object, object, None]) -> list[float]:
    """Seconds that each of the requests waited that were sent at a steady pace until the work was done."""
    working = asyncio.create_task(work)
    neighbours = []
    while not working.done():
        neighbours.append(asyncio.create_task(send(session, url, SUCCESS)))
        await asyncio.wait([working], timeout=NEIGHBOUR_EVERY_S)
    await working
    return await asyncio.gather(*neighbours)
