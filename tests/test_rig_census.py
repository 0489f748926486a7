# SPDX-License-Identifier: Apache-2.0
"""The census counts what a process holds, when it is asked."""

import asyncio
import os
from pathlib import Path

import pytest

from vllm_omni_rig import census
from vllm_omni_rig.census import TASKS


class RequestState:
    """Named as vLLM's own."""


async def test_tasks_that_run_and_states_of_requests_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestState, "__module__", "vllm.v1.engine.output_processor")
    before = census._counts()
    states, waiting = [RequestState(), RequestState()], asyncio.create_task(asyncio.sleep(60))
    found = census._counts() - before
    waiting.cancel()
    assert found == {TASKS: 1, "RequestState": len(states)}
    await asyncio.gather(waiting, return_exceptions=True)
    del states, waiting
    assert census._counts() - before == {}


def test_a_process_of_the_run_answers_each_time_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(census.SWITCH, "1")
    census.attend(tmp_path)
    census.attend(tmp_path)
    for number in range(2):
        assert census.take(tmp_path, [os.getpid()], number)[os.getpid()][TASKS] == 0


def test_a_process_that_takes_no_part_is_named(tmp_path: Path) -> None:
    (tmp_path / "census").mkdir()
    with pytest.raises(TimeoutError, match=r"\[1\]"):
        census.take(tmp_path, [1], 0, deadline_s=0.1)
