# SPDX-License-Identifier: Apache-2.0
"""The documents say what the code does."""

import re
import shlex
from pathlib import Path

import click
import pytest
from script_module import load

from vllm_omni_errors import cli
from vllm_omni_errors.catalogue import CATALOGUE, Row

ROOT = Path(__file__).parent.parent
CONTRACT = (ROOT / "docs" / "contract.md").read_text()
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "examples/**/*.md", "ledgers/*.md", "ops/*.md", "rig/*.md")
    for path in ROOT.glob(pattern)
)
BLOCK = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
NAMED_TEST = re.compile(r"`(test_\w+)`")
DOCUMENTS = load("documents").DOCUMENTS


def commands(program: str) -> list[tuple[str, list[str]]]:
    """Page and words of each command in the pages' blocks that calls a program, at the end of a pipe too."""
    call = re.compile(rf"^(?:.*\|\s*|\s*){program} (.+?)(?:  #.*)?$", re.MULTILINE)
    blocks = [(page.name, block) for page in PAGES for block in BLOCK.findall(page.read_text())]
    return [(page, shlex.split(words)) for page, block in blocks for words in call.findall(block)]


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


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_made_is_current(name: str) -> None:
    """`make docs` writes it."""
    assert (ROOT / name).read_text() == DOCUMENTS[name]()


@pytest.mark.parametrize(("page", "words"), commands("omni-errors"), ids=str)
def test_a_command_of_a_page_can_be_called_so(
    page: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its options exist and have values of their kind; it is not run."""
    monkeypatch.chdir(tmp_path)
    for report in (word for word in words if word.endswith(".json") and "/" not in word):
        Path(report).touch()
    command = cli.group.get_command(click.Context(cli.group), words[0])
    assert command is not None
    command.make_context(words[0], words[1:])


def test_a_target_of_a_page_is_one_of_the_makefile() -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text()))
    named = {word for _, words in commands("make") for word in words if "=" not in word}
    assert named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_to_a_file(page: Path) -> None:
    """Of the checkout. `make lint` checks the site's."""
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_a_test_that_a_page_names_is_there() -> None:
    there = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = {name for page in PAGES for name in NAMED_TEST.findall(page.read_text())}
    assert named
    assert [name for name in named if f"def {name}(" not in there] == []
