# SPDX-License-Identifier: Apache-2.0
"""Control calls to real stages: a language stage that can sleep on a CPU, and a diffusion stage that cannot."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import httpx
import pytest
from calls import images
from cases import now
from contract import client_error, verify, verify_client
from support import Answer, Call, get, post, send

from vllm_omni_rig.server import Server

Start = Callable[..., Server]

LANGUAGE, DIFFUSION = 0, 1
ROUTES = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_SERVER_DEV_MODE": "1"}
"""Turns on the routes of adapters, and the one that admits requests again."""

ADAPTER = post("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/srv/private"})
RESUME = post("/resume", {})
CAT = images("a cat")
TIMEOUT = now(504, "GatewayTimeoutError")
INTERNAL = now(500, "InternalServerError")
WRONG_LEVEL = now(400, "BadRequestError", "level")
UNAVAILABLE = now(503, "ServiceUnavailableError")


def sleep(*stages: int, level: int = 1) -> Call:
    return post("/v1/omni/sleep", {"stage_ids": list(stages), "level": level})


def wake_up(*stages: int) -> Call:
    return post("/v1/omni/wakeup", {"stage_ids": list(stages)})


def statuses(answer: Answer) -> list[str]:
    assert answer.status == 200
    return [ack["status"] for ack in answer.body["acks"]]


def waits(url: str) -> bool:
    with pytest.raises(httpx.TimeoutException):
        send(url, CAT, deadline_s=3)
    return True


def test_on_stock(fresh_server: Start) -> None:
    """Baseline: an adapter that no stage can load is loaded, requests wait for ever after a wake-up that succeeds and
    after a sleep that a stage fails at, which succeeds too, and a level that no message can hold ends the server."""
    server = fresh_server("stock", environment={"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"})
    assert "added successfully" in send(server.url, ADAPTER).text
    assert statuses(send(server.url, sleep(LANGUAGE))) == ["SUCCESS"]
    assert statuses(send(server.url, wake_up(LANGUAGE))) == ["SUCCESS"]
    assert waits(server.url)
    failed = send(server.url, sleep(LANGUAGE, DIFFUSION))
    assert failed.body["status"] == "SUCCESS"
    assert statuses(failed) == ["SUCCESS", "ERROR"]
    assert "cumem" in failed.text
    assert waits(server.url)
    assert send(server.url, sleep(LANGUAGE, level=2**70)).status == 500
    assert server.wait_until_dead(60)


def test_a_language_stage_that_slept_and_was_woken(migrated: Server) -> None:
    """Requests wait meanwhile and are answered then: this server has no other route to admit them again."""
    assert statuses(send(migrated.url, sleep(LANGUAGE))) == ["SUCCESS"]
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(send, migrated.url, CAT)
        assert wait({waiting}, timeout=2).not_done
        assert statuses(send(migrated.url, wake_up(LANGUAGE))) == ["SUCCESS"]
        assert waiting.result().status == 200


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("stages", [(DIFFUSION,), (LANGUAGE, DIFFUSION), (DIFFUSION, LANGUAGE)])
def test_a_sleep_that_a_stage_fails_at_is_undone(migrated: Server, stages: tuple[int, ...], level: int) -> None:
    """500 with the stage and without its reason; the language stage, which slept already, is woken."""
    answer = send(migrated.url, sleep(*stages, level=level))
    verify(answer, INTERNAL)
    assert answer.counted == ("5xx",)
    assert answer.error["error_stage_id"] == DIFFUSION
    assert "cumem" not in answer.text
    assert send(migrated.url, CAT).status == 200


def test_the_official_client_of_a_sleep_that_fails(migrated: Server) -> None:
    verify_client(client_error(migrated.url, sleep(DIFFUSION)), INTERNAL)


def test_sleeps_at_the_same_time_that_fail(migrated: Server) -> None:
    """None of them takes what another one has stopped for what was before."""
    with ThreadPoolExecutor(4) as executor:
        for answer in executor.map(lambda call: send(migrated.url, call), [sleep(DIFFUSION)] * 4):
            verify(answer, INTERNAL)
    assert send(migrated.url, CAT).status == 200


@pytest.mark.parametrize("level", [-1, 3, 2**70])
def test_a_level_that_there_is_not(migrated: Server, level: int) -> None:
    answer = send(migrated.url, sleep(LANGUAGE, level=level))
    verify(answer, WRONG_LEVEL)
    assert send(migrated.url, CAT).status == 200


@pytest.fixture(scope="module")
def developed(servers) -> Iterator[Server]:
    server = servers.start("migrated", environment=ROUTES)
    yield server
    server.stop()


def test_an_adapter_that_no_stage_can_load(developed: Server) -> None:
    """vLLM's route makes 500 of it; the adapter is not among the models."""
    answer = send(developed.url, ADAPTER)
    verify(answer, INTERNAL)
    assert "/srv/private" not in answer.text
    assert [model["id"] for model in send(developed.url, get("/v1/models")).body["data"]] == ["tiny"]


def test_a_pause_while_a_sleep_fails(developed: Server) -> None:
    """The sleep does not undo it."""
    with ThreadPoolExecutor(2) as executor:
        failed, paused = executor.map(lambda call: send(developed.url, call), [sleep(DIFFUSION), post("/pause", {})])
    verify(failed, INTERNAL)
    assert paused.status == 200
    assert send(developed.url, get("/is_paused")).body["is_paused"]
    assert send(developed.url, RESUME).status == 200
    assert send(developed.url, CAT).status == 200


def test_calls_by_vllms_routes_for_development(developed: Server) -> None:
    """Arguments that are none are the client's mistake, and end nothing; what a stage cannot do is said as on stock."""
    wrong = send(developed.url, post("/collective_rpc", {"method": "nope", "kwargs": True}))
    verify(wrong, now(400, "BadRequestError", "kwargs"))
    unknown = send(developed.url, post("/collective_rpc", {"method": "nope"}))
    assert unknown.status == 200
    assert [bool(answer["error"]) for answer in unknown.body["results"]] == [True, True]
    assert [answer["error_details"]["stage_id"] for answer in unknown.body["results"]] == [LANGUAGE, DIFFUSION]
    verify(send(developed.url, post("/sleep?level=1", {})), now(501, "NotImplementedError"))
    assert send(developed.url, CAT).status == 200


def test_a_stage_that_dies_before_it_answers_a_call(fresh_server: Start) -> None:
    """The call ends, and so do the requests after it; on stock neither is answered any more."""
    server = fresh_server("migrated", environment=ROUTES)
    pid = server.stage_pids()[LANGUAGE]
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as executor:
        loading = executor.submit(send, server.url, ADAPTER)
        assert wait({loading}, timeout=3).not_done
        os.kill(pid, signal.SIGKILL)
        verify(loading.result(), INTERNAL)
    verify(send(server.url, CAT), UNAVAILABLE)


def test_a_stage_that_slept_before_stays_asleep(developed: Server) -> None:
    """What a failed call found asleep it leaves asleep; the wake-up that fails at another stage can be repeated."""
    assert statuses(send(developed.url, sleep(LANGUAGE))) == ["SUCCESS"]
    verify(send(developed.url, sleep(LANGUAGE, DIFFUSION)), INTERNAL)
    assert waits(developed.url)
    failed = send(developed.url, wake_up(LANGUAGE, DIFFUSION))
    verify(failed, INTERNAL)
    assert failed.error["error_stage_id"] == DIFFUSION
    assert "cumem" not in failed.text
    assert statuses(send(developed.url, wake_up(LANGUAGE))) == ["SUCCESS"]
    assert send(developed.url, RESUME).status == 200
    assert send(developed.url, CAT).status == 200


def test_a_stage_whose_weights_are_discarded_is_not_woken(developed: Server) -> None:
    """Nothing can bring them back, so requests are told, and do not wait. The last test of this server."""
    verify(send(developed.url, sleep(LANGUAGE, DIFFUSION, level=2)), INTERNAL)
    verify(send(developed.url, CAT), UNAVAILABLE)


@pytest.mark.parametrize("stage", [LANGUAGE, DIFFUSION])
def test_a_frozen_stage_that_is_told_to_sleep(limited: Server, stage: int) -> None:
    """504 within the deadline of a stage. A language stage sleeps when it goes on, and can be woken then."""
    pid = limited.stage_pids()[stage]
    os.kill(pid, signal.SIGSTOP)
    try:
        verify(send(limited.url, sleep(stage)), TIMEOUT)
        answer = send(limited.url, CAT)
        verify(answer, UNAVAILABLE if stage == LANGUAGE else TIMEOUT)
    finally:
        os.kill(pid, signal.SIGCONT)
    if stage == LANGUAGE:
        assert statuses(send(limited.url, wake_up(stage))) == ["SUCCESS"]
    assert send(limited.url, CAT).status == 200


def test_a_frozen_stage_that_is_to_load_an_adapter(limited: Server) -> None:
    """Whoever comes after that call is answered too."""
    pid = limited.stage_pids()[DIFFUSION]
    os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as executor:
            loading = executor.submit(send, limited.url, ADAPTER)
            assert wait({loading}, timeout=1).not_done
            verify(send(limited.url, CAT), TIMEOUT)
            verify(loading.result(), INTERNAL)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert send(limited.url, CAT).status == 200


@pytest.fixture(scope="module")
def limited(servers) -> Iterator[Server]:
    server = servers.start("migrated", environment={"VLLM_OMNI_STAGE_TIMEOUT_S": "4"} | ROUTES)
    yield server
    server.stop()


@pytest.mark.parametrize("stage", [LANGUAGE, DIFFUSION])
def test_a_stage_that_is_gone_neither_sleeps_nor_is_profiled(fresh_server: Start, tmp_path: Path, stage: int) -> None:
    """503, and requests are told what is missing; on stock a sleep succeeds or waits, and they wait for ever."""
    profiler = json.dumps({"profiler": "torch", "torch_profiler_dir": str(tmp_path)})
    server = fresh_server("migrated", arguments=["--profiler-config", profiler])
    os.kill(server.stage_pids()[stage], signal.SIGKILL)
    verify(send(server.url, sleep(stage)), UNAVAILABLE)
    for route in ("/start_profile", "/stop_profile"):
        verify(send(server.url, post(route, {"stages": [stage]})), UNAVAILABLE)
    answer = send(server.url, CAT)
    verify(answer, UNAVAILABLE)
    assert answer.error["error_stage_id"] == stage
