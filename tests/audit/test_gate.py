# SPDX-License-Identifier: Apache-2.0
"""The gate passes a tree that was reviewed, and fails on anything that nobody looked at."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from small_tree import HELPERS, KERNEL, TODAY

from vllm_omni_errors.audit import Audit, review
from vllm_omni_errors.audit import ledger as ledgers

Make = Callable[..., Path]
Run = Callable[..., Audit]

DECISION = {"raise": "internal", "except": "keep", "response": "unavailable"}


@pytest.fixture
def reviewed(make_tree: Make, make_ledger: Make, run: Run) -> tuple[Path, Path]:
    """A tree, and a ledger in which each of its sites is decided."""
    tree, folder = make_tree(), make_ledger()
    inventory = run(tree).inventory
    decisions = [
        {"fingerprint": site.fingerprint, "decision": DECISION[site.kind], "reason": "It was read."}
        for site in inventory.sites
        if site.asked
    ]
    review.decide(folder, inventory, decisions, date(2026, 1, 1))
    return tree, folder


def codes(audit: Audit) -> list[str]:
    return [finding.code for finding in audit.failures]


def change(folder: Path, function: str, **values: Any) -> None:
    ledger = ledgers.load(folder)
    for path, rows in ledger.files().items():
        changed = [
            ledgers.row_of("test", path, json.loads(row.to_line()) | (values if row.function == function else {}))
            for row in rows
        ]
        ledgers.write(folder, {path: changed})


def test_a_reviewed_tree_passes(reviewed: tuple[Path, Path], run: Run) -> None:
    assert run(*reviewed).findings == []


def test_it_fails_when_any_one_row_is_removed(reviewed: tuple[Path, Path], run: Run) -> None:
    tree, folder = reviewed
    rows = ledgers.load(folder).rows
    assert len(rows) == 9
    for gone in rows.values():
        kept = [row for row in ledgers.load(folder).files()[gone.path] if row.fingerprint != gone.fingerprint]
        ledgers.write(folder, {gone.path: kept})
        assert codes(run(tree, folder)) == ["open"], gone
        ledgers.write(folder, {gone.path: [*kept, gone]})


def test_it_fails_when_a_rule_is_removed_that_covers_a_request_path(reviewed: tuple[Path, Path], run: Run) -> None:
    tree, folder = reviewed
    ledgers.write(folder, {"engine/orchestrator.py": []})
    manifest = folder / "ledger.toml"
    rule = (
        '\n[[rule]]\nname = "engine"\npaths = ["engine/*"]\nreach = ["yes"]\ndecision = "internal"\n'
        'reason = "It was read."\nreviewed = 2026-01-01\nsites = 1\n'
    )
    before = manifest.read_text()
    manifest.write_text(before + rule)
    assert codes(run(tree, folder)) == []
    manifest.write_text(before)
    assert codes(run(tree, folder)) == ["open"]


def test_it_fails_when_a_raise_is_added_to_a_route(reviewed: tuple[Path, Path], make_tree: Make, run: Run) -> None:
    _, folder = reviewed
    changed = HELPERS.replace("return text", 'raise ValueError("something new")')
    assert codes(run(make_tree({"entrypoints/helpers.py": changed}), folder)) == ["open"]


def test_a_second_raise_with_the_same_message_is_open(reviewed: tuple[Path, Path], make_tree: Make, run: Run) -> None:
    _, folder = reviewed
    changed = HELPERS.replace("return image", 'raise RuntimeError("there is no image to convert")')
    assert codes(run(make_tree({"entrypoints/helpers.py": changed}), folder)) == ["open"]


def test_code_that_a_request_reaches_now_is_open(reviewed: tuple[Path, Path], make_tree: Make, run: Run) -> None:
    _, folder = reviewed
    changed = HELPERS.replace("return image", "fuse(image)").replace(
        "def parse_size", "from vllm_omni.quantization.kernel import fuse\n\n\n    def parse_size"
    )
    audit = run(make_tree({"entrypoints/helpers.py": changed}), folder)
    assert sorted(codes(audit)) == ["open", "rule-count"]


def test_a_row_whose_site_is_gone_is_stale(reviewed: tuple[Path, Path], make_tree: Make, run: Run) -> None:
    _, folder = reviewed
    changed = HELPERS.replace('raise RuntimeError("there is no image to convert")', "return None")
    audit = run(make_tree({"entrypoints/helpers.py": changed}), folder)
    assert [(finding.code, finding.path) for finding in audit.failures] == [("stale", "entrypoints/helpers.py")]


@pytest.mark.parametrize(
    ("expires", "found"), [("2026-02-28", ["expired"]), ("2026-03-01", ["expired"]), ("2026-03-02", [])]
)
def test_a_decision_holds_until_it_expires(
    reviewed: tuple[Path, Path], run: Run, expires: str, found: list[str]
) -> None:
    tree, folder = reviewed
    assert date(2026, 3, 1) == TODAY
    change(folder, "convert", expires=expires)
    assert codes(run(tree, folder)) == found


def test_a_rule_expires_too(reviewed: tuple[Path, Path], run: Run) -> None:
    tree, folder = reviewed
    manifest = folder / "ledger.toml"
    manifest.write_text(manifest.read_text() + "expires = 2026-02-01\n")
    assert codes(run(tree, folder)) == ["expired"]


@pytest.mark.parametrize(
    "text", [KERNEL.replace("width % 8", "width % 9") + "\n    raise ValueError('one more')\n", "x = 1\n"]
)
def test_a_rule_covers_as_many_sites_as_were_reviewed(
    reviewed: tuple[Path, Path], make_tree: Make, run: Run, text: str
) -> None:
    _, folder = reviewed
    assert codes(run(make_tree({"quantization/kernel.py": text}), folder)) == ["rule-count"]


def test_a_raise_that_the_audit_takes_for_unreachable_may_have_a_row(
    reviewed: tuple[Path, Path], make_tree: Make, run: Run
) -> None:
    """The reach is a static answer; whoever read the code may know better."""
    tree, folder = reviewed
    make_tree({"metrics.py": "def f():\n    raise ValueError('nobody calls this function')\n"})
    inventory = run(tree).inventory
    site = next(site for site in inventory.sites if site.path == "metrics.py")
    review.decide(folder, inventory, [{"fingerprint": site.fingerprint, "decision": "internal", "reason": "x"}], TODAY)
    assert codes(run(tree, folder)) == []


def test_a_row_for_a_typed_raise_is_needless(reviewed: tuple[Path, Path], make_tree: Make, run: Run) -> None:
    tree, folder = reviewed
    make_tree({"metrics.py": "def f():\n    raise VLLMNotFoundError('no such model')\n"})
    inventory = run(tree).inventory
    site = next(site for site in inventory.sites if site.path == "metrics.py")
    review.decide(folder, inventory, [{"fingerprint": site.fingerprint, "decision": "internal", "reason": "x"}], TODAY)
    assert codes(run(tree, folder)) == ["needless"]


def test_a_row_that_nothing_asks_for_is_counted(reviewed: tuple[Path, Path], make_tree: Make, run: Run) -> None:
    _, folder = reviewed
    tree = make_tree({"metrics.py": "def f():\n    raise ValueError('no such number at all')\n"})
    inventory = run(tree).inventory
    site = next(site for site in inventory.sites if site.path == "metrics.py")
    assert not site.asked
    review.decide(folder, inventory, [{"fingerprint": site.fingerprint, "decision": "internal", "reason": "x"}], TODAY)
    manifest = folder / "ledger.toml"
    manifest.write_text("beyond = 1\n" + manifest.read_text())
    assert codes(run(tree, folder)) == []
    ledgers.write(folder, {"metrics.py": []})
    assert codes(run(tree, folder)) == ["row-count"]


def test_twins_are_decided_alike_or_apart(reviewed: tuple[Path, Path], make_tree: Make, run: Run) -> None:
    _, folder = reviewed
    twin = "def offline(image):\n    raise RuntimeError('there is no image to convert')\n"
    tree = make_tree({"entrypoints/twin.py": twin})
    inventory = run(tree).inventory
    site = next(site for site in inventory.sites if site.path == "entrypoints/twin.py")
    review.decide(folder, inventory, [{"fingerprint": site.fingerprint, "decision": "not-found", "reason": "x"}], TODAY)
    assert codes(run(tree, folder)) == ["twins"]
    for function in ("offline", "convert"):
        change(folder, function, apart=True)
    assert codes(run(tree, folder)) == []


def test_another_version_is_a_note(reviewed: tuple[Path, Path], run: Run) -> None:
    tree, folder = reviewed
    manifest = folder / "ledger.toml"
    manifest.write_text(manifest.read_text().replace('version = "unknown"', 'version = "0.30.0"'))
    (tree / "vllm_omni" / "_version.py").write_text('__version__ = version = "0.31.0"\n')
    audit = run(tree, folder)
    assert ([finding.code for finding in audit.findings], audit.failures) == (["other-version"], [])


def test_every_finding_says_what_to_do(reviewed: tuple[Path, Path], make_tree: Make, run: Run) -> None:
    _, folder = reviewed
    audit = run(make_tree({"entrypoints/helpers.py": "def f(:\n", "quantization/kernel.py": ""}), folder)
    assert audit.findings
    assert all(finding.next_step for finding in audit.findings)
