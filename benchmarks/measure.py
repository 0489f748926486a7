# SPDX-License-Identifier: Apache-2.0
"""Interleaved repetitions and their medians, so that a machine that is busy is busy for both sides."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

REPETITIONS = 21
MIN_SECONDS = 0.004
"""Of CPU time for one repetition, in as many calls as that takes."""


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table: ``value`` against ``goal``, which is an upper bound; without a goal it is information."""

    subject: str
    what: str
    value: float
    unit: str
    goal: float | None = None

    @property
    def verdict(self) -> str:
        """``met``, ``missed`` or nothing."""
        return "" if self.goal is None else "met" if self.value <= self.goal else "missed"


def medians(functions: Mapping[str, Callable[[], object]], repetitions: int = REPETITIONS) -> dict[str, float]:
    """Name → median CPU time of one call, in µs; the functions take turns."""
    calls = {name: _calls(function) for name, function in functions.items()}
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repetitions):
        for name, function in functions.items():
            times[name].append(_time(function, calls[name]))
    return {name: statistics.median(found) * 1e6 for name, found in times.items()}


def exponent(times: Mapping[int, float]) -> float:
    """By which power of the size the time grows, by least squares: with 1, twice the size takes twice the time."""
    logarithms = [[math.log(value) for value in values] for values in (times.keys(), times.values())]
    return statistics.linear_regression(*logarithms).slope


def _time(function: Callable[[], object], calls: int) -> float:
    """Seconds of CPU time of one call."""
    start = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - start) / calls


def _calls(function: Callable[[], object]) -> int:
    function()
    return max(1, round(MIN_SECONDS / max(_time(function, 3), 1e-7)))
