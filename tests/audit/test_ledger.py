# SPDX-License-Identifier: Apache-2.0
"""The ledger is read as a whole or not at all, keeps what it does not know, and merges."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vllm_omni_errors.audit import Audit, LedgerError
from vllm_omni_errors.audit import ledger as ledgers

Make = Callable[..., Path]
Run = Callable[..., Audit]

HEAD = '{"format": 1, "module": "entrypoints/helpers.py"}'
ROW: dict[str, Any] = {
    "function": "parse_size",
    "kind": "raise",
    "exception": "ValueError",
    "message": "0123456789ab",
    "decision": "validation",
    "parameter": "size",
    "reason": "The client wrote the size.",
    "reviewed": "2026-01-01",
}


def written(*rows: dict[str, Any], head: str = HEAD) -> dict[str, str]:
    return {"entrypoints/helpers.jsonl": "\n".join([head, *map(json.dumps, rows)]) + "\n"}


def test_a_row_is_read_and_written_the_same(make_ledger: Make) -> None:
    rows = written({**ROW, "zebra": [1], "apple": None})
    folder = make_ledger(rows=rows)
    ledger = ledgers.load(folder)
    ledgers.write(folder, ledger.files())
    assert (folder / "entrypoints/helpers.jsonl").read_text() == rows["entrypoints/helpers.jsonl"]


def test_the_manifest_can_be_named_itself(make_ledger: Make) -> None:
    assert ledgers.load(make_ledger() / "ledger.toml").rules[0].name == "kernels"


def test_rows_are_written_in_the_same_order_whatever_they_came_in(make_ledger: Make) -> None:
    rows = [{**ROW, "function": name, "nth": nth} for name in "ba" for nth in (3, 2)]
    folder = make_ledger(rows=written(*rows))
    ledgers.write(folder, ledgers.load(folder).files())
    lines = (folder / "entrypoints/helpers.jsonl").read_text().splitlines()[1:]
    assert [(json.loads(line)["function"], json.loads(line)["nth"]) for line in lines] == [
        ("a", 2),
        ("a", 3),
        ("b", 2),
        ("b", 3),
    ]


def test_a_file_without_rows_goes(make_ledger: Make) -> None:
    folder = make_ledger(rows=written(ROW))
    ledgers.write(folder, {"entrypoints/helpers.py": []})
    assert not (folder / "entrypoints/helpers.jsonl").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kind": "raises"}, "kind"),
        ({"decision": "validaton"}, "validaton"),
        ({"decision": "propagate"}, "not for raise"),
        ({"kind": "except", "decision": "validation"}, "not for except"),
        ({"decision": "internal"}, "has no parameter"),
        ({"reason": ""}, "reason"),
        ({"reason": "x" * 601}, "reason"),
        ({"reason": "two\nlines"}, "reason"),
        ({"reviewed": None}, "reviewed"),
        ({"reviewed": "1.2.2026"}, "reviewed"),
        ({"expires": "soon"}, "expires"),
        ({"message": "the text itself"}, "hash"),
        ({"nth": 0}, "nth"),
        ({"nth": True}, "nth"),
        ({"function": None}, "function"),
        ({"parameter": ""}, "parameter"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(make_ledger: Make, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(LedgerError, match=said) as refused:
        ledgers.load(make_ledger(rows=written({**ROW, **changed})))
    assert "helpers.jsonl:2" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("{}\n", "format"),
        ('{"format": 2, "module": "entrypoints/helpers.py"}\n', "format is 2"),
        ('{"format": 1, "module": "other.py"}\n', "other.py"),
        (HEAD + "\n[]\n", "no object"),
        (HEAD + "\n<<<<<<< HEAD\n", "JSON"),
        (HEAD + "\n" + json.dumps(ROW) + "\n" + json.dumps({**ROW, "decision": "validator"}) + "\n", "two rows"),
    ],
)
def test_a_wrong_file_is_refused(make_ledger: Make, text: str, said: str) -> None:
    with pytest.raises(LedgerError, match=said):
        ledgers.load(make_ledger(rows={"entrypoints/helpers.jsonl": text}))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("format = 1", "format = 2", "format is 2"),
        ("format = 1", "", "format is None"),
        ("format = 1", "format =", "TOML"),
        ('"internal"', '"whatever"', "whatever"),
        ("sites = 1", "", "sites"),
        ("sites = 1", 'sites = "1"', "sites"),
        ('paths = ["quantization/*"]', "", "paths"),
        ('name = "kernels"', "", "no name"),
        ("sites = 1", 'sites = 1\nreach = ["maybe"]', "reach"),
        ("sites = 1", 'sites = 1\nkinds = ["raises"]', "kinds"),
        ('reason = "Shapes are a product of the server."', 'reason = " "', "reason"),
        ("reviewed = 2026-01-01", "", "reviewed"),
        ("reviewed = 2026-01-01", "reviewed = 2026-01-01T00:00:00", "reviewed"),
        ("sites = 1", f"sites = {'[' * 5_000}", "nested too deeply"),
        ("[[rule]]", "[rule]", "no list"),
    ],
)
def test_a_wrong_manifest_is_refused(make_ledger: Make, old: str, new: str, said: str) -> None:
    folder = make_ledger()
    manifest = folder / "ledger.toml"
    assert old in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(old, new))
    with pytest.raises(LedgerError, match=said):
        ledgers.load(folder)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_what_ends_a_line_elsewhere_may_stand_in_a_reason(make_ledger: Make, separator: str) -> None:
    folder = make_ledger(rows=written({**ROW, "reason": f"One{separator}two."}))
    ledgers.write(folder, ledgers.load(folder).files())
    assert [row.reason for row in ledgers.load(folder).rows.values()] == [f"One{separator}two."]


@pytest.mark.parametrize(
    ("line", "said"),
    [('{"reason": "half a character: \\ud83d"}', "surrogates"), ('{"a": ' * 50_000, "nested too deeply")],
)
def test_a_line_that_could_not_be_written_again_is_refused(make_ledger: Make, line: str, said: str) -> None:
    with pytest.raises(LedgerError, match=f"2 is not JSON: .*{said}"):
        ledgers.load(make_ledger(rows={"entrypoints/helpers.jsonl": f"{HEAD}\n{line}\n"}))


def test_two_rules_of_one_name_are_refused(make_ledger: Make) -> None:
    folder = make_ledger()
    text = (folder / "ledger.toml").read_text()
    (folder / "ledger.toml").write_text(text + text[text.index("[[rule]]") :])
    with pytest.raises(LedgerError, match="kernels"):
        ledgers.load(folder)


def test_a_folder_without_manifest_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"ledger\.toml"):
        ledgers.load(tmp_path)


def test_a_ledger_of_another_package_is_refused(make_tree: Make, make_ledger: Make, run: Run) -> None:
    with pytest.raises(LedgerError, match="vllm"):
        run(make_tree(), make_ledger('format = 1\npackage = "vllm"\n'))


# ---- rows that moved ----

MOVED = "def f(x):\n    raise ValueError(f'no {x} is here at all')\n"


def decided(run: Run, tree: Path, folder: Path) -> None:
    site = next(site for site in run(tree).inventory.sites if site.function == "f")
    values = {**ROW, "function": site.function, "message": site.message, "exception": site.exception}
    head = json.dumps({"format": 1, "module": site.path})
    file = ledgers.file_of(folder, site.path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(head + "\n" + json.dumps(values) + "\n")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("entrypoints/new.py", MOVED),
        ("entrypoints/old.py", MOVED.replace("def f", "def g")),
        ("entrypoints/old.py", "class A:\n    def f(self, x):\n        raise ValueError(f'no {x} is here at all')\n"),
        ("entrypoints/new.py", MOVED.replace("def f", "def g")),
    ],
)
def test_a_row_that_only_moved_is_found_again(
    make_tree: Make, make_ledger: Make, run: Run, path: str, text: str
) -> None:
    folder = make_ledger('format = 1\npackage = "vllm_omni"\n')
    decided(run, make_tree(only={"entrypoints/old.py": MOVED}), folder)
    audit = run(make_tree({"entrypoints/old.py": None, path: text}, only={"entrypoints/old.py": ""}), folder)
    assert audit.matched is not None
    assert [move.site.path for move in audit.matched.moved] == [path]
    assert (audit.matched.stale, audit.findings) == ([], [])


@pytest.mark.parametrize(
    "text",
    [
        MOVED.replace("here", "there"),
        MOVED.replace("ValueError", "TypeError"),
        MOVED.replace("def f", "def g") + MOVED.replace("def f", "def h"),
    ],
)
def test_a_row_that_may_mean_something_else_is_stale(make_tree: Make, make_ledger: Make, run: Run, text: str) -> None:
    folder = make_ledger('format = 1\npackage = "vllm_omni"\n')
    decided(run, make_tree(only={"entrypoints/old.py": MOVED}), folder)
    audit = run(make_tree(only={"entrypoints/old.py": text}), folder)
    assert audit.matched is not None
    assert (len(audit.matched.stale), audit.matched.moved) == (1, [])


# ---- merging ----


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


names = st.text("abcdef", min_size=1, max_size=2)


@settings(max_examples=8, deadline=None)
@example({"b"}, {"d", "a"}, {"aa", "c"})  # git leaves the row between two insertions twice
@given(st.sets(names, max_size=4), st.sets(names, max_size=4), st.sets(names, max_size=4))
def test_reviews_of_different_sites_merge_without_conflict(
    tmp_path_factory: pytest.TempPathFactory, base: set[str], ours: set[str], theirs: set[str]
) -> None:
    top = tmp_path_factory.mktemp("merge")
    theirs = theirs - ours
    attributes = Path(__file__).parents[2] / "ledgers" / ".gitattributes"
    (top / ".gitattributes").write_text(attributes.read_text())

    def save(names_of_rows: set[str]) -> None:
        rows = [ledgers.row_of("", "a.py", {**ROW, "function": name}) for name in names_of_rows]
        (top / "ledger.toml").write_text('format = 1\npackage = "vllm_omni"\n')
        (top / "a.jsonl").write_text(ledgers.lines_of("a.py", rows))
        git(top, "add", ".")
        git(top, "commit", "--quiet", "--allow-empty", "-m", "x")

    git(top, "init", "--quiet", "--initial-branch=main")
    save(base)
    git(top, "checkout", "--quiet", "-b", "theirs")
    save(base | theirs)
    git(top, "checkout", "--quiet", "main")
    save(base | ours)
    git(top, "merge", "--quiet", "--no-edit", "theirs")
    assert {row.function for row in ledgers.load(top).rows.values()} == base | ours | theirs
