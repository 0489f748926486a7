# SPDX-License-Identifier: Apache-2.0
"""Calls that control a running engine: what their failure means, and what must be as before after it."""

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from . import upstream
from .exceptions import (
    OmniEngineDeadError,
    OmniNotImplementedError,
    OmniServerError,
    OmniServiceUnavailableError,
    OmniStageTimeoutError,
)
from .stage_deadline import limit_s
from .stage_messages import call_error

__all__ = [
    "admits_after_wake_up",
    "answers_in_time",
    "asks_replica",
    "check_arguments",
    "check_level",
    "check_stages",
    "done_by_any_stage",
    "done_by_every_stage",
    "done_by_every_stage_left",
    "one_at_a_time",
    "restores_admission",
    "stages_asleep",
]

logger = logging.getLogger("vllm_omni_errors")

UNANSWERED = "The engine did not answer the control call in time."
NOT_DONE = "A stage could not do what was asked; the server's log has the reason."
NOT_THERE = "No stage that was asked is available."
OTHER_ROUTE = "Stages are put to sleep by POST /v1/omni/sleep, and woken by POST /v1/omni/wakeup."
LOOK_EVERY_S = 0.5
"""How often a call that is not answered yet is looked at."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def answers_in_time(function: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
    """A control call to the engine: its raw ``TimeoutError`` is ours to answer for, ``OmniStageTimeoutError``, 504."""

    @functools.wraps(function)
    async def answered(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await function(*args, **kwargs)
        except TimeoutError as exc:
            if isinstance(exc, upstream.VLLMError):
                raise
            raise OmniStageTimeoutError(UNANSWERED) from exc

    return answered


class _Pool(Protocol):
    """What of a stage's pool (``engine/stage_pool.py:100``) says whether a replica is there."""

    stage_id: int

    def live_replica_ids(self) -> Collection[int]: ...


def asks_replica(call: Callable[..., Awaitable[_T]], pool: _Pool) -> Callable[..., Awaitable[_T]]:
    """``pool.collective_rpc``, of which nothing but an answer was an end; whoever waits for it gives no request on.

    Raises OmniEngineDeadError when the replica is gone, and OmniStageTimeoutError after the time that the call gives,
    or else after that of a stage.
    """

    async def asking(*, replica_id: int, timeout: float | None, **others: Any) -> _T:
        seconds = limit_s() if timeout is None else timeout
        end = None if seconds is None else time.monotonic() + seconds
        answer = asyncio.ensure_future(call(replica_id=replica_id, timeout=timeout, **others))
        try:
            while not (await asyncio.wait({answer}, timeout=LOOK_EVERY_S))[0]:
                if replica_id not in pool.live_replica_ids():
                    raise OmniEngineDeadError(stage_id=pool.stage_id)
                if end is not None and time.monotonic() >= end:
                    raise OmniStageTimeoutError(UNANSWERED, stage_id=pool.stage_id)
            return answer.result()
        finally:
            answer.cancel()

    return asking


def check_arguments(kwargs: object) -> None:
    """Raise ``VLLMValidationError`` unless the named arguments of a call, if there are any, are an object."""
    if kwargs is not None and not isinstance(kwargs, dict):
        raise upstream.VLLMValidationError("kwargs must be an object.", parameter="kwargs")


def check_stages(stages: Sequence[int] | None, number: int) -> None:
    """Raise ``VLLMValidationError`` if one of the stages that a request names is none of the server's ``number``."""
    if stages is not None and not all(0 <= stage < number for stage in stages):
        message = f"Each of stages must be a stage number of this server: at least 0 and less than {number}."
        raise upstream.VLLMValidationError(message, parameter="stages")


def check_level(level: object) -> None:
    """Raise ``VLLMValidationError`` unless vLLM knows the level of sleep (``v1/engine/core.py:883``).

    Of a call that is made as one of vLLM's engine (``serve/dev/sleep/api_router.py``), OmniNotImplementedError: it has
    other arguments, and its second one is a word.
    """
    if isinstance(level, str):
        raise OmniNotImplementedError(OTHER_ROUTE)
    if level not in (0, 1, 2):
        raise upstream.VLLMValidationError("level must be 0, 1 or 2.", parameter="level")


_Call = Callable[_P, Awaitable[list[Any]]]
"""A control call that returns what each stage that was asked answers; a stage without a replica is not asked."""


def done_by_every_stage(call: _Call[_P]) -> _Call[_P]:
    """A control call that fails with the first failure that a stage reports, and with 503 if no stage is there."""
    return _done(call, lambda failures: not failures or any(failures))


def done_by_every_stage_left(call: _Call[_P]) -> _Call[_P]:
    """Likewise of a call for which a stage that is gone need not be there: it is not asleep either."""
    return _done(call, any)


def done_by_any_stage(call: _Call[_P]) -> _Call[_P]:
    """Likewise of a call that not every stage can do: it fails if each one that was asked reports a failure."""
    return _done(call, all)


def _done(call: _Call[_P], has_failed: Callable[[list[Exception | None]], bool]) -> _Call[_P]:
    @functools.wraps(call)
    async def done(*args: _P.args, **kwargs: _P.kwargs) -> list[Any]:
        answers = await call(*args, **kwargs)
        failures = [next(_failures(answer), None) for answer in answers]
        if has_failed(failures):
            raise next(filter(None, failures), None) or OmniServiceUnavailableError(NOT_THERE)
        return answers

    return done


def _failures(answer: Any) -> Iterator[Exception]:
    """Of what a stage answered: a list of its workers' answers, an acknowledgement, or what its pool says for it."""
    if isinstance(answer, list | tuple):
        for each in answer:
            yield from _failures(each)
    elif _field(answer, "status") == "ERROR":
        logger.error("stage %s: %s", _field(answer, "stage_id"), _field(answer, "error_msg"))
        yield OmniServerError(NOT_DONE, stage_id=_field(answer, "stage_id"))
    elif isinstance(answer, dict) and (answer.get("error") or answer.get("supported") is False):
        yield call_error("of this request", answer)


def _field(answer: object, name: str) -> Any:
    return answer.get(name) if isinstance(answer, dict) else getattr(answer, name, None)


class _Admitting(Protocol):
    """What of ``AsyncOmni`` decides whether a new request waits, and undoes a sleep."""

    _paused: bool
    _hold_admission_until_resume: bool
    _sleeping_tags: Collection[str]
    _stage_sleeping_tags: Mapping[int, Collection[str]]
    _pause_cond: Any

    async def wake_up(self, stage_ids: list[int] | None = None) -> list[Any]: ...


_Engine = TypeVar("_Engine", bound=_Admitting)


def one_at_a_time(
    method: Callable[Concatenate[_Engine, _P], Awaitable[_T]],
) -> Callable[Concatenate[_Engine, _P], Awaitable[_T]]:
    """A method of ``AsyncOmni`` that stops admitting requests: it begins when the one before it has ended.

    One that fails meanwhile would restore what the other had changed.
    """

    @functools.wraps(method)
    async def alone(engine: _Engine, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        async with engine.__dict__.setdefault("_stopping_admission", asyncio.Lock()):
            return await method(engine, *args, **kwargs)

    return alone


def restores_admission(
    method: Callable[Concatenate[_Engine, _P], Awaitable[_T]],
) -> Callable[Concatenate[_Engine, _P], Awaitable[_T]]:
    """A method of ``AsyncOmni`` that sends stages to sleep and stops admitting requests: if it fails, all is as before.

    Stages that it sent to sleep are woken again. What cannot be woken, or did not answer, stays recorded as asleep,
    and a request is told so. Requests are admitted as before, also if nothing sleeps after a success: otherwise every
    later one would wait for a wake-up that nobody knows to be needed.
    """

    @one_at_a_time
    @functools.wraps(method)
    async def restoring(engine: _Engine, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        before = engine._paused, engine._hold_admission_until_resume
        slept = set(engine._stage_sleeping_tags)
        asleep = False
        try:
            result = await method(engine, *args, **kwargs)
            asleep = bool(engine._sleeping_tags)
        except OmniStageTimeoutError:  # who did not answer that will not answer a wake-up either
            raise
        except BaseException:
            await _wake_again(engine, sorted(set(engine._stage_sleeping_tags) - slept))
            raise
        finally:
            if not asleep:
                async with engine._pause_cond:
                    engine._paused, engine._hold_admission_until_resume = before
                    engine._pause_cond.notify_all()
        return result

    return restoring


async def _wake_again(engine: _Admitting, stages: list[int]) -> None:
    if not stages:
        return
    try:
        await engine.wake_up(stage_ids=stages)
    except Exception:
        logger.exception("Stages %s were sent to sleep by a call that failed, and cannot be woken", stages)


def stages_asleep(engine: Any, told: set[int]) -> set[int]:
    """``told``, the stages that a route has sent to sleep, with those added that a failed sleep left asleep."""
    told.update(getattr(engine, "_stage_sleeping_tags", ()))
    return told


async def admits_after_wake_up(app: Any, engine: Any) -> None:
    """Admit requests again when no stage sleeps any more, on a server that has no route for it (vLLM's ``/resume``).

    ``AsyncOmni.wake_up`` leaves that to its caller if a language stage slept (``entrypoints/async_omni.py:923``).
    """
    if not engine._sleeping_tags and all(getattr(route, "path", None) != "/resume" for route in app.routes):
        await engine.resume_generation()
