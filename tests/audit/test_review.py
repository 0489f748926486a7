# SPDX-License-Identifier: Apache-2.0
"""Decisions go where they belong, all of them or none."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_tree import TODAY

from vllm_omni_errors.audit import Audit, LedgerError, Site, review
from vllm_omni_errors.audit import ledger as ledgers

Make = Callable[..., Path]
Run = Callable[..., Audit]


@pytest.fixture
def small(make_tree: Make, run: Run) -> Audit:
    return run(make_tree())


def named(audit: Audit, function: str) -> Site:
    return next(site for site in audit.inventory.sites if site.function == function)


def test_a_decision_becomes_a_row_of_its_site(small: Audit, make_ledger: Make) -> None:
    folder, site = make_ledger(), named(small, "parse_size")
    given = {"fingerprint": site.fingerprint, "decision": "validation", "parameter": "size", "reason": "The client's."}
    review.decide(folder, small.inventory, [given], TODAY)
    head, line = (folder / "entrypoints/helpers.jsonl").read_text().splitlines()
    assert json.loads(head) == {"format": 1, "module": "entrypoints/helpers.py"}
    assert json.loads(line) == {
        "function": "parse_size",
        "kind": "raise",
        "exception": "ValueError",
        "message": site.message,
        "decision": "validation",
        "parameter": "size",
        "reason": "The client's.",
        "reviewed": "2026-03-01",
    }


def test_a_second_decision_replaces_the_first(small: Audit, make_ledger: Make) -> None:
    folder, site = make_ledger(), named(small, "convert")
    for decision in ("internal", "validation"):
        given = {"fingerprint": site.fingerprint, "decision": decision, "reason": "x"}
        review.decide(folder, small.inventory, [given], TODAY)
    assert [row.decision for row in ledgers.load(folder).rows.values()] == ["validation"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"fingerprint": "000000000000", "decision": "internal", "reason": "x"},
        {"decision": "propagate", "reason": "x"},
        {"decision": "internal"},
        {"decision": "internal", "reason": "x", "parameter": "size"},
    ],
)
def test_one_wrong_decision_writes_none(small: Audit, make_ledger: Make, wrong: dict[str, Any]) -> None:
    folder = make_ledger()
    good = {"fingerprint": named(small, "convert").fingerprint, "decision": "internal", "reason": "x"}
    bad = {"fingerprint": named(small, "parse_size").fingerprint, **wrong}
    with pytest.raises(LedgerError, match="decision 2"):
        review.decide(folder, small.inventory, [good, bad], TODAY)
    assert ledgers.load(folder).rows == {}


@pytest.mark.parametrize("text", ["nothing", "{}", "[]", '{"fingerprint": "a", "desicion": "internal"}'])
def test_lines_that_are_no_decision_are_refused(text: str) -> None:
    with pytest.raises(LedgerError, match="decision 1"):
        review.read(text)


def test_twins_are_decided_together(make_tree: Make, make_ledger: Make, run: Run) -> None:
    text = "def {}():\n    raise RuntimeError('there is no image to convert')\n"
    audit = run(make_tree({"entrypoints/one.py": text.format("f"), "entrypoints/two.py": text.format("g")}))
    folder = make_ledger()
    given = {"fingerprint": named(audit, "f").fingerprint, "decision": "internal", "reason": "x", "twins": True}
    review.decide(folder, audit.inventory, [given], TODAY)
    assert sorted(row.function for row in ledgers.load(folder).rows.values()) == ["convert", "f", "g"]


def test_twins_keep_the_decision_that_they_have(make_tree: Make, make_ledger: Make, run: Run) -> None:
    text = "def {}():\n    raise RuntimeError('there is no image to convert')\n"
    audit = run(make_tree({"entrypoints/one.py": text.format("f")}))
    folder = make_ledger()
    for function, decision in (("convert", "validation"), ("f", "internal")):
        given = {"fingerprint": named(audit, function).fingerprint, "decision": decision, "reason": "x"}
        review.decide(folder, audit.inventory, [{**given, "twins": function == "f"}], TODAY)
    assert {row.function: row.decision for row in ledgers.load(folder).rows.values()} == {
        "convert": "validation",
        "f": "internal",
    }


def test_reviews_at_the_same_time_lose_nothing(small: Audit, make_ledger: Make) -> None:
    folder = make_ledger()
    sites = [site for site in small.inventory.sites if site.asked and site.kind == "raise"]

    def write(site: Site) -> None:
        given = {"fingerprint": site.fingerprint, "decision": "internal", "reason": "x"}
        review.decide(folder, small.inventory, [given], TODAY)

    threads = [threading.Thread(target=write, args=(site,)) for site in sites]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledgers.load(folder).rows) == len(sites)


def test_moved_rows_are_written_to_their_new_place(make_tree: Make, make_ledger: Make, run: Run) -> None:
    text = "def f(x):\n    raise ValueError(f'no {x} is here at all')\n"
    folder = make_ledger()
    before = run(make_tree({"entrypoints/old.py": text}))
    given = {"fingerprint": named(before, "f").fingerprint, "decision": "not-found", "reason": "x"}
    review.decide(folder, before.inventory, [given], TODAY)
    after = run(make_tree({"entrypoints/old.py": None, "entrypoints/new.py": text}), folder)
    assert len(review.reanchor(folder, after.inventory)) == 1
    assert [row.path for row in ledgers.load(folder).rows.values()] == ["entrypoints/new.py"]
    assert not (folder / "entrypoints/old.jsonl").exists()
