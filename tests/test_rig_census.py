# SPDX-License-Identifier: Apache-2.0
"""The census counts what a process holds, when it is asked."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from vllm_omni_rig import census
from vllm_omni_rig.census import BLOCKS, EXCEPTIONS, TASKS


class RequestState:
    """Named as vLLM's own."""


def held() -> Counter[str]:
    """Without what only sums up the others, and what a cancellation leaves behind for a moment."""
    counts = census._counts()
    del counts[BLOCKS], counts[EXCEPTIONS]
    return counts


async def test_tasks_that_run_and_states_of_requests_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestState, "__module__", "vllm.v1.engine.output_processor")
    before = held()
    states, waiting = [RequestState(), RequestState()], asyncio.create_task(asyncio.sleep(60))
    found = held() - before
    waiting.cancel()
    assert found == {TASKS: 1, "RequestState": len(states)}
    await asyncio.gather(waiting, return_exceptions=True)
    del states, waiting
    assert held() - before == {}


def test_exceptions_that_are_kept_are_counted() -> None:
    before = census._counts()[EXCEPTIONS]
    kept = [ValueError(), KeyError()]
    assert census._counts()[EXCEPTIONS] == before + len(kept)


def test_what_python_keeps_is_counted_in_blocks() -> None:
    before = census._counts()[BLOCKS]
    kept = [object() for _ in range(10_000)]
    assert census._counts()[BLOCKS] - before > len(kept) / 2


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
