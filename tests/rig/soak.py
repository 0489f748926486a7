# SPDX-License-Identifier: Apache-2.0
"""python soak.py --minutes 20 --tree build/migrated --json build/soak.json

Mixed faults under load, on the migrated server with two stage processes. Fifty requests are always under way, of which
every third fails: in the API process, between the stages or in the second one, because of the client, because its
client leaves, or because its message cannot be decoded. Now and then a stage is frozen for some seconds. After each
round the server drains, and what it holds is measured. In the end the second stage is killed while fifty requests wait.

What must hold (exit code 1 if not):

1. Every request is answered in time, with the status of its failure; a neighbour's is 200. No answer leaks.
2. Request states, tasks, exceptions that are held, file descriptors and threads of no process grow; nor does memory,
   Python's or the whole: the least-squares line through the rounds after the warm-up rises by less than `GROWTH`
   allows, or does not explain the points. What the AR stage keeps for each size of a batch is no growth: docs/soak.md.
3. Whom the killed stage served gets 500 within `DEATH_S`, and everybody who comes to it later 503.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
import psutil
from calls import LONG, chat, images
from contract import ADDRESS, NEVER_PUBLIC
from failures_table import MIGRATED, MIGRATED_INPUT
from rich.console import Console
from rich.table import Table
from support import Call

from vllm_omni_rig.census import BLOCKS, EXCEPTIONS, SWITCH, TASKS
from vllm_omni_rig.server import RigError, Server, start

AT_ONCE = 50
ROUND_S = 30.0
PATIENCE_S = 90.0
DEATH_S = 5.0
HEAD_START_S = 12.0
"""Until the first stage is done with all of them, and the second has one of them."""
STAGE_TIMEOUT_S = 60
FREEZE_S = 3.0
FREEZE_EVERY_ROUNDS = 3
LEAVES_AFTER_S = 0.3
WARM_UP_SHARE = 0.25
WARM_UP_ROUNDS = 2
DRAIN_S = 2.0
REQUESTS = "request states"
LEFT = "left"
"""In the place of a status: the client left."""

KERNELS = 32
"""vLLM's CPU build compiles the kernel of a linear layer for each number of tokens in a step, and each layer keeps so
many, 0.27 MiB each (``vllm/model_executor/layers/utils.py:554``). They are made before anything is measured."""
KERNEL_CACHE = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}
"""oneDNN keeps 1,024 more if it is not told."""

WIDTH = 64
"""Characters of every prompt, which the longest fault needs; with the template, what the AR stage gets is as long on
every route, so that few kernels are made anew."""
TEMPLATE_TOKENS = 19
"""What the rig's chat template adds; a token is a byte (``vllm_omni_rig.checkpoint``)."""

GROWTH: Mapping[str, float] = {
    "memory": 8.0,
    BLOCKS: 3_000.0,
    "descriptors": 3.0,
    "threads": 3.0,
    TASKS: 3.0,
    EXCEPTIONS: 3.0,
    REQUESTS: 1.0,
}
"""What a line may rise by over the rounds after the warm-up: MiB of memory, and blocks, for each 1,000 requests, the
others as they are."""
PER_REQUESTS = ("memory", BLOCKS)

REQUEST_STATES_LEFT = 1
"""In any process after a round: a loop that waits for the next message holds the last one's."""

EXPLAINED = 0.6
"""A correlation below this is noise, and no growth."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and the status that it must have."""

    title: str
    call: Call
    expected: int | str


def an_image(prompt: str) -> Call:
    return images(prompt.ljust(WIDTH + TEMPLATE_TOKENS))


def a_chat(prompt: str) -> Call:
    return chat(prompt.ljust(WIDTH))


def a_stream(prompt: str) -> Call:
    return chat(prompt.ljust(WIDTH), stream=True)


def neighbours() -> Sequence[Ask]:
    return (
        Ask("image", an_image("a neighbour"), 200),
        Ask("chat", a_chat("a neighbour"), 200),
        Ask("chat stream", a_stream("a neighbour"), 200),
    )


def failures(chance: random.Random) -> Ask:
    """One of the failures; its exception is any of the catalogue."""
    name = chance.choice([*MIGRATED])
    make = chance.choice((an_image, a_chat, a_stream))
    return chance.choice(
        (
            Ask("raised in stage 1", make(f"FAULT:raise={name}@stage1"), MIGRATED[name].status),
            Ask("raised between the stages", make(f"FAULT:raise={name}@input"), MIGRATED_INPUT[name].status),
            Ask("raised at the front", make(f"FAULT:raise={name}@front"), MIGRATED[name].status),
            Ask("no output", make("FAULT:output=none"), 500),
            Ask("undecodable message", make("FAULT:wire=bytes"), 500),
            Ask("undecodable array", make("FAULT:wire=shape"), 500),
            Ask("wrong size", images("x", size="axb"), 400),
            Ask("prompt too long", make(LONG), 400),
            Ask("client leaves", make("FAULT:sleep=1@stage1"), LEFT),
        )
    )


@dataclass(slots=True)
class Tally:
    """How requests ended, by what they were; and what was wrong with them."""

    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, ask: Ask, status: int | str, text: str, took_s: float) -> None:
        self.ended[ask.title, str(status)] += 1
        leaked = [each for each in NEVER_PUBLIC if each in text] + ADDRESS.findall(text)
        if status != ask.expected or leaked:
            self.wrong.append(
                f"{ask.title}: {status}, not {ask.expected}, after {took_s:.1f} s: {leaked or text[:200]}"
            )


def a_client() -> httpx.AsyncClient:
    """With a connection for each request: one that waits for the next may be closed by the server meanwhile."""
    return httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None, max_keepalive_connections=0))


async def send(client: httpx.AsyncClient, url: str, ask: Ask, tally: Tally) -> None:
    began = time.monotonic()
    patience = LEAVES_AFTER_S if ask.expected == LEFT else PATIENCE_S
    status: int | str
    try:
        async with asyncio.timeout(patience):
            answer = await client.request(ask.call.method, url + ask.call.path, **ask.call.arguments())
        status, text = answer.status_code, answer.text if answer.status_code >= 400 else ""
    except TimeoutError:
        status, text = (LEFT if ask.expected == LEFT else "no answer"), ""
    except httpx.HTTPError as error:
        status, text = "broken off", repr(error)
    if ask.expected == LEFT and status == 200:
        status = LEFT  # it was answered before its client could leave
    tally.add(ask, status, text, time.monotonic() - began)


async def load(url: str, seconds: float, chance: random.Random, tally: Tally) -> int:
    """Keep `AT_ONCE` requests under way for so long, and wait for the last; how many there were."""
    end = time.monotonic() + seconds
    count = 0

    async def keep_asking(client: httpx.AsyncClient) -> None:
        nonlocal count
        while time.monotonic() < end:
            count += 1
            ask = failures(chance) if count % 3 == 0 else chance.choice(neighbours())
            await send(client, url, ask, tally)

    async with a_client() as client:
        await asyncio.gather(*(keep_asking(client) for _ in range(AT_ONCE)))
    return count


async def make_kernels(url: str) -> None:
    """One request for each of more lengths than an AR stage keeps kernels for."""
    async with a_client() as client:
        for length in range(1, KERNELS + KERNELS // 4):
            call = chat("x" * length)
            await client.request(call.method, url + call.path, **call.arguments())


async def freeze(pid: int) -> None:
    await asyncio.sleep(ROUND_S / 3)
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(FREEZE_S)
    os.kill(pid, signal.SIGCONT)


Measured = dict[str, float]


def measure(server: Server, number: int) -> dict[str, Measured]:
    """Process → what it holds, once nothing is under way any more."""
    time.sleep(DRAIN_S)
    census = server.census(number)
    pids = {-1: server.process} | server.stage_pids()
    found: dict[str, Measured] = {}
    for stage, counts in census.items():
        process = psutil.Process(pids[stage])
        of_python = {name: counts.pop(name) for name in (TASKS, EXCEPTIONS, BLOCKS)}
        found["API process" if stage < 0 else f"stage {stage}"] = {
            "memory": process.memory_full_info().uss / 2**20,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
            **of_python,
            REQUESTS: counts.total(),
        }
    return found


@dataclass(frozen=True, slots=True)
class Trend:
    """The line through a series: by how much it rises over the rounds, and how well it explains them."""

    process: str
    quantity: str
    first: float
    last: float
    rise: float
    correlation: float
    allowed: float

    @property
    def grows(self) -> bool:
        return self.rise > self.allowed and self.correlation > EXPLAINED


def trends(rounds: Sequence[Mapping[str, Measured]], requests: Sequence[int]) -> list[Trend]:
    """Of every quantity in every process, over the requests that were asked by then."""
    found = []
    for process in rounds[0]:
        for quantity, allowed in GROWTH.items():
            series = [each[process][quantity] for each in rounds]
            line = statistics.linear_regression(requests, series)
            constant = len(set(series)) == 1
            asked = requests[-1] - requests[0]
            found.append(
                Trend(
                    process,
                    quantity,
                    series[0],
                    series[-1],
                    line.slope * asked,
                    0.0 if constant else statistics.correlation(requests, series),
                    allowed * max(1.0, asked / 1_000) if quantity in PER_REQUESTS else allowed,
                )
            )
    return found


async def kill(server: Server, tally: Tally) -> list[str]:
    """Kill the second stage while requests wait for it; what was wrong."""
    wrong = []

    async def ask(client: httpx.AsyncClient, text: str) -> tuple[int | str, float]:
        call = images(text)
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await client.request(call.method, server.url + call.path, **call.arguments())
        except (TimeoutError, httpx.HTTPError) as error:
            return repr(error), time.monotonic()
        return answer.status_code, time.monotonic()

    async with a_client() as client:
        waiting = [asyncio.create_task(ask(client, "FAULT:sleep=5@stage1")) for _ in range(AT_ONCE)]
        await asyncio.sleep(HEAD_START_S)
        os.kill(server.stage_pids()[1], signal.SIGKILL)
        died = time.monotonic()
        answers = [(status, at) for status, at in await asyncio.gather(*waiting) if at > died]
        later = [await ask(client, "later") for _ in range(3)]
    slow = [at - died for status, at in answers if status == 500 and at - died > DEATH_S]
    killed, after = Counter(str(status) for status, _ in answers), Counter(str(status) for status, _ in later)
    tally.ended.update({("killed under", status): count for status, count in killed.items()})
    tally.ended.update({("after the kill", status): count for status, count in after.items()})
    if not killed["500"] or killed.keys() - {"500", "503"} or slow:
        wrong.append(f"the kill: {dict(killed)}; later than {DEATH_S} s: {slow}")
    if after.keys() != {"503"}:
        wrong.append(f"after the kill: {dict(after)}")
    return wrong


def run(server: Server, minutes: float, seed: int, console: Console) -> dict[str, object]:
    """The soak; its result as `build/soak.json` has it."""
    chance = random.Random(seed)
    tally = Tally()
    rounds: list[dict[str, Measured]] = []
    asked: list[int] = []
    wrong: list[str] = []
    asyncio.run(make_kernels(server.url))
    began = time.monotonic()
    while time.monotonic() - began < minutes * 60 or len(rounds) < WARM_UP_ROUNDS + 3:
        number = len(rounds)

        async def round_of_requests(freezing: bool = number % FREEZE_EVERY_ROUNDS == 1) -> int:
            frozen = server.stage_pids()[chance.randrange(2)]
            load_task = asyncio.create_task(load(server.url, ROUND_S, chance, tally))
            if freezing:
                await freeze(frozen)
            return await load_task

        asked.append((asked[-1] if asked else 0) + asyncio.run(round_of_requests()))
        rounds.append(measure(server, number))
        if left := {name: each[REQUESTS] for name, each in rounds[-1].items() if each[REQUESTS] > REQUEST_STATES_LEFT}:
            wrong.append(f"round {number}: request states are left: {left}")
        memory = ", ".join(f"{name} {each['memory']:.0f} MiB" for name, each in rounds[-1].items())
        console.print(
            f"{time.monotonic() - began:5.0f} s  round {number}: {asked[-1]} requests, "
            f"{len(tally.wrong) + len(wrong)} violations; {memory}",
            highlight=False,
        )
    warm = max(WARM_UP_ROUNDS, int(len(rounds) * WARM_UP_SHARE))
    lines = trends(rounds[warm:], asked[warm:])
    wrong += asyncio.run(kill(server, tally))
    wrong += [f"{each.quantity} of {each.process} grows: {each}" for each in lines if each.grows]
    return {
        "minutes": (time.monotonic() - began) / 60,
        "seed": seed,
        "requests": asked[-1],
        "ended": {f"{title}: {status}": count for (title, status), count in sorted(tally.ended.items())},
        "warm_up_rounds": warm,
        "rounds": rounds,
        "trends": [asdict(each) | {"grows": each.grows} for each in lines],
        "violations": tally.wrong + wrong,
    }


def summary(result: Mapping[str, object], console: Console) -> None:
    ended = Table("ended", "requests")
    for title, count in result["ended"].items():  # type: ignore[attr-defined]
        ended.add_row(title, str(count))
    table = Table("process", "quantity", "first", "last", "rise of the line", "allowed", "correlation")
    for each in result["trends"]:  # type: ignore[attr-defined]
        numbers = [f"{each[name]:.1f}" for name in ("first", "last", "rise", "allowed", "correlation")]
        table.add_row(each["process"], each["quantity"], *numbers)
    console.print(ended, table)
    violations: Sequence[str] = result["violations"]  # type: ignore[assignment]
    for violation in violations[:20]:
        console.print(violation, markup=False, highlight=False)
    console.print(f"{result['requests']} requests in {result['minutes']:.1f} minutes: {len(violations)} violations.")


def main() -> int:
    parser = argparse.ArgumentParser(description="Mixed faults under load on the migrated server.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tree", type=Path, default=Path("build/migrated"))
    parser.add_argument("--json", type=Path, default=Path("build/soak.json"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(soft_wrap=True)
    environment = {SWITCH: "1", "VLLM_OMNI_STAGE_TIMEOUT_S": str(STAGE_TIMEOUT_S), **KERNEL_CACHE}
    try:
        with start(2, tree=options.tree, log=options.json.with_suffix(".log"), environment=environment) as server:
            result = run(server, options.minutes, options.seed, console)
    except RigError as error:
        console.print(str(error), markup=False)
        return 2
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    summary(result, console)
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
