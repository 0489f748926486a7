# SPDX-License-Identifier: Apache-2.0
"""Calls that control a running engine: what their failure means, and what must be as before after it."""

import functools
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from . import upstream
from .exceptions import OmniStageTimeoutError

__all__ = ["answers_in_time", "check_stages", "restores_admission"]

UNANSWERED = "The engine did not answer the control call in time."

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


def check_stages(stages: Sequence[int] | None, number: int) -> None:
    """Raise ``VLLMValidationError`` if one of the stages that a request names is none of the server's ``number``."""
    if stages is not None and not all(0 <= stage < number for stage in stages):
        message = f"Each of stages must be a stage number of this server: at least 0 and less than {number}."
        raise upstream.VLLMValidationError(message, parameter="stages")


class _Admitting(Protocol):
    """What of ``AsyncOmni`` decides whether a new request waits."""

    _paused: bool
    _hold_admission_until_resume: bool
    _sleeping_tags: Collection[str]
    _pause_cond: Any


_Engine = TypeVar("_Engine", bound=_Admitting)


def restores_admission(
    method: Callable[Concatenate[_Engine, _P], Awaitable[_T]],
) -> Callable[Concatenate[_Engine, _P], Awaitable[_T]]:
    """A method of ``AsyncOmni`` that stops admitting requests: if it fails, or nothing sleeps, they are as before.

    Otherwise every later request would wait for a wake-up that nobody knows to be needed.
    """

    @functools.wraps(method)
    async def restoring(engine: _Engine, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        before = engine._paused, engine._hold_admission_until_resume
        asleep = False
        try:
            result = await method(engine, *args, **kwargs)
            asleep = bool(engine._sleeping_tags)
        finally:
            if not asleep:
                async with engine._pause_cond:
                    engine._paused, engine._hold_admission_until_resume = before
                    engine._pause_cond.notify_all()
        return result

    return restoring
