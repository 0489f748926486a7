# SPDX-License-Identifier: Apache-2.0
"""The deadline of a stage (contract, section 9): requests that a stage of vLLM-Omni's holds for too long."""

import asyncio
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Set
from contextlib import suppress
from typing import Protocol

from .exceptions import OmniStageTimeoutError
from .stage import deadline

__all__ = ["LIMIT", "exit_unless_limit_is_valid", "late_requests", "limit_s"]

LIMIT = "VLLM_OMNI_STAGE_TIMEOUT_S"
"""Environment variable: seconds that a stage has for a request; no limit if it is not set."""

LOOKS = 20
"""How often a request is looked at before its time is over."""
SELDOM_S = 1.0
"""But so often at least."""


class _Streaming(Protocol):
    @property
    def enabled(self) -> bool: ...


class RequestState(Protocol):
    """What an orchestrator knows of a request (``engine/orchestrator.py:197``); times are used as marks only."""

    @property
    def stage_submit_ts(self) -> Mapping[int, float]: ...
    @property
    def finished_stage_ids(self) -> Set[int]: ...
    @property
    def streaming(self) -> _Streaming: ...
    @property
    def session_owned(self) -> bool: ...


def limit_s() -> float | None:
    """The time that is set, in seconds; None for no limit. Raises ValueError if it is not a positive number."""
    written = os.environ.get(LIMIT, "").strip()
    if not written:
        return None
    with suppress(ValueError):
        if 0 < (seconds := float(written)) < math.inf:
            return seconds
    raise ValueError(f"{LIMIT} is {written!r}; set it to a positive number of seconds, or not at all.")


def exit_unless_limit_is_valid() -> None:
    """For a program that reads its arguments: end it with one sentence, exit code 1, where :func:`limit_s` raises."""
    try:
        limit_s()
    except ValueError as exc:
        sys.exit(f"vllm-omni: {exc}")


async def late_requests(
    states: Mapping[str, RequestState], stop: asyncio.Event
) -> AsyncIterator[tuple[str, int, OmniStageTimeoutError]]:
    """Requests that a stage has held for longer than the limit, each with the stage and its error, until ``stop`` is
    set; none at all without a limit.

    ``states`` are the requests that run; whoever gets one here must end it. The first stage that is late is the one
    that is named: those after it wait for it. The time of a stage begins when the request is given to it. Requests
    that live as long as a session, or whose input is still coming, have no end to wait for, and are left alone.
    """
    limit = limit_s()
    since: dict[tuple[str, int, float], float] = {}
    while limit is not None and not stop.is_set():
        now = time.monotonic()
        working = [
            (request_id, stage_id, given)
            for request_id, state in states.items()
            if not (state.session_owned or state.streaming.enabled)
            for stage_id, given in sorted(state.stage_submit_ts.items())
            if stage_id not in state.finished_stage_ids
        ]
        since = {each: since.get(each, now) for each in working}
        late: dict[str, int] = {}
        for each in working:
            if now - since[each] >= limit:
                late.setdefault(each[0], each[1])
        for request_id, stage_id in late.items():
            yield request_id, stage_id, deadline(limit, stage_id=stage_id).error()
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(limit / LOOKS, SELDOM_S))
