# SPDX-License-Identifier: Apache-2.0
"""What fuzzing once found stays found: the corpus of each target keeps its promises. `make fuzz` searches on."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORPUS = sorted((ROOT / "fuzzing" / "corpus").glob("*/*"))
MOST_BYTES = 64 * 1024


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_a_target_keeps_its_promises(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from fuzzing.targets import TARGETS

    TARGETS[file.parent.name](file.read_bytes())


def test_every_target_has_a_corpus_and_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from fuzzing.targets import TARGETS

    assert {file.parent.name for file in CORPUS} == set(TARGETS)
    assert sum(file.stat().st_size for file in CORPUS) < MOST_BYTES
