# SPDX-License-Identifier: Apache-2.0
"""What the soak (soak.py) calls growth, and what it calls a violation; it needs no server."""

import random
from collections.abc import Callable, Sequence

import pytest
import soak
from calls import images
from soak import GROWTH, Ask, Measured, Tally, Trend

from vllm_omni_rig.census import BLOCKS, EXCEPTIONS

ROUNDS = 20
REQUESTS = [400 * number for number in range(1, ROUNDS + 1)]


def rounds(quantity: str, moving: Callable[[int], float]) -> Sequence[dict[str, Measured]]:
    """Of one process, of which only one quantity moves."""
    still = dict.fromkeys(GROWTH, 10.0)
    return [{"stage 0": still | {quantity: moving(number)}} for number in range(ROUNDS)]


def trend(quantity: str, moving: Callable[[int], float]) -> Trend:
    return next(each for each in soak.trends(rounds(quantity, moving), REQUESTS) if each.quantity == quantity)


def of_memory(memory: Callable[[int], float]) -> Trend:
    return trend("memory", memory)


def test_an_exception_that_is_kept_now_and_then_is_growth() -> None:
    assert trend(EXCEPTIONS, lambda number: 20.0 + number // 2).grows


def test_ten_blocks_of_each_request_are_growth() -> None:
    assert trend(BLOCKS, lambda number: 3e6 + 10 * REQUESTS[number]).grows


def test_a_cache_that_fills_once_is_no_growth() -> None:
    assert not trend(BLOCKS, lambda number: 3e6 + 5_000 * (number > ROUNDS / 3)).grows


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
    assert [each for each in soak.trends(rounds("memory", lambda _: 600.0), REQUESTS) if each.grows] == []


def test_every_prompt_is_as_long_for_the_ar_stage() -> None:
    """Its native kernels are compiled, and kept, for each number of tokens in a step."""
    asked = [*soak.neighbours(), *(soak.failures(random.Random(seed)) for seed in range(500))]
    sent = {each.title: each.call.json for each in asked if each.expected != 400}
    prompts = {title: body.get("prompt") or body["messages"][0]["content"] for title, body in sent.items()}
    lengths = {len(prompt) + ("prompt" not in sent[title]) * soak.TEMPLATE_TOKENS for title, prompt in prompts.items()}
    assert lengths == {soak.WIDTH + soak.TEMPLATE_TOKENS}


@pytest.mark.parametrize(
    ("status", "text", "violations"),
    [(200, "", 0), (500, "", 1), ("no answer", "", 1), (200, "Traceback (most recent call last)", 1)],
)
def test_an_answer_is_held_against_what_it_must_be(status: int | str, text: str, violations: int) -> None:
    tally = Tally()
    tally.add(Ask("image", images("x"), 200), status, text, 0.1)
    assert len(tally.wrong) == violations
