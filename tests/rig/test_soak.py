# SPDX-License-Identifier: Apache-2.0
"""What the soak (soak.py) calls growth, and what it calls a violation; it needs no server."""

import random
from collections.abc import Callable, Sequence

import pytest
import soak
from calls import images
from soak import GROWTH, Ask, Measured, Tally, Trend

ROUNDS = 20
REQUESTS = [400 * number for number in range(1, ROUNDS + 1)]


def rounds(memory: Callable[[int], float]) -> Sequence[dict[str, Measured]]:
    """Of one process, of which only the memory moves."""
    still = dict.fromkeys(GROWTH, 10.0)
    return [{"stage 0": still | {"memory": memory(number)}} for number in range(ROUNDS)]


def of_memory(memory: Callable[[int], float]) -> Trend:
    return next(each for each in soak.trends(rounds(memory), REQUESTS) if each.quantity == "memory")


def test_a_leak_of_ten_kilobytes_a_request_is_growth() -> None:
    assert of_memory(lambda number: 600 + REQUESTS[number] * 10 / 1024).grows


def test_a_leak_is_found_in_noise() -> None:
    chance = random.Random(1)
    assert of_memory(lambda number: 600 + REQUESTS[number] * 20 / 1024 + chance.gauss(0, 10)).grows


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_no_growth(seed: int) -> None:
    chance = random.Random(seed)
    assert not of_memory(lambda _: chance.gauss(600, 10)).grows


def test_what_stays_is_no_growth() -> None:
    assert [each for each in soak.trends(rounds(lambda _: 600.0), REQUESTS) if each.grows] == []


@pytest.mark.parametrize(
    ("status", "text", "violations"),
    [(200, "", 0), (500, "", 1), ("no answer", "", 1), (200, "Traceback (most recent call last)", 1)],
)
def test_an_answer_is_held_against_what_it_must_be(status: int | str, text: str, violations: int) -> None:
    tally = Tally()
    tally.add(Ask("image", images("x"), 200), status, text, 0.1)
    assert len(tally.wrong) == violations
