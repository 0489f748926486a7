# SPDX-License-Identifier: Apache-2.0
"""`kill -9` of the second stage of both servers while requests wait for it: how long until they are answered."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Mapping

import aiohttp

from vllm_omni_rig.server import Server

from .measure import Result
from .servers import MIGRATED, WrongAnswerError, both, client, close, image, say

WAITING = 8
HEAD_START_S = 5.0
"""Until the first stage is done with all of them: one is in the second stage, the others wait for it."""
IN_FLIGHT = image("in flight", "FAULT:sleep=60@stage1", 500)
STATUSES = (500, 503)
"""Of who was in the stage, or on the way to it."""
PATIENCE_S = 20.0
ANSWER_GOAL_S = 5.0


def run() -> Iterator[Result]:
    """Yield every line of the subject; neither server is of use afterwards, so both are stopped."""
    servers = dict(both())
    say(f"killed: the second stage of both servers, under {WAITING} requests")
    answers = asyncio.run(_kill(servers))
    close()
    for name in servers:
        silent = answers[name].count(None)
        what = f"of {WAITING} in flight, without an answer after {PATIENCE_S:.0f} s, {name}"
        yield Result("killed", what, silent, "requests", 0 if name == MIGRATED else None)
        if took := [answer for answer in answers[name] if answer is not None]:
            goal = ANSWER_GOAL_S if name == MIGRATED else None
            yield Result("killed", f"from the kill to the last of {len(took)} answers, {name}", max(took), "s", goal)


async def _kill(servers: Mapping[str, Server]) -> Mapping[str, list[float | None]]:
    """Of each server: seconds from the kill to each answer, None for no answer."""
    async with client(keep=False) as session:
        waiting = {
            name: [asyncio.create_task(_answered(session, server.url)) for _ in range(WAITING)]
            for name, server in servers.items()
        }
        await asyncio.sleep(HEAD_START_S)
        killed = {}
        for name, server in servers.items():
            os.kill(server.stage_pids()[1], signal.SIGKILL)
            killed[name] = time.monotonic()
        everyone = [task for tasks in waiting.values() for task in tasks]
        _, silent = await asyncio.wait(everyone, timeout=PATIENCE_S)
        for task in silent:
            task.cancel()
    return {
        name: [None if task in silent else task.result() - killed[name] for task in tasks]
        for name, tasks in waiting.items()
    }


async def _answered(session: aiohttp.ClientSession, url: str) -> float:
    """When it was answered."""
    async with session.request(IN_FLIGHT.method, url + IN_FLIGHT.path, json=IN_FLIGHT.body) as answer:
        await answer.read()
    if answer.status not in STATUSES:
        raise WrongAnswerError(f"{IN_FLIGHT.title}: {answer.status}")
    return time.monotonic()
