# SPDX-License-Identifier: Apache-2.0
"""The sanitizer against a corpus: what is planted does not survive, and ordinary messages come through."""

from collections import Counter
from collections.abc import Callable

from text_corpus import PLANTS, ordinary, planted

from vllm_omni_errors.public_text import sanitize

PLANTED, ORDINARY = 5_000, 2_000


def survivors(clean: Callable[[str], str], count: int, seed: int = 0) -> Counter[str]:
    """How many sentences of each kind keep a private piece."""
    return Counter(
        kind for kind, text, private in planted(count, seed) if any(piece in clean(text) for piece in private)
    )


def test_there_are_many_kinds_of_what_is_never_public() -> None:
    assert len(PLANTS) >= 25
    assert survivors(str, PLANTED).keys() == PLANTS.keys()


def test_nothing_that_was_planted_survives() -> None:
    assert survivors(sanitize, PLANTED) == {}


def test_ordinary_messages_come_through_unchanged() -> None:
    changed = [(text, sanitize(text)) for text in ordinary(ORDINARY) if sanitize(text) != text]
    assert len(changed) <= 0.02 * ORDINARY, changed[:20]
