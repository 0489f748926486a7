# SPDX-License-Identifier: Apache-2.0
"""The migrated server ends, or stays, as stock does (test_baseline_lifecycle.py); what it says keeps the contract."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from calls import images
from contract import nothing_leaks
from lifecycle import PATIENCE_S, health, kill, outcome, play
from support import SIX

from vllm_omni_rig.server import Server

Start = Callable[..., Server]


@pytest.mark.parametrize("variant", ["stock", "migrated"])
def test_a_dead_engine_ends_the_server(fresh_server: Start, variant: str) -> None:
    """L01: the handler is another, `terminate_if_errored` is called as before."""
    server = fresh_server(variant, scripted="diffusion")
    dead = outcome(server.url, images("FAULT:deadengine"))
    assert (dead.status, dead.keys) == (500, SIX)
    assert server.wait_until_dead(20)
    assert server.exit_code == 0


def test_a_dead_engine_leaves_the_server_alive_where_the_operator_wants_it(fresh_server: Start) -> None:
    server = fresh_server("migrated", scripted="diffusion", environment={"VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "1"})
    assert outcome(server.url, images("FAULT:deadengine")).status == 500
    assert not server.wait_until_dead(3)
    assert health(server) == 503


def test_the_ar_stage_dies(fresh_server: Start) -> None:
    """L05, I11: who was served by the stage gets 500, who comes later 503, and each knows the stage."""
    server = fresh_server("migrated")
    with ThreadPoolExecutor(1) as pool:
        after = play(server, pool, "FAULT:runtime@stage0")
    later = after.later()
    for each in (after.in_flight, after.faulty, *later):
        assert (each.keys, each.stage) == (SIX, 0)
        nothing_leaks(each.message)
    assert (after.in_flight.status, after.faulty.status) == (500, 500)
    assert [each.status for each in later] == [503, 503]
    assert health(server) == 503
    assert after.survives()
    kill(server)


def test_the_diffusion_stage_is_killed(fresh_server: Start) -> None:
    """Stock never answers anybody again (test_baseline_lifecycle.py): a message to the dead process blocked it."""
    server = fresh_server("migrated")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(outcome, server.url, images("FAULT:sleep=8"), PATIENCE_S) for _ in range(2)]
        time.sleep(2)
        os.kill(server.stage_pids()[1], signal.SIGKILL)
        in_flight = [future.result() for future in waiting]
    later = [outcome(server.url, images("hi")) for _ in range(2)]
    for each in (*in_flight, *later):
        assert (each.keys, each.stage) == (SIX, 1)
        nothing_leaks(each.message)
    assert [each.status for each in in_flight] == [500, 500]
    assert [each.status for each in later] == [503, 503]
    assert health(server) == 503
    kill(server)
