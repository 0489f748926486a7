# SPDX-License-Identifier: Apache-2.0
"""Streamed answers: what fails before the first byte is an ordinary HTTP error (contract, section 5)."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Generic, TypeVar

from vllm_omni_errors import convert
from vllm_omni_errors.exceptions import OmniServerError

from .request import handled

NOTHING = "The model produced no output."

_T = TypeVar("_T")


async def started(stream: AsyncGenerator[_T, None]) -> "Started[_T]":
    """The same stream, after its first item that is not empty is there; it can be iterated once, and closed.

    Raises:
        OmniServerError: it ended without one.
        Exception: what the stream raised before it. The stream is closed then.

    """
    try:
        async for item in stream:
            if item:
                return Started(item, stream)
        raise OmniServerError(NOTHING)
    except BaseException:
        await stream.aclose()
        raise


class Started(AsyncIterator[_T], Generic[_T]):
    """A stream whose first item was awaited.

    What it raises later is logged with the request's id, and travels on: the server breaks the connection off, so that
    no client takes what it has for the whole.
    """

    def __init__(self, first: _T, rest: AsyncGenerator[_T, None]) -> None:
        self._first: _T | None = first
        self._rest = rest

    async def __anext__(self) -> _T:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            return await anext(self._rest)
        except (StopAsyncIteration, *convert.PASSED_THROUGH):
            raise
        except Exception as exc:
            handled(exc)
            raise

    async def aclose(self) -> None:
        """Close the stream, also if nothing was read of it."""
        await self._rest.aclose()
