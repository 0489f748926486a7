# SPDX-License-Identifier: Apache-2.0
"""For stage processes and what stands between them: normalize once, keep to a deadline, relay untouched.

``guard`` and ``deadline`` are used around a block, with ``with`` or ``async with``, or as decorators of functions,
coroutine functions, generators and asynchronous generators.
"""

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing, closing
from types import TracebackType
from typing import Any, Self, TypeVar

from . import convert, tracing, upstream, wire
from .details import OmniErrorDetails
from .exceptions import OmniStageTimeoutError

__all__ = ["deadline", "guard", "normalize", "relay"]

logger = logging.getLogger("vllm_omni_errors")
upstream.share_logging(logger)  # a stage process has no `install` that would do it

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Kind = type[BaseException] | None
_END = object()


def normalize(exc: BaseException, *, request_id: str | None = None, stage_id: int | None = None) -> OmniErrorDetails:
    """The record of an exception. Its private part goes to this process's log, unless the exception carries a record
    already: then that was done where it happened (contract, section 3).

    A client's error is one INFO line; of a server's error the log has class, text and traceback.

    Raises:
        BaseException: ``exc`` itself, if it is cancellation or another of ``convert.PASSED_THROUGH``.

    """
    details = convert.to_details(exc, request_id=request_id, stage_id=stage_id)
    tracing.mark_span(details)
    if convert.attribute(exc, "details", OmniErrorDetails) is None:
        about = (details.request_id, details.stage_id, type(exc).__name__)
        if details.category == "client":
            logger.info("request %r, stage %s: %s: %s", *about, details.message)
        else:
            logger.error("request %r, stage %s: %s", *about, exc_info=(type(exc), exc, exc.__traceback__))
    return details


def relay(carrier: object, *, request_id: str | None = None, stage_id: int | None = None) -> OmniErrorDetails | None:
    """The record that a message, an output or a record is or carries, as it came; None if it reports no error.

    ``request_id`` and ``stage_id`` are used where the record does not know them.
    """
    details = wire.read(carrier)
    return None if details is None else details.completed(request_id=request_id, stage_id=stage_id)


class guard:  # noqa: N801 - reads as a verb, like contextlib's
    """Turns whatever leaves a block into a record, once, and logs it (:func:`normalize`).

    With ``report``, which puts the record on the wire, the exception goes no further: the block just ends, and a
    decorated function returns None. Without it the exception goes on as the one of :func:`convert.to_exception`, which
    carries the record and has the original as its cause. What carries its record already is not normalized, logged or
    replaced again. Cancellation passes unchanged. A guard has no state: it may be shared and nested.

    Args:
        report: called with the record; may return an awaitable where the guard is used in asynchronous code.
        request_id: the request's id, if neither the exception nor its record knows it.
        stage_id: the stage, likewise.

    """

    def __init__(
        self,
        report: Callable[[OmniErrorDetails], object] | None = None,
        *,
        request_id: str | None = None,
        stage_id: int | None = None,
    ) -> None:
        self._report = report
        self._request_id = request_id
        self._stage_id = stage_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: _Kind, exc: BaseException | None, traceback: TracebackType | None) -> bool:
        if exc is None:
            return False
        reported = self._handle(exc)
        if inspect.iscoroutine(reported):
            reported.close()
            raise TypeError("the report of this guard is asynchronous: use `async with`")
        return self._report is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: _Kind, exc: BaseException | None, traceback: TracebackType | None) -> bool:
        if exc is None:
            return False
        reported = self._handle(exc)
        if inspect.isawaitable(reported):
            await reported
        return self._report is not None

    def _handle(self, exc: BaseException) -> object:
        """What ``report`` returns."""
        details = normalize(exc, request_id=self._request_id, stage_id=self._stage_id)
        if self._report is not None:
            return self._report(details)
        if convert.attribute(exc, "details", OmniErrorDetails) is not details:
            raise convert.to_exception(details) from exc
        return None

    def __call__(self, function: _Function) -> _Function:
        async def async_generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async with self, aclosing(function(*args, **kwargs)) as items:
                async for item in items:
                    yield item

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            async with self:
                return await function(*args, **kwargs)

        def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with self:
                return (yield from function(*args, **kwargs))

        def plain(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return _in_place_of(function, async_generator, coroutine, generator, plain)


class deadline:  # noqa: N801
    """A time that a block must not exceed: ``OmniStageTimeoutError``, 504, with the stage, where it does.

    The clock starts when the deadline is first entered; a decorated function has a new one for each call. A deadline
    is not entered again while it is.

    In asynchronous code what the block waits for is cancelled when the time is over. So is the next item of a decorated
    asynchronous generator; its consumer is not.

    Synchronous code cannot be interrupted. It asks for the :meth:`remaining` time before it waits and calls
    :meth:`check` between steps; a ``TimeoutError`` that leaves the block after the end is the deadline's. A decorated
    generator is checked at each item. A result that is there is never thrown away.

    An engine's own ``TimeoutError`` before the end passes unchanged: it is not this deadline that expired.

    Args:
        seconds: the time, in seconds; None for no limit.
        stage_id: the stage that the error names.

    """

    def __init__(self, seconds: float | None, *, stage_id: int | None = None) -> None:
        self._seconds = seconds
        self._stage_id = stage_id
        self._end: float | None = None

    def remaining(self) -> float | None:
        """Seconds that are left, 0 when the time is over; None if there is no limit."""
        if self._seconds is None:
            return None
        if self._end is None:
            self._end = time.monotonic() + self._seconds
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise OmniStageTimeoutError if the time is over."""
        if self.remaining() == 0:
            raise self.error()

    def __enter__(self) -> Self:
        self.remaining()
        return self

    def __exit__(self, kind: _Kind, exc: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(exc, TimeoutError) and self.remaining() == 0:
            raise self.error() from exc

    async def __aenter__(self) -> Self:
        self._timeout = await asyncio.timeout(self.remaining()).__aenter__()
        return self

    async def __aexit__(self, kind: _Kind, exc: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            await self._timeout.__aexit__(kind, exc, traceback)
        except TimeoutError:  # its own; one that the block raised it leaves to us
            raise self.error() from exc

    def error(self) -> OmniStageTimeoutError:
        """What is raised when the time is over."""
        who = "The stage" if self._stage_id is None else f"Stage {self._stage_id}"
        return OmniStageTimeoutError(f"{who} did not finish within {self._seconds:g} s.", stage_id=self._stage_id)

    def _again(self) -> "deadline":
        return deadline(self._seconds, stage_id=self._stage_id)

    def __call__(self, function: _Function) -> _Function:
        async def async_generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            # Not one timeout around the whole: it would cancel whatever the consumer does between two items.
            limit = self._again()
            async with aclosing(function(*args, **kwargs)) as items:
                while True:
                    async with limit:
                        item = await anext(items, _END)
                    if item is _END:
                        return
                    yield item

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            async with self._again():
                return await function(*args, **kwargs)

        def generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with self._again() as limit, closing(function(*args, **kwargs)) as items:
                for item in items:
                    limit.check()
                    yield item

        def plain(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return _in_place_of(function, async_generator, coroutine, generator, plain)


def _in_place_of(function: _Function, *wrappers: Callable[..., Any]) -> _Function:
    """The wrapper that is of the function's kind, under the function's name."""
    wrapper = next(wrapper for wrapper in wrappers if _kind(wrapper) == _kind(function))
    return functools.wraps(function)(wrapper)  # type: ignore[return-value]


def _kind(function: Callable[..., Any]) -> tuple[bool, ...]:
    kinds = (inspect.isasyncgenfunction, inspect.iscoroutinefunction, inspect.isgeneratorfunction)
    return tuple(is_kind(function) for is_kind in kinds)
