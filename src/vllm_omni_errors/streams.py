# SPDX-License-Identifier: Apache-2.0
"""Streams of chat, completions, responses and image edits: started late, ended by one error event (contract, 5)."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from . import convert, metrics, tracing, upstream
from .details import OmniErrorDetails
from .exceptions import OmniServerError
from .transports import sse
from .transports.request import handled
from .transports.stream import NOTHING, Started, started

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Serving = TypeVar("_Serving")

_ERROR = 'data: {"error"'
"""How vLLM begins an event that is an error."""

Last = Callable[[OmniErrorDetails], _T]
"""The last item of a stream that failed."""


async def started_chat(stream: AsyncGenerator[str, None]) -> Started[str]:
    """A chat stream after its first event is there; an error later is `{"error": {…}}` and the end mark.

    Raises:
        Exception: what failed before the first event.

    """
    return await started(_told(stream, lambda details: sse.nested_error(details) + sse.DONE))


async def started_edit(stream: AsyncGenerator[str, None]) -> Started[str]:
    """A stream of an image edit, likewise; its events carry a type and have no name."""
    return await started(_told(stream, lambda details: sse.typed_error(details) + sse.DONE))


async def _told(stream: AsyncGenerator[_T, None], last: Last[_T]) -> AsyncGenerator[_T, None]:
    """A stream that ends in an item about what it raises, unless it has given nothing yet."""
    begun = False
    try:
        async for item in stream:
            yield item
            begun = True
    except Exception as exc:
        if not begun:
            raise
        yield last(_handled(exc))
    finally:
        await stream.aclose()


def _handled(exc: Exception) -> OmniErrorDetails:
    details = handled(exc)
    metrics.count_error(details, "sse")
    return details


# ---- vLLM's own serving classes -------------------------------------------------------------------------------------


def started_completions(serving: Callable[_P, _Serving]) -> Callable[_P, _Serving]:
    """vLLM's serving class of completions, whose streams told an error, or nothing at all, with HTTP 200."""
    return _with_streams(serving, "create_completion", lambda stream: started(_checked(stream)))


def started_responses(serving: Callable[_P, _Serving]) -> Callable[_P, _Serving]:
    """vLLM's serving class of responses, whose streams broke off: they end in `response.failed`."""
    return _with_streams(serving, "create_responses", lambda stream: started(_failing(stream)))


def _with_streams(
    serving: Callable[_P, _Serving], method: str, start: Callable[[Any], Awaitable[Any]]
) -> Callable[_P, _Serving]:
    """The class, with a method of its instances that starts what it streams; other results stay."""

    def make(*args: _P.args, **kwargs: _P.kwargs) -> _Serving:
        instance = serving(*args, **kwargs)
        create = getattr(instance, method)

        async def create_started(*arguments: Any, **options: Any) -> Any:
            result = await create(*arguments, **options)
            return await start(result) if isinstance(result, AsyncGenerator) else result

        setattr(instance, method, create_started)
        return instance

    return make


async def _checked(stream: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """A stream of events, whose first must be a result: what it tells as an error, or ends without, is raised.

    An error that it tells later is its last event, in vLLM's words, which the boundary renders.
    """
    begun = False
    try:
        async for event in stream:
            if not begun and event == sse.DONE:
                raise OmniServerError(NOTHING)
            details = _told_error(event)
            if details is not None and not begun:
                raise convert.to_exception(details)
            if details is not None:
                metrics.count_error(details, "sse")
                tracing.mark_span(details)
            yield event
            begun = True
    finally:
        await stream.aclose()


def _told_error(event: str) -> OmniErrorDetails | None:
    """The record of an event that is an error."""
    if not event.startswith(_ERROR):
        return None
    error = json.loads(event.removeprefix("data: "))["error"]
    return convert.worded(*(error.get(key) for key in ("message", "type", "code", "param")))


class Failed:
    """`response.failed`, as vLLM's route writes events."""

    type = "response.failed"

    def __init__(self, event: dict[str, Any]) -> None:
        self.event = event

    def model_dump_json(self, **options: object) -> str:
        return json.dumps(self.event, separators=(",", ":"))


async def _failing(stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """A stream of response events that ends in `response.failed`, with the response as it was last seen."""
    response: dict[str, Any] = {}
    number = -1
    try:
        async for event in stream:
            response = _response_of(event) or response
            number = getattr(event, "sequence_number", None) or number + 1
            yield event
    except Exception as exc:
        if number < 0:
            raise
        yield Failed(sse.failed_response(_handled(_original(exc)), response, number + 1))
    finally:
        await stream.aclose()


def _original(exc: Exception) -> Exception:
    """vLLM fails to turn a failure of the engine into an event of this API, and only the failure is worth telling."""
    failure = exc.__context__
    return failure if isinstance(failure, upstream.VLLMServerError) else exc


def _response_of(event: Any) -> dict[str, Any] | None:
    response = getattr(event, "response", None)
    return None if response is None else response.model_dump(mode="json", by_alias=True)
