# SPDX-License-Identifier: Apache-2.0
"""The migrated server ends, or stays, as stock does (test_baseline_lifecycle.py); what it says keeps the contract."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from calls import chat, completions, images
from cases import now
from conftest import Servers
from contract import nothing_leaks, verify
from lifecycle import PATIENCE_S, health, kill, outcome, play
from support import SIX, Call, post, send

from vllm_omni_errors.stage_deadline import LIMIT
from vllm_omni_rig.server import Server

Start = Callable[..., Server]

LIMIT_S = 8
"""Longer than what a request may take on a machine that has other work too."""


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


@pytest.fixture(scope="module")
def timed(servers: Servers) -> Iterator[Server]:
    """Two stages that have a deadline, and vLLM's routes for development."""
    server = servers.start("migrated", environment={LIMIT: str(LIMIT_S), "VLLM_SERVER_DEV_MODE": "1"})
    yield server
    kill(server)
    server.stop()


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("call", [images("x"), chat("x", stream=True)], ids=["images", "chat stream"])
def test_a_frozen_stage_is_a_timeout_until_it_goes_on(timed: Server, call: Call, stage: int) -> None:
    """L07, L09: with the stage, within its deadline; the client does not ask again by itself, and the next one may."""
    process = timed.stage_pids()[stage]
    os.kill(process, signal.SIGSTOP)
    try:
        began = time.monotonic()
        answer = send(timed.url, call, deadline_s=PATIENCE_S)
        took_s = time.monotonic() - began
        assert health(timed) == 200
    finally:
        os.kill(process, signal.SIGCONT)
    verify(answer, now(504, "GatewayTimeoutError"))
    assert answer.error["error_stage_id"] == stage
    assert answer.error["message"] == f"Stage {stage} did not finish within {LIMIT_S} s."
    assert took_s >= LIMIT_S
    assert outcome(timed.url, images("after")).status == 200


ROUTES = (images("x"), chat("x"), chat("x", stream=True), completions(prompt="x", max_tokens=2))


def test_a_request_while_a_stage_sleeps(timed: Server) -> None:
    """vLLM's own route `/resume` opens an engine of which a stage still sleeps: 503 until it is awake.

    On stock 500 with the internal tags, and of a stream 200 with an error in it. Only the AR stage sleeps on a CPU.
    """
    opened = post("/resume", {})
    assert send(timed.url, post("/v1/omni/sleep", {"stage_ids": [0], "level": 1})).status == 200
    assert send(timed.url, opened).status == 200
    for call in ROUTES:
        answer = send(timed.url, call)
        verify(answer, now(503, "ServiceUnavailableError"))
        assert answer.counted == ("5xx",)
    assert send(timed.url, post("/v1/omni/wakeup", {"stage_ids": [0]})).status == 200
    assert send(timed.url, opened).status == 200
    assert send(timed.url, images("after")).status == 200


def test_the_diffusion_stage_is_killed(timed: Server) -> None:
    """Stock never answers anybody again (test_baseline_lifecycle.py): a message to the dead process blocked it."""
    server = timed
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
