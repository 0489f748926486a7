# SPDX-License-Identifier: Apache-2.0
"""Calls that control a running engine, on an engine client that has what of ``AsyncOmni`` they touch."""

import asyncio
from types import SimpleNamespace

import pytest
from vllm.exceptions import VLLMValidationError

from vllm_omni_errors import (
    OmniEngineDeadError,
    OmniNotImplementedError,
    OmniServerError,
    OmniServiceUnavailableError,
    OmniStageTimeoutError,
    to_details,
)
from vllm_omni_errors.control import (
    admits_after_wake_up,
    answers_in_time,
    asks_replica,
    check_arguments,
    check_level,
    check_stages,
    done_by_any_stage,
    done_by_every_stage,
    done_by_every_stage_left,
    one_at_a_time,
    restores_admission,
    stages_asleep,
)


class Client:
    """Stops admitting requests, sends stage 0 to sleep, then does what it is told to."""

    def __init__(
        self,
        outcome: BaseException | str = "done",
        *,
        paused: bool = False,
        held: bool = False,
        woken: BaseException | None = None,
    ) -> None:
        self.outcome = outcome
        self.woken = woken
        self.wake_ups: list[list[int] | None] = []
        self._paused = paused
        self._hold_admission_until_resume = held
        self._stage_sleeping_tags: dict[int, set[str]] = {}
        self._pause_cond = asyncio.Condition()

    @property
    def _sleeping_tags(self) -> set[str]:
        return set().union(*self._stage_sleeping_tags.values())

    @restores_admission
    async def sleep(self, level: int = 1) -> str:
        async with self._pause_cond:
            self._paused = True
        self._hold_admission_until_resume = True
        if level:
            self._stage_sleeping_tags.setdefault(0, set()).add("weights")
        await asyncio.sleep(0)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return f"{self.outcome} {level}"

    async def wake_up(self, stage_ids: list[int] | None = None) -> list[object]:
        self.wake_ups.append(stage_ids)
        if self.woken:
            raise self.woken
        for stage in stage_ids or ():
            del self._stage_sleeping_tags[stage]
        return []

    async def admitted(self) -> bool:
        async with self._pause_cond:
            await self._pause_cond.wait_for(lambda: not self._paused)
        return True

    @property
    def state(self) -> tuple[bool, bool]:
        return self._paused, self._hold_admission_until_resume


async def test_a_sleep_that_succeeds_stays_asleep() -> None:
    client = Client()
    assert await client.sleep(level=2) == "done 2"
    assert client.state == (True, True)


async def test_a_sleep_of_nothing_admits_requests_again() -> None:
    client = Client()
    assert await client.sleep(level=0) == "done 0"
    assert client.state == (False, False)


@pytest.mark.parametrize("outcome", [OmniServerError("no"), ValueError("no"), asyncio.CancelledError()])
async def test_a_sleep_that_fails_admits_requests_again(outcome: BaseException) -> None:
    client = Client(outcome)
    with pytest.raises(type(outcome)):
        await client.sleep()
    assert client.state == (False, False)
    assert client.wake_ups == [[0]]
    assert not client._sleeping_tags


async def test_a_stage_that_does_not_answer_may_sleep_and_is_not_asked_again() -> None:
    """Requests are admitted as before, and told that it sleeps."""
    client = Client(OmniStageTimeoutError("late"))
    with pytest.raises(OmniStageTimeoutError):
        await client.sleep()
    assert client.state == (False, False)
    assert client.wake_ups == []
    assert client._sleeping_tags == {"weights"}


def test_stages_that_a_failed_sleep_left_asleep_can_be_woken() -> None:
    client = Client()
    client._stage_sleeping_tags = {3: {"weights"}}
    told = {1}
    assert stages_asleep(client, told) is told
    assert told == {1, 3}
    assert stages_asleep(object(), told) == {1, 3}


async def test_a_stage_that_slept_before_is_not_woken() -> None:
    client = Client(RuntimeError("no"), paused=True, held=True)
    client._stage_sleeping_tags = {0: {"weights"}}
    with pytest.raises(RuntimeError, match="no"):
        await client.sleep()
    assert client.wake_ups == []
    assert client._sleeping_tags == {"weights"}


async def test_what_cannot_be_woken_stays_asleep_and_the_first_failure_is_the_callers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A request is admitted, and told that a stage sleeps."""
    client = Client(RuntimeError("no"), woken=RuntimeError("nor that"))
    with pytest.raises(RuntimeError, match=r"^no$"):
        await client.sleep()
    assert client.state == (False, False)
    assert client._sleeping_tags == {"weights"}
    assert "[0]" in caplog.text
    assert "nor that" in caplog.text


async def test_a_request_that_waits_meanwhile_goes_on() -> None:
    client = Client(RuntimeError("no"))
    client._paused = True
    waiting = asyncio.create_task(client.admitted())
    await asyncio.sleep(0)
    client._paused = False  # as before the sleep; nobody has told the one who waits
    with pytest.raises(RuntimeError):
        await client.sleep()
    assert await asyncio.wait_for(waiting, 5)


async def test_what_was_paused_before_stays_paused() -> None:
    client = Client(RuntimeError("no"), paused=True, held=True)
    with pytest.raises(RuntimeError):
        await client.sleep()
    assert client.state == (True, True)


async def test_a_control_call_that_is_not_answered_is_504() -> None:
    private = TimeoutError("/srv/private")

    async def call() -> None:
        raise private

    with pytest.raises(OmniStageTimeoutError) as caught:
        await answers_in_time(call)()
    details = to_details(caught.value)
    assert (details.status_code, details.error_type) == (504, "GatewayTimeoutError")
    assert details.message == "The engine did not answer the control call in time."
    assert caught.value.__cause__ is private


@pytest.mark.parametrize(
    "error", [type("Typed", (OmniStageTimeoutError, TimeoutError), {})("stage 1"), ValueError("x")]
)
async def test_what_is_typed_or_no_timeout_passes(error: Exception) -> None:
    async def call() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await answers_in_time(call)()
    assert caught.value is error


@pytest.mark.parametrize("stages", [None, [], [0], [1, 0]])
def test_stages_that_are_there(stages: list[int] | None) -> None:
    check_stages(stages, 2)


@pytest.mark.parametrize("stages", [[2], [0, -1], [2**70]])
def test_stages_that_are_not_there_are_the_clients_mistake(stages: list[int]) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        check_stages(stages, 2)
    assert caught.value.parameter == "stages"
    assert to_details(caught.value).message.endswith("at least 0 and less than 2.")


async def test_a_control_call_that_is_answered_gives_its_answer() -> None:
    async def call(method: str) -> str:
        return method

    assert await answers_in_time(call)("sleep") == "sleep"


@pytest.mark.parametrize("level", [0, 1, 2])
def test_levels_that_are_known(level: int) -> None:
    check_level(level)


@pytest.mark.parametrize("level", [-1, 3, 2**70])
def test_other_levels_are_the_clients_mistake(level: int) -> None:
    with pytest.raises(VLLMValidationError) as caught:
        check_level(level)
    assert caught.value.parameter == "level"


class Acknowledgement:
    def __init__(self, status: str) -> None:
        self.status = status
        self.stage_id = 7
        self.error_msg = "/srv/private"


DONE = Acknowledgement("SUCCESS")
NOT_DONE = Acknowledgement("ERROR")
UNSUPPORTED = {"supported": False, "error": "/srv/private"}
UNFINISHED = {"todo": True}


def calling(*answers: object):
    async def call(*, asked: int) -> list[object]:
        assert asked == 2
        return list(answers)

    return call


FAILURES = [
    ((NOT_DONE,), 7),
    ((DONE, NOT_DONE), 7),
    (([DONE, [NOT_DONE]],), 7),
    (({"status": "ERROR", "stage_id": 7, "error_msg": "/srv/private"},), 7),
    ((True, UNSUPPORTED), None),
    (({"error": "/srv/private"}, NOT_DONE), None),
]
"""Answers, and the stage of the first failure among them."""


@pytest.mark.parametrize("done", [done_by_every_stage, done_by_every_stage_left])
@pytest.mark.parametrize(("answers", "stage"), FAILURES)
async def test_a_stage_that_reports_a_failure_fails_the_call(
    done, answers, stage: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """500, with the stage where it is known, and the reason in the log only."""
    with pytest.raises(OmniServerError) as caught:
        await done(calling(*answers))(asked=2)
    details = to_details(caught.value)
    assert (details.status_code, details.error_type, details.stage_id) == (500, "InternalServerError", stage)
    assert "/srv/private" not in details.message
    assert "/srv/private" in caplog.text


@pytest.mark.parametrize("done", [done_by_every_stage, done_by_every_stage_left, done_by_any_stage])
@pytest.mark.parametrize(
    "answers", [(DONE,), (True, None, 3), ([], {}), (UNFINISHED, [DONE]), ({"status": "SUCCESS"},)]
)
async def test_what_is_done_is_returned_as_it_is(done, answers) -> None:
    assert await done(calling(*answers))(asked=2) == list(answers)


@pytest.mark.parametrize("answers", [(DONE, NOT_DONE), (UNSUPPORTED, True), (UNSUPPORTED, UNFINISHED)])
async def test_one_stage_is_enough_where_not_every_one_can(answers) -> None:
    assert await done_by_any_stage(calling(*answers))(asked=2) == list(answers)


@pytest.mark.parametrize("answers", [(NOT_DONE,), (UNSUPPORTED, NOT_DONE), ([UNSUPPORTED],)])
async def test_what_no_stage_does_fails(answers) -> None:
    with pytest.raises(OmniServerError) as caught:
        await done_by_any_stage(calling(*answers))(asked=2)
    assert to_details(caught.value).status_code == 500


@pytest.mark.parametrize("done", [done_by_every_stage, done_by_any_stage])
async def test_no_stage_at_all_is_unavailable(done) -> None:
    with pytest.raises(OmniServiceUnavailableError):
        await done(calling())(asked=2)


async def test_a_stage_that_is_gone_need_not_be_woken() -> None:
    assert await done_by_every_stage_left(calling())(asked=2) == []


class Pool:
    stage_id = 7

    def __init__(self, live: list[int]) -> None:
        self.live = live

    def live_replica_ids(self) -> list[int]:
        return self.live


async def test_a_replica_that_answers() -> None:
    async def call(**arguments: object) -> object:
        return arguments

    given = {"replica_id": 1, "timeout": None, "method": "x"}
    assert await asks_replica(call, Pool([1]))(**given) == given


async def test_what_a_replica_raises_is_what_the_call_raises() -> None:
    async def call(**_: object) -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match=r"^no$"):
        await asks_replica(call, Pool([1]))(replica_id=1, timeout=None)


@pytest.mark.parametrize(
    ("live", "timeout", "limit", "error"),
    [
        ([2], None, "", OmniEngineDeadError),
        ([1], 0.01, "", OmniStageTimeoutError),
        ([1], None, "0.01", OmniStageTimeoutError),
    ],
)
async def test_a_call_without_an_answer_ends(
    live: list[int],
    timeout: float | None,
    limit: str,
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the stage; what was asked is given up."""
    monkeypatch.setenv("VLLM_OMNI_STAGE_TIMEOUT_S", limit)
    ended = []

    async def call(**_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(error) as caught:
        await asks_replica(call, Pool(live))(replica_id=1, timeout=timeout)
    await asyncio.sleep(0)
    assert ended
    assert to_details(caught.value).stage_id == 7


def test_named_arguments_that_are_none() -> None:
    check_arguments(None)
    check_arguments({})
    for wrong in (True, [], "x"):
        with pytest.raises(VLLMValidationError) as caught:
            check_arguments(wrong)
        assert caught.value.parameter == "kwargs"


def test_a_call_of_another_engine_is_not_implemented() -> None:
    with pytest.raises(OmniNotImplementedError):
        check_level("abort")


async def test_two_sleeps_that_fail_at_the_same_time() -> None:
    client = Client(RuntimeError("no"))
    results = await asyncio.gather(client.sleep(), client.sleep(), return_exceptions=True)
    assert [str(result) for result in results] == ["no", "no"]
    assert client.state == (False, False)


async def test_one_begins_when_the_other_has_ended() -> None:
    order = []

    class Engine:
        @one_at_a_time
        async def call(self, name: str) -> None:
            order.append(name)
            await asyncio.sleep(0)
            order.append(name)

    engine = Engine()
    await asyncio.gather(engine.call("a"), engine.call("b"))
    assert order == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("paths", "asleep", "admitted"),
    [(["/health"], False, True), (["/resume"], False, False), (["/health"], True, False)],
)
async def test_a_wake_up_admits_requests_where_nothing_else_can(paths: list[str], asleep: bool, admitted: bool) -> None:
    """And only when no stage sleeps any more."""
    engine = SimpleNamespace(_sleeping_tags={"weights"} if asleep else set(), admitted=False)

    async def resume() -> None:
        engine.admitted = True

    engine.resume_generation = resume
    routes = [SimpleNamespace(path=path) for path in paths] + [object()]
    await admits_after_wake_up(SimpleNamespace(routes=routes), engine)
    assert engine.admitted is admitted
