# SPDX-License-Identifier: Apache-2.0
"""`omni-errors audit` from outside: its files, its exit codes, and that it says what to do."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from small_tree import HELPERS

from vllm_omni_errors.audit.command import audit

Make = Callable[..., Path]
Command = Callable[..., Result]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    def run(*arguments: object, text: str | None = None) -> Result:
        given = [*map(str, arguments), "--cache", str(tmp_path / "cache.sqlite"), "--today", "2026-03-01"]
        return CliRunner().invoke(audit, given, input=text)

    return run


def listed(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def reviewed(make_tree: Make, make_ledger: Make, command: Command) -> tuple[Path, Path]:
    tree, folder = make_tree(), make_ledger()
    sites = listed(command(tree, "--ledger", folder, "--open", "--json", "-"))["sites"]
    decision = {"raise": "internal", "except": "keep", "response": "unavailable"}
    lines = [
        json.dumps({"fingerprint": s["fingerprint"], "decision": decision[s["kind"]], "reason": "It was read."})
        for s in sites
    ]
    result = command(tree, "--ledger", folder, "--decide", "-", text="\n".join(lines))
    assert (result.exit_code, result.stderr) == (0, "9 rows written.\n")
    return tree, folder


def test_without_a_ledger_it_lists_and_passes(make_tree: Make, command: Command) -> None:
    result = command(make_tree())
    assert result.exit_code == 0
    assert "9 sites on request paths ask for a decision." in result.stdout


def test_json_has_the_shape_of_the_contract(make_tree: Make, command: Command) -> None:
    found = listed(command(make_tree(), "--json", "-"))
    assert found["totals"]["raise"] == {"RuntimeError": 2, "ValueError": 2, "HTTPException": 1, "TypeError": 1}
    assert found["totals"]["except"] == {"Exception": 1, "ValueError": 1}
    assert found["areas"]["entrypoints"]["raise"]["ValueError"] == 1
    assert {"path", "line", "function", "exception", "fingerprint", "decision"} <= set(found["sites"][0])
    assert "A *raise* is one" in found["counting_rule"]


def test_a_reviewer_gets_a_sites_source_and_reach(make_tree: Make, command: Command) -> None:
    found = listed(command(make_tree(), "--only", "entrypoints/helpers.py", "--context", "1", "--json", "-"))
    site = found["sites"][0]
    assert site["function"] == "parse_size"
    assert site["source"][1] == '3:         raise ValueError(f"size must look like WIDTHxHEIGHT, not {text!r}")'
    assert site["reach"][0]["boundary"] == "POST /v1/images"
    assert (site["echo"], site["today"], site["after"]) == (["!r", "f-string"], [400], 500)


def test_an_undecided_raise_is_500_after_and_an_http_exception_what_it_says(make_tree: Make, command: Command) -> None:
    sites = listed(command(make_tree(), "--json", "-"))["sites"]
    after = {site["exception"]: site["after"] for site in sites if site["asked"] and site["kind"] == "raise"}
    assert after == {"ValueError": 500, "RuntimeError": 500, "TypeError": 500, "HTTPException": 400}


def test_only_and_open_limit_the_list_not_the_totals(reviewed: tuple[Path, Path], command: Command) -> None:
    tree, folder = reviewed
    found = listed(command(tree, "--ledger", folder, "--open", "--json", "-"))
    assert (found["sites"], found["totals"]["raise"]["ValueError"]) == ([], 2)


def test_the_gate_passes_what_was_reviewed(reviewed: tuple[Path, Path], command: Command) -> None:
    tree, folder = reviewed
    result = command(tree, "--ledger", folder, "--check")
    assert result.exit_code == 0
    assert "9 by rows, 0 by rules, 0 open" in result.stdout


def test_decided_sites_have_their_status_after(reviewed: tuple[Path, Path], command: Command) -> None:
    tree, folder = reviewed
    found = listed(command(tree, "--ledger", folder, "--json", "-"))
    by_function = {(site["function"], site["kind"]): site for site in found["sites"]}
    site = by_function["create_image", "response"]
    assert (site["decision"], site["decided_by"], site["after"]) == ("unavailable", "row", 503)
    assert by_function["fuse", "raise"]["decided_by"] == "rule kernels"


def test_something_open_is_1_and_says_what_to_do(
    reviewed: tuple[Path, Path], make_tree: Make, command: Command
) -> None:
    _, folder = reviewed
    tree = make_tree({"entrypoints/helpers.py": HELPERS.replace("return text", "raise ValueError('something new')")})
    result = command(tree, "--ledger", folder, "--check")
    assert result.exit_code == 1
    assert "open entrypoints/helpers.py:4" in result.stdout
    assert "--decide" in result.stdout


def test_a_stale_ledger_is_2(reviewed: tuple[Path, Path], make_tree: Make, command: Command) -> None:
    _, folder = reviewed
    result = command(make_tree({"entrypoints/helpers.py": "x = 1\n"}), "--ledger", folder, "--check")
    assert result.exit_code == 2
    assert "stale entrypoints/helpers.py" in result.stdout


def test_an_unreadable_ledger_is_2_even_without_the_gate(reviewed: tuple[Path, Path], command: Command) -> None:
    tree, folder = reviewed
    (folder / "entrypoints/helpers.jsonl").write_text("<<<<<<<\n")
    result = command(tree, "--ledger", folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "helpers.jsonl:1 is not JSON" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--check"], ["--decide", "-"], ["--reanchor"], ["--ledger", "/nowhere"], ["--ledger", "/nowhere", "--check"]],
)
def test_what_cannot_run_is_2(make_tree: Make, command: Command, arguments: list[str]) -> None:
    result = command(make_tree(), *arguments)
    assert result.exit_code == 2
    assert result.stderr


@pytest.mark.parametrize("given", ["missing", "missing/folder", "missing.whl", "other==1.0", ""])
def test_no_tree_is_2(command: Command, tmp_path: Path, given: str) -> None:
    result = command(given)
    assert (result.exit_code, "Give a checkout" in result.stderr) == (2, True)


def test_a_requirement_is_audited_as_its_wheel(
    make_tree: Make, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, info = make_tree(), "vllm_omni-1.2.3.dist-info"
    with zipfile.ZipFile(tmp_path / "vllm_omni-1.2.3-py3-none-any.whl", "w") as wheel:
        for file in sorted(tree.rglob("*.py")):
            wheel.write(file, file.relative_to(tree))
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: vllm-omni\nVersion: 1.2.3\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    found = command("vllm-omni==1.2.3", "--trend", tree, "--html", tmp_path / "audit.html", "--json", "-")
    assert (found.exit_code, listed(found)["sites"]) == (0, listed(command(tree, "--json", "-"))["sites"])
    assert listed(found)["trend"][-1]["version"] == "1.2.3"
    assert list(temporary.iterdir()) == []


def test_a_requirement_that_pip_cannot_download_is_2(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    result = command("vllm-omni==1.2.3")
    assert result.exit_code == 2
    assert "No matching distribution found for vllm-omni==1.2.3" in result.stderr
    assert "Download the wheel yourself" in result.stderr


def test_a_folder_without_vllm_omni_says_what_that_means(make_tree: Make, command: Command, tmp_path: Path) -> None:
    tree = make_tree()
    assert command(tree).stderr == ""
    other = tmp_path / "other"
    (other / "served").mkdir(parents=True)
    for name, path in {"routes.py": "entrypoints/api_server.py", "runner.py": "engine/orchestrator.py"}.items():
        (tree / "vllm_omni" / path).rename(other / "served" / name)
    result = command(other)
    assert (result.exit_code, result.stderr.count("\n")) == (0, 1)
    assert f"{other} holds no vllm_omni package" in result.stderr
    told = command(other, "--json", "-")
    assert told.stderr.startswith(result.stderr)
    assert {kind for site in listed(told)["sites"] for kind in site["boundaries"]} == {"route", "socket"}


def test_a_file_that_cannot_be_written_is_named(make_tree: Make, command: Command) -> None:
    result = command(make_tree(), "--json", "/dev/full")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "omni-errors: /dev/full: cannot write: No space left on device.\n"


def test_a_moved_row_is_shown_and_can_be_written(
    reviewed: tuple[Path, Path], make_tree: Make, command: Command
) -> None:
    _, folder = reviewed
    moved = {"entrypoints/helpers.py": HELPERS.replace("def convert", "def turn"), "entrypoints/api_server.py": None}
    tree = make_tree(moved)
    before = command(tree, "--ledger", folder)
    assert "moved entrypoints/helpers.py:convert → entrypoints/helpers.py:turn, internal" in before.stdout
    assert "1 rows moved." in command(tree, "--ledger", folder, "--reanchor").stderr
    assert "moved" not in command(tree, "--ledger", folder).stdout


def test_a_trend_compares_versions(make_tree: Make, command: Command, tmp_path: Path) -> None:
    older = tmp_path / "older" / "vllm_omni"
    older.mkdir(parents=True)
    (older / "__init__.py").write_text('__version__ = "0.1.0"\nraise ValueError("x")\n')
    result = command(make_tree(), "--trend", older, "--json", "-")
    points = listed(result)["trend"]
    assert [(point["version"], point["types"]["ValueError"]) for point in points] == [("0.1.0", 1), ("unknown", 2)]
    assert "raise GuardrailViolationError" in result.stderr


def test_files_are_written_where_they_are_wanted(make_tree: Make, command: Command, tmp_path: Path) -> None:
    names = {"--json": "a/x.json", "--sarif": "b/x.sarif", "--html": "c/x.html"}
    arguments = [part for option, name in names.items() for part in (option, tmp_path / name)]
    assert command(make_tree(), *arguments).exit_code == 0
    assert all((tmp_path / name).stat().st_size > 1000 for name in names.values())


def test_a_text_that_cannot_be_encoded_is_shown_as_it_stands(make_tree: Make, command: Command) -> None:
    tree = make_tree({"entrypoints/helpers.py": "def f():\n    raise ValueError('no \\ud800 in here')\n"})
    sites = listed(command(tree, "--only", "entrypoints/helpers.py", "--json", "-"))["sites"]
    assert [site["message"] for site in sites] == ["no \\ud800 in here"]


def test_without_a_cache_it_says_the_same(make_tree: Make, command: Command) -> None:
    tree = make_tree()
    assert command(tree, "--no-cache", "--json", "-").stdout == command(tree, "--json", "-").stdout
