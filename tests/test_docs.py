# SPDX-License-Identifier: Apache-2.0
"""The documents say what the code does."""

from pathlib import Path

import pytest

from vllm_omni_errors import explain
from vllm_omni_errors.catalogue import CATALOGUE, Row
from vllm_omni_errors.probe.catalogue import page

CONTRACT = (Path(__file__).parent.parent / "docs" / "contract.md").read_text()


def documented(row: Row) -> str:
    own_status = "its own, else " if row.status_attribute else ""
    error_type = "the HTTP phrase" if row.error_type is None else f"`{row.error_type}`"
    cells = (
        f"`{row.exception}`",
        row.category,
        f"{own_status}{row.status}",
        f"its own, else {error_type}" if row.own_type else error_type,
        "its own" if row.parameter else "–",
        row.text,
        str(row.close_code or "by status"),
    )
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row.exception)
def test_contract_documents_the_row(row: Row) -> None:
    assert documented(row) in CONTRACT.splitlines()


def test_contract_documents_no_row_that_is_not_there() -> None:
    rows = [line for line in CONTRACT.splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(documented(row) for row in CATALOGUE)


def test_the_reference_of_errors_is_that_of_the_catalogue() -> None:
    """`make docs` writes it."""
    assert (Path(__file__).parent.parent / "docs" / "errors.md").read_text() == explain.markdown()


def test_the_list_of_checks_is_that_of_the_probe() -> None:
    """`make docs` writes it."""
    assert (Path(__file__).parent.parent / "docs" / "checks.md").read_text() == page()
