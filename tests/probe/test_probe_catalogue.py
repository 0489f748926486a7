# SPDX-License-Identifier: Apache-2.0
"""The table of checks: well formed, and in an order in which nothing harmless comes after what may kill."""

import re

import pytest

from vllm_omni_errors.probe import CHECKS, Check
from vllm_omni_errors.probe.check import Danger


def test_ids_are_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def test_what_may_stall_or_kill_comes_last() -> None:
    dangers = [check.danger for check in CHECKS]
    assert dangers == sorted(dangers)
    assert dangers[0] is Danger.HARMLESS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_check_says_what_it_proves_and_where_that_stands(check: Check) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z0-9-]+", check.id)
    assert check.rule.endswith(".")
    assert re.search(r"RFC|contract, section", check.source)
    assert check.name == check.name.strip()
    assert len(check.name) <= 45
