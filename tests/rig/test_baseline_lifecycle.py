# SPDX-License-Identifier: Apache-2.0
"""Stock's engine after each fault that is, or might be, fatal to it: as it is today, which is what "as today" means.

One request is in flight, in the diffusion stage, when the fault happens. L17: what an out of memory does is policy,
and not this project's to change, so it is pinned for either stage.
"""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from calls import images
from lifecycle import HANG_S, Outcome, Scene, Supply, health, kill, outcome, play
from support import SIX

from vllm_omni_rig.server import Server


@pytest.fixture(scope="module")
def supply(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supply]:
    wanted = [item for item in request.session.items if item.path == request.path]
    count = sum("scene" in getattr(item, "fixturenames", ()) for item in wanted)
    supply = Supply(count, tmp_path_factory.mktemp("lifecycle"))
    yield supply
    supply.close()


@pytest.fixture
def scene(supply: Supply) -> Iterator[Callable[..., Scene]]:
    with supply.take() as mine, ThreadPoolExecutor(1) as pool:
        yield lambda fault, **options: play(mine, pool, fault, **options)
        kill(mine)


DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
DEAD_ENGINE = Outcome(500, DEAD, SIX, 0)
NO_REPLICA = Outcome(500, "Stage-0 has no live replica", SIX, 0)


@pytest.mark.parametrize("fault", ["FAULT:runtime@stage0", "FAULT:oom@stage0", "FAULT:kill@stage0"])
def test_the_ar_stage_dies(scene: Callable[..., Scene], fault: str) -> None:
    """Every request fails at once, also the one in the other stage; /health says so; the process stays."""
    after = scene(fault)
    assert (after.in_flight, after.faulty) == (DEAD_ENGINE, DEAD_ENGINE)
    assert after.later() == [NO_REPLICA, NO_REPLICA]
    assert health(after.server) == 503
    assert sorted(after.server.stage_pids()) == [1]
    assert after.survives()
    assert after.later() == [NO_REPLICA, NO_REPLICA]
    assert health(after.server) == 503


def kill_the_diffusion_stage(server: Server) -> None:
    os.kill(server.stage_pids()[1], signal.SIGKILL)


def hangs(after: Scene) -> None:
    """Every request hangs, although /health knows; the process stays."""
    assert health(after.server) == 503
    assert sorted(after.server.stage_pids()) == [0]
    assert [each.status for each in after.later(HANG_S)] == ["hang", "hang"]
    assert after.survives()
    assert health(after.server) == 503


def test_the_diffusion_stage_is_killed(scene: Callable[..., Scene]) -> None:
    """With `kill -9`, in the middle of one request while another one waits for it."""
    after = scene("waits for its turn", meanwhile=kill_the_diffusion_stage, deadline_s=HANG_S)
    assert (after.in_flight.status, after.faulty.status) == ("hang", "hang")
    hangs(after)


def test_the_diffusion_stage_exits(scene: Callable[..., Scene]) -> None:
    """By itself, at the request after the one in flight; whose answer may or may not have left it by then."""
    after = scene("FAULT:exit@stage1", deadline_s=HANG_S)
    assert after.in_flight.status in (200, "hang")
    assert after.faulty.status == "hang"
    hangs(after)


def test_the_stage_input_processor_raises(scene: Callable[..., Scene]) -> None:
    """One request's raw exception ends the orchestrator, its neighbour and the server, which exits with code 0."""
    after = scene("FAULT:s1input", deadline_s=30)
    assert (after.in_flight.status, after.faulty.status) == (500, 500)
    assert after.server.wait_until_dead(20)
    assert after.server.exit_code == 0
    assert health(after.server) == "refused"


@pytest.mark.parametrize("fault", ["FAULT:oom@stage1", "FAULT:runtime@stage1", "FAULT:raise=EngineDeadError@stage1"])
def test_an_exception_in_the_diffusion_stage_ends_one_request_only(stock: Server, fault: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        after = play(stock, pool, fault)
    assert (after.in_flight.status, after.faulty.status) == (200, 500)
    assert [each.status for each in after.later()] == [200, 200]
    assert health(stock) == 200
    assert sorted(stock.stage_pids()) == [0, 1]


@pytest.mark.parametrize("stage", [0, 1])
def test_a_frozen_stage_answers_nobody(stock: Server, stage: int) -> None:
    """There is no deadline that anybody could set, and /health does not know."""
    process = stock.stage_pids()[stage]
    os.kill(process, signal.SIGSTOP)
    try:
        assert outcome(stock.url, images("x"), HANG_S).status == "hang"
        assert health(stock) == 200
    finally:
        os.kill(process, signal.SIGCONT)
    assert outcome(stock.url, images("after")).status == 200
