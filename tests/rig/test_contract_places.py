# SPDX-License-Identifier: Apache-2.0
"""Places where stock lost what a failure was, and that no server of the rig reaches (facts, section 6)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import tree_of
from contract import nothing_leaks

from vllm_omni_rig.environment import variables
from vllm_omni_rig.server import SETTINGS

PROGRAM = Path(__file__).with_name("places_program.py")
DEADLINE_S = 180

REFUSED = (400, "GuardrailViolationError", False)
DEAD = (500, "InternalServerError", True)

EXPECTED = {
    "status_of_ranks": REFUSED,
    "answer_of_a_worker": REFUSED,
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
}

Places = dict[str, dict[str, Any]]


def places(variant: str) -> Places:
    environment = {**os.environ, **SETTINGS, **variables(tree=tree_of(variant))}
    command = [sys.executable, "-P", str(PROGRAM)]
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


@pytest.mark.parametrize("place", ["replica_that_disappeared", "session_request", "call_into_a_dead_engine"])
def test_the_stage_is_known(migrated: Places, place: str) -> None:
    assert migrated[place]["stage"] == 1
