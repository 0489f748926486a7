# SPDX-License-Identifier: Apache-2.0
"""Phase `finalize` is refused while a ledger that it relies on leaves something open, and says what."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from synthetic_tree import ALL, FILES, Enter

from vllm_omni_errors.audit import ledger, seams
from vllm_omni_errors.migrate import complete, migrate, rewrites
from vllm_omni_errors.migrate.source import MigrationError, open_source

Make = Callable[..., Path]

ROUTE = b"""
from fastapi import APIRouter

router = APIRouter()


@router.post("/v1/doors")
async def open_door(size: int):
    raise ValueError(f"no door is {size} wide")
"""
WITH_ROUTE = {**FILES, "vllm_omni/entrypoints/openai/api_server.py": ROUTE}
OPEN_SITE = "vllm-omni-0.30.0: entrypoints/openai/api_server.py:9: open_door: raise of ValueError is not decided"


class Last(Enter):
    """Doors are shut in the end."""

    phase = "finalize"
    function = "leave"
    old = "part"
    new = "close"


@pytest.fixture(autouse=True)
def _all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rewrites, "ALL", (*ALL, Last))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def refused(tree: Path, out: Path, phase: str | None = None) -> MigrationError:
    with pytest.raises(MigrationError) as caught:
        migrate(str(tree), out, phase=phase)
    assert not out.exists()
    return caught.value


def test_a_tree_without_an_open_entry_is_finalized(make_tree: Make, tmp_path: Path) -> None:
    assert migrate(str(make_tree()), tmp_path / "out").phases[-1] == "finalize"


def test_an_open_site_is_named(make_tree: Make, tmp_path: Path) -> None:
    error = refused(make_tree(WITH_ROUTE), tmp_path / "out")
    assert error.reason.startswith("1 entry of the ledgers is open, and phase finalize needs them decided: ")
    assert OPEN_SITE in error.reason
    assert error.next_step.endswith("or give --phase transports.")


def test_earlier_phases_do_not_need_it_and_the_last_still_knows(make_tree: Make, tmp_path: Path) -> None:
    once = migrate(str(make_tree(WITH_ROUTE)), tmp_path / "once", phase="transports")
    assert "finalize" not in once.phases
    assert OPEN_SITE in refused(once.out, tmp_path / "twice").reason


def test_a_tree_that_was_not_held_against_the_ledgers_is_refused(make_tree: Make, tmp_path: Path) -> None:
    once = migrate(str(make_tree()), tmp_path / "once", phase="transports")
    manifest = once.out / "vllm_omni/_errors_migration.json"
    manifest.write_text(manifest.read_text().replace('"undecided"', '"earlier"'))
    assert "was not held against the ledgers" in refused(once.out, tmp_path / "twice").reason


def test_an_open_seam_is_named(make_tree: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reviewed = seams.require_reviewed("0.30.0")
    row = next(row for row in reviewed.rows if row.call == "fetch_image")
    opened = replace(
        reviewed, rows=tuple(replace(each, by=("open",)) if each is row else each for each in reviewed.rows)
    )
    monkeypatch.setattr(seams, "require_reviewed", lambda version: opened)
    reason = refused(make_tree(), tmp_path / "out").reason
    assert f"upstream-0.30.0: {row.path}: {row.function}: fetch_image" in reason


def test_a_decision_that_expired_is_named(make_tree: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = make_tree(WITH_ROUTE)
    with open_source(str(tree)) as source:
        assert len(complete.open_entries(source)) == 1
    load = ledger.load

    def with_expired(place: Path) -> ledger.Ledger:
        loaded = load(place)
        rule = ledger.Rule(
            name="doors", paths=("entrypoints/openai/api_server.py",), functions=("open_door",), exceptions=("*",),
            kinds=("raise",), reach=("yes",), decision="internal", reason="why", reviewed=date(2026, 1, 1), sites=1,
            expires=date(2026, 1, 2),
        )  # fmt: skip
        return replace(loaded, rules=(rule,))

    monkeypatch.setattr(ledger, "load", with_expired)
    assert "The rule doors was for the time until 2026-01-02" in refused(tree, tmp_path / "out").reason


def test_a_vllm_whose_seams_were_not_reviewed_is_refused(
    make_tree: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(complete, "VLLM", "0.31.0")
    assert "calls into vLLM 0.31.0 were not reviewed" in refused(make_tree(), tmp_path / "out").reason


def test_the_ledgers_of_this_project_leave_nothing_open() -> None:
    """That they are complete for the whole of 0.30.0 is a test on the rig."""
    assert [row for row in seams.require_reviewed(complete.VLLM).rows if row.is_open] == []
