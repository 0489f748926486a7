# SPDX-License-Identifier: Apache-2.0
"""Calls that control a running engine, on an engine client that has what of ``AsyncOmni`` they touch."""

import asyncio

import pytest
from vllm.exceptions import VLLMValidationError

from vllm_omni_errors import OmniStageTimeoutError, to_details
from vllm_omni_errors.control import answers_in_time, check_stages, restores_admission


class Client:
    """Stops admitting requests, then does what it is told to."""

    def __init__(self, outcome: BaseException | str = "done", *, paused: bool = False, held: bool = False) -> None:
        self.outcome = outcome
        self._paused = paused
        self._hold_admission_until_resume = held
        self._sleeping_tags: set[str] = set()
        self._pause_cond = asyncio.Condition()

    @restores_admission
    async def sleep(self, level: int = 1) -> str:
        async with self._pause_cond:
            self._paused = True
        self._hold_admission_until_resume = True
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        if level:
            self._sleeping_tags.add("weights")
        return f"{self.outcome} {level}"

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


@pytest.mark.parametrize("outcome", [OmniStageTimeoutError("late"), ValueError("no"), asyncio.CancelledError()])
async def test_a_sleep_that_fails_admits_requests_again(outcome: BaseException) -> None:
    client = Client(outcome)
    with pytest.raises(type(outcome)):
        await client.sleep()
    assert client.state == (False, False)


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
