# SPDX-License-Identifier: Apache-2.0
"""The table of the real series holds together with the real rewrites, fragments and tests."""

from collections import Counter
from pathlib import Path

import pytest

from vllm_omni_errors.migrate.patches import PATCHES, Patch
from vllm_omni_errors.migrate.rewrite import PHASES
from vllm_omni_errors.migrate.rewrites import ALL, AREAS
from vllm_omni_errors.migrate.series import COLUMNS, message, rewrites_of, vendor_message

ROOT = Path(__file__).parents[2]


def test_every_rewrite_is_in_one_patch_and_in_the_order_of_the_phases():
    assert Counter(rewrite for patch in PATCHES for rewrite in rewrites_of(patch)) == Counter(ALL)
    areas = {area.name: PHASES.index(area.phase) for area in AREAS}
    assert [areas[patch.area] for patch in PATCHES] == sorted(areas[patch.area] for patch in PATCHES)


def test_no_patch_is_empty():
    assert [patch.subject for patch in PATCHES if not rewrites_of(patch)] == []


def test_every_changed_status_is_in_one_patch():
    fragments = [path.name for path in (ROOT / "newsfragments").glob("*.status-change.md")]
    named = [f"+{name}.status-change.md" for patch in PATCHES for name in patch.statuses]
    assert sorted(named) == sorted(fragments)


def test_every_test_that_a_message_names_is_there():
    assert {name for patch in PATCHES for name in patch.tests} <= {path.name for path in (ROOT / "tests/rig").iterdir()}


@pytest.mark.parametrize("patch", [*PATCHES, None], ids=lambda patch: patch.subject if patch else "vendor")
def test_message_is_one_that_git_mail_carries(patch: Patch | None):
    said = message(patch, rewrites_of(patch)) if patch else vendor_message()
    for line in said.splitlines():
        assert len(line) <= COLUMNS or " " not in line.removeprefix("- ").strip(), line
        assert not line.startswith(("---", "diff ", "Index: ", "From ", ">From ")), line
        assert line == line.rstrip()
    assert patch is None or len(patch.subject) <= COLUMNS
