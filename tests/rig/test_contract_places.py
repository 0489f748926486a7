# SPDX-License-Identifier: Apache-2.0
"""Places where stock lost what a failure was, and that no server of the rig reaches, each by itself."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import tree_of
from contract import nothing_leaks

from vllm_omni_errors.stage_deadline import LIMIT
from vllm_omni_rig.environment import variables
from vllm_omni_rig.preloaded import python
from vllm_omni_rig.server import SETTINGS

PROGRAM = Path(__file__).with_name("places_program.py")
DEADLINE_S = 180

REFUSED = (400, "GuardrailViolationError", False)
DEAD = (500, "InternalServerError", True)
LATE = (504, "GatewayTimeoutError", False)
NO_STAGE = (503, "ServiceUnavailableError", False)

EXPECTED = {
    "status_of_ranks": REFUSED,
    "answer_of_a_worker": REFUSED,
    "call_of_a_rank": REFUSED,
    "request_of_several_processes": REFUSED,
    "fallback_of_the_runner": REFUSED,
    "batch_of_requests": REFUSED,
    "replica_that_disappeared": DEAD,
    "interaction_without_request": (404, "NotFoundError", False),
    "interaction_that_is_refused": REFUSED,
    "session_request": (500, "InternalServerError", False),
    "call_into_a_dead_engine": DEAD,
    "message_that_cannot_be_decoded": (500, "InternalServerError", False),
    "request_at_the_end_of_the_engine": DEAD,
    "abort_at_the_death_of_a_stage": ("passed", "passed", False),
    "next_stage_parameters": (400, "BadRequestError", False),
    "pixels_of_several_replicas": (422, "UnprocessableEntityError", False),
    "settings_of_a_session": (400, "BadRequestError", False),
    "partly_asleep": (503, "ServiceUnavailableError", False),
    "call_that_the_engine_does_not_answer": LATE,
    "call_that_workers_do_not_answer": LATE,
    "awaited_call_that_workers_do_not_answer": LATE,
    "call_that_a_stage_does_not_answer": LATE,
    "pause_that_waits_for_a_receive": LATE,
    "pause_that_a_language_stage_does_not_answer": LATE,
    "reset_that_a_language_stage_does_not_answer": LATE,
    "pause_that_a_stage_refuses": REFUSED,
    "sleep_that_a_language_stage_refuses": REFUSED,
    "wake_up_that_a_language_stage_refuses": REFUSED,
    "removal_of_an_adapter_that_no_stage_can_do": (500, "InternalServerError", False),
    "pin_of_an_adapter_that_no_stage_can_do": (500, "InternalServerError", False),
    "session_without_a_stage": NO_STAGE,
    "turn_without_a_stage": NO_STAGE,
    "call_that_failed_in_a_stage_process": REFUSED,
    "message_of_a_failure_offline": NO_STAGE,
    "output_of_a_failure_offline": REFUSED,
    "event_of_a_duplex_session": (404, "NotFoundError", False),
    "companion_that_was_lost": (500, "InternalServerError", False),
}

Places = dict[str, dict[str, Any]]


def places(variant: str) -> Places:
    environment = {**os.environ, **SETTINGS, **variables(tree=tree_of(variant))}
    command = python(environment, ["-P", str(PROGRAM)])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stderr[-3000:]
    found: Places = json.loads(results[0].removeprefix("RESULT "))
    return found


@pytest.fixture(scope="module")
def migrated() -> Places:
    return places("migrated")


@pytest.fixture(scope="module")
def stock() -> Places:
    return places("stock")


@pytest.mark.parametrize("place", EXPECTED)
def test_a_failure_keeps_what_it_is(migrated: Places, place: str) -> None:
    found = migrated[place]
    assert (found["status"], found["type"], found["fatal"]) == EXPECTED[place]
    assert found["text"]
    nothing_leaks(found["text"])


@pytest.mark.parametrize("place", EXPECTED)
def test_stock_loses_it(stock: Places, place: str) -> None:
    assert stock[place]["status"] is None


def test_a_traceback_of_a_worker_is_in_no_message(migrated: Places, stock: Places) -> None:
    assert "Traceback" in stock["status_of_ranks"]["text"]
    assert "Traceback" not in migrated["status_of_ranks"]["text"]


@pytest.mark.parametrize(("place", "kind"), [("server", "SystemExit"), ("engine", "ValueError")])
def test_nothing_starts_with_a_deadline_that_is_none(migrated: Places, stock: Places, place: str, kind: str) -> None:
    """One sentence, before anything is loaded."""
    found = migrated[f"{place}_with_a_wrong_deadline"]
    assert found["type"] == kind
    assert f"{LIMIT} is 'soon'; set it to a positive number of seconds, or not at all." in found["text"]
    assert LIMIT not in stock[f"{place}_with_a_wrong_deadline"]["text"]


@pytest.mark.parametrize("place", ["replica_that_disappeared", "session_request", "call_into_a_dead_engine"])
def test_the_stage_is_known(migrated: Places, place: str) -> None:
    assert migrated[place]["stage"] == 1
