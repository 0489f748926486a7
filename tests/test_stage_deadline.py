# SPDX-License-Identifier: Apache-2.0
"""The deadline of a stage: which requests are late, and at which stage."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_omni_errors import stage_deadline
from vllm_omni_errors.stage_deadline import LIMIT, exit_unless_limit_is_valid, late_requests, limit_s


@dataclass
class State:
    """A request as the orchestrator knows it: when it was given to which stage, and which have finished."""

    stage_submit_ts: dict[int, float]
    finished_stage_ids: set[int] = field(default_factory=set)
    session_owned: bool = False
    streaming: Any = field(default_factory=lambda: SimpleNamespace(enabled=False))


class Clock:
    """Time passes only where something waits for it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(stage_deadline, "time", found)

    async def wait_for(waiting: Any, timeout: float) -> None:
        waiting.close()
        found.now += timeout
        await asyncio.sleep(0)
        raise TimeoutError

    monkeypatch.setattr(stage_deadline.asyncio, "wait_for", wait_for)
    return found


async def first(states: dict[str, State]) -> tuple[str, int, Exception]:
    return await anext(late_requests(states, asyncio.Event()))


async def test_a_request_is_late_when_its_stage_has_had_the_time_that_is_set(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setenv(LIMIT, "5")
    request_id, stage_id, error = await first({"a": State({0: 1.0, 1: 2.0}, {0})})
    assert (request_id, stage_id, error.stage_id) == ("a", 1, 1)  # type: ignore[attr-defined]
    assert str(error) == "Stage 1 did not finish within 5 s."
    assert 5 <= clock.now <= 6


async def test_the_first_stage_that_is_late_is_named(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """L09: the stages after it wait for it."""
    monkeypatch.setenv(LIMIT, "5")
    assert (await first({"a": State({1: 1.0, 0: 1.0})}))[1] == 0
    assert (await first({"a": State({0: 1.0, 1: 1.0}, {0})}))[1] == 1


async def test_a_stage_that_is_given_the_request_has_its_whole_time(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setenv(LIMIT, "5")
    state = State({0: 1.0})
    waiting = asyncio.ensure_future(first({"a": state}))
    while clock.now < 4:
        await asyncio.sleep(0)
    state.finished_stage_ids.add(0)
    state.stage_submit_ts[1] = 2.0
    assert (await waiting)[1] == 1
    assert clock.now >= 9


@pytest.mark.parametrize(
    "state",
    [
        State({0: 1.0}, {0}),
        State({}),
        State({0: 1.0}, session_owned=True),
        State({0: 1.0}, streaming=SimpleNamespace(enabled=True)),
    ],
    ids=["finished", "not given to a stage", "of a session", "whose input is coming"],
)
async def test_a_request_that_no_stage_has_to_finish_is_never_late(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, state: State
) -> None:
    monkeypatch.setenv(LIMIT, "1")
    states = {"patient": state, "late": State({0: 1.0})}
    found = late_requests(states, asyncio.Event())
    assert [(await anext(found))[0] for _ in range(3)] == ["late"] * 3


async def test_nothing_is_late_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIMIT, raising=False)
    assert [each async for each in late_requests({"a": State({0: 1.0})}, asyncio.Event())] == []


async def test_it_ends_when_the_orchestrator_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "1000")
    stop = asyncio.Event()
    found = asyncio.ensure_future(anext(late_requests({"a": State({0: 1.0})}, stop), None))
    await asyncio.sleep(0)
    stop.set()
    assert await asyncio.wait_for(found, 5) is None


@pytest.mark.parametrize("written", ["0", "-1", "nan", "inf", "5s"])
def test_a_limit_that_is_none_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv(LIMIT, written)
    with pytest.raises(ValueError, match=f"{LIMIT} is '{written}'; set it to a positive number"):
        limit_s()


@pytest.mark.parametrize("written", ["0", "soon"])
def test_a_program_ends_with_the_sentence(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv(LIMIT, written)
    with pytest.raises(SystemExit) as ended:
        exit_unless_limit_is_valid()
    sentence = f"{LIMIT} is '{written}'; set it to a positive number of seconds, or not at all."
    assert ended.value.code == f"vllm-omni: {sentence}"


@pytest.mark.parametrize("written", ["", "2.5"])
def test_a_program_with_a_valid_limit_goes_on(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv(LIMIT, written)
    exit_unless_limit_is_valid()
