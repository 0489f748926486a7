# SPDX-License-Identifier: Apache-2.0
"""The seams ledger is read as a whole or not at all, and says which calls into vLLM are gone or new."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from vllm_omni_errors.audit import LedgerError, command, seams
from vllm_omni_errors.audit.tree import find
from vllm_omni_errors.migrate.rewrites import ALL

Make = Callable[..., Path]
MakeSeams = Callable[..., Path]

LEDGERS = Path(__file__).parents[2] / "ledgers"
MANIFEST = """\
format = 1
kind = "seams"
package = "vllm"
version = "0.30.0"
callers = "vllm_omni"
paths = ["engine/*"]
skip = ["engine/cli/*"]
watch = ["vllm.renderers.base:BaseRenderer.render_chat"]
apart = ["vllm.utils:*"]
"""
HEAD = '{"format": 1, "module": "engine/entry.py"}'
ROW: dict[str, Any] = {
    "function": "Engine.add",
    "call": "self.processor.process_inputs",
    "callee": "vllm.v1.engine.input_processor:InputProcessor.process_inputs",
    "raises": "ValueError, TypeError",
    "decision": "validation",
    "parameter": "prompt",
    "by": "InputProcessorSeam",
    "reason": "It reads the prompt.",
    "reviewed": "2026-01-01",
}
ENTRY = """
    from vllm.utils import random_uuid


    class Engine:
        def add(self, prompt):
            return self.processor.process_inputs(random_uuid(), prompt)
"""


@pytest.fixture
def make_seams(tmp_path: Path) -> MakeSeams:
    """Writes a ledger of seams."""

    def make(*rows: dict[str, Any], manifest: str = MANIFEST, text: str | None = None) -> Path:
        folder = tmp_path / "seams"
        (folder / "engine").mkdir(parents=True, exist_ok=True)
        (folder / "ledger.toml").write_text(manifest)
        lines = text if text is not None else "\n".join([HEAD, *map(json.dumps, rows)]) + "\n"
        (folder / "engine" / "entry.jsonl").write_text(lines)
        return folder

    return make


@pytest.fixture
def tree(make_tree: Make) -> Path:
    return make_tree(only={"engine/entry.py": ENTRY})


@pytest.fixture
def audit(tmp_path: Path) -> Callable[..., Result]:
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(command.audit, [*map(str, arguments), "--cache", str(tmp_path / "cache.sqlite")])

    return run


def checked(folder: Path, tree: Path) -> tuple[list[str], list[str]]:
    """Calls of the seams that are stale, and names of the calls that are open."""
    found = seams.check(seams.load(folder), find(tree))
    return [row.call for row in found.stale], [call.name for call in found.open]


# ---- reading ----


def test_a_row_is_read_and_written_the_same(make_seams: MakeSeams) -> None:
    folder = make_seams({**ROW, "zebra": [1], "apple": {}})
    ledger = seams.load(folder)
    assert seams.lines_of("engine/entry.py", ledger.rows) == (folder / "engine/entry.jsonl").read_text()


def test_rows_are_written_in_the_same_order_whatever_they_came_in(make_seams: MakeSeams) -> None:
    rows = [{**ROW, "function": function, "call": call} for function in "ba" for call in "dc"]
    ledger = seams.load(make_seams(*rows))
    lines = seams.lines_of("engine/entry.py", ledger.rows).splitlines()[1:]
    assert [json.loads(line)["function"] + json.loads(line)["call"] for line in lines] == ["ac", "ad", "bc", "bd"]


def test_the_same_row_twice_is_one_as_a_merge_may_leave_it(make_seams: MakeSeams) -> None:
    assert len(seams.load(make_seams(ROW, ROW)).rows) == 1


def test_the_manifest_can_be_named_itself(make_seams: MakeSeams) -> None:
    assert seams.load(make_seams(ROW) / "ledger.toml").version == "0.30.0"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"call": ""}, "call is missing"),
        ({"callee": None}, "callee"),
        ({"callee": "vllm.renderers"}, "module:name"),
        ({"callee": "vllm/renderers.py:f"}, "module:name"),
        ({"raises": "ValueError,TypeError"}, "no name"),
        ({"raises": ["ValueError"]}, "raises"),
        ({"raises": "a client's mistake"}, "no name"),
        ({"decision": "raw"}, "has to be one of"),
        ({"decision": "typed"}, "converts nothing"),
        ({"decision": "internal", "by": ""}, "converts nothing"),
        ({"by": ""}, "by is missing"),
        ({"by": "open, InputProcessorSeam"}, "alone"),
        ({"reason": " "}, "reason is missing"),
        ({"reason": "x" * 601}, "reason"),
        ({"reason": "two\nlines"}, "one line"),
        ({"reviewed": "1.2.2026"}, "date"),
        ({"reviewed": ""}, "date"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(make_seams: MakeSeams, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(LedgerError, match=said) as refused:
        seams.load(make_seams({**ROW, "function": "other"}, {**ROW, **changed}))
    assert "entry.jsonl:3: " in str(refused.value)


def test_a_decision_that_converts_nothing_needs_no_rewrite(make_seams: MakeSeams) -> None:
    kept = {key: value for key, value in ROW.items() if key not in ("parameter", "by", "raises")}
    [row] = seams.load(make_seams({**kept, "decision": "internal"})).rows
    assert (row.by, row.raises, row.is_open) == ((), (), False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("{}\n", "format"),
        ('{"format": 2, "module": "engine/entry.py"}\n', "format is 2"),
        ('{"format": 1, "module": "engine/other.py"}\n', r"other\.py"),
        (HEAD + "\n[]\n", "no object"),
        (HEAD + "\n<<<<<<< HEAD\n", "JSON"),
        (HEAD + "\n" + json.dumps(ROW) + "\n" + json.dumps({**ROW, "parameter": "x"}) + "\n", "two rows"),
    ],
)
def test_a_wrong_file_is_refused(make_seams: MakeSeams, text: str, said: str) -> None:
    with pytest.raises(LedgerError, match=said):
        seams.load(make_seams(text=text))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("format = 1", "format = 2", "format is 2"),
        ("format = 1", "format =", "TOML"),
        ('kind = "seams"', "", "kind is None"),
        ('version = "0.30.0"', "", "version is missing"),
        ('callers = "vllm_omni"', "callers = 5", "callers"),
        ('paths = ["engine/*"]', "", "paths is missing"),
        ('paths = ["engine/*"]', 'paths = "engine/*"', "list"),
        (":BaseRenderer.render_chat", "", "module:name"),
        ("vllm.utils:*", "vllm.utils", "module:name"),
    ],
)
def test_a_wrong_manifest_is_refused(make_seams: MakeSeams, old: str, new: str, said: str) -> None:
    assert old in MANIFEST
    with pytest.raises(LedgerError, match=said) as refused:
        seams.load(make_seams(ROW, manifest=MANIFEST.replace(old, new)))
    assert "ledger.toml" in str(refused.value)


def test_a_folder_without_manifest_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"ledger\.toml"):
        seams.load(tmp_path)


# ---- the calls of a file ----


def names(text: str) -> list[tuple[str, str, str]]:
    return [(call.function, call.name, call.origin) for call in seams.calls_in("a.py", text.encode())]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import a.b\na.b.f()\n", ("", "a.b.f", "a:b.f")),
        ("import a.b as c\nc.f()\n", ("", "c.f", "a.b:f")),
        ("from a import f as g\ng()\n", ("", "g", "a:f")),
        ("from a import C\nC.f()\n", ("", "C.f", "a:C.f")),
        ("def f():\n    from a import g\n    g()\n", ("f", "g", "a:g")),
        (
            "class A:\n    def f(self):\n        def g():\n            self.h[0].i().j()\n",
            ("A.f.g", "self.h[].i().j", ""),
        ),
        ("class A:\n    def f(self):\n        super().f()\n", ("A.f", "super().f", "")),
        ("class A:\n    async def f(self):\n        return [await self.g(x) for x in y]\n", ("A.f", "self.g", "")),
        ("f = lambda x: x.g()\n", ("", "x.g", "")),
        ("def f(self):\n    wrapped(self.g)(1)\n", ("f", "self.g", "")),
        ("from a import f\nrun(f)\n", ("", "f", "a:f")),
        ('from a import R\n@router.post("/")\ndef f(request: R): pass\n', ("f", "R", "a:R")),
        ("from a import f\n@f\ndef g(): pass\n@f()\ndef h(): pass\n", ("", "f", "a:f")),
    ],
)
def test_a_call_is_found_with_its_function_and_origin(text: str, found: tuple[str, str, str]) -> None:
    assert found in names(text)


def test_the_type_of_an_argument_alone_is_no_call() -> None:
    assert names("from a import R\n@staticmethod\ndef f(request: R): pass\n") == []


def test_a_class_that_is_only_asked_about_is_no_call() -> None:
    assert names("from a import C\nisinstance(x, C)\n") == [("", "isinstance", "")]


# ---- against a tree ----


def test_a_reviewed_tree_has_nothing_to_say(make_seams: MakeSeams, tree: Path) -> None:
    assert checked(make_seams(ROW), tree) == ([], [])


def test_a_seam_that_a_rewrite_wraps_is_still_there(make_seams: MakeSeams, make_tree: Make) -> None:
    wrapped = ENTRY.replace("self.processor.process_inputs(", "reads_request(self.processor.process_inputs)(")
    assert checked(make_seams(ROW), make_tree(only={"engine/entry.py": wrapped})) == ([], [])


@pytest.mark.parametrize(
    ("old", "new"), [("def add", "def put"), ("process_inputs", "process"), ("class Engine", "class Other")]
)
def test_a_seam_whose_function_or_call_is_gone_is_stale(
    make_seams: MakeSeams, make_tree: Make, old: str, new: str
) -> None:
    tree = make_tree(only={"engine/entry.py": ENTRY.replace(old, new)})
    assert checked(make_seams(ROW), tree)[0] == ["self.processor.process_inputs"]


def test_a_seam_whose_file_is_gone_is_stale(make_seams: MakeSeams, make_tree: Make) -> None:
    assert checked(make_seams(ROW), make_tree(only={"engine/other.py": ""}))[0] == [ROW["call"]]


@pytest.mark.parametrize(
    ("statement", "opened"),
    [
        ("other.process_inputs(p)", ["other.process_inputs"]),
        ("renderer.render_chat(p)", ["renderer.render_chat"]),
        ("from vllm.inputs import parse; parse(p)", ["parse"]),
        ("from vllm.inputs import parse as read; run(read)", ["read"]),
        ("import vllm; vllm.read(p)", ["vllm.read"]),
        ("from vllm.utils import anything; anything(p)", []),
        ("from vllm_omni.inputs import parse; parse(p)", []),
        ("from vllm.inputs import Prompt; isinstance(p, Prompt)", []),
        ("something.else_entirely(p)", []),
    ],
)
def test_a_call_that_nobody_decided_is_open(
    make_seams: MakeSeams, make_tree: Make, statement: str, opened: list[str]
) -> None:
    tree = make_tree(only={"engine/entry.py": ENTRY, "engine/new.py": f"def f(p):\n    {statement}\n"})
    assert checked(make_seams(ROW), tree) == ([], opened)


def test_only_the_files_of_the_manifest_are_asked_about(make_seams: MakeSeams, make_tree: Make) -> None:
    new = "def f(p):\n    other.process_inputs(p)\n"
    tree = make_tree(only={"engine/entry.py": ENTRY, "engine/cli/new.py": new, "metrics/new.py": new})
    assert checked(make_seams(ROW), tree) == ([], [])


def test_a_method_that_strings_have_too_is_known_by_two_names(make_seams: MakeSeams, make_tree: Make) -> None:
    row = {**ROW, "function": "f", "call": "self.tokenizer.encode", "callee": "vllm.tokenizers:TokenizerLike.encode"}
    body = "def f(self):\n    self.tokenizer.encode(1)\n\ndef g(self):\n    {}.encode(1)\n"
    folder = make_seams(row)
    assert checked(folder, make_tree(only={"engine/entry.py": body.format("text")})) == ([], [])
    opened = checked(folder, make_tree(only={"engine/entry.py": body.format("self.other.tokenizer")}))[1]
    assert opened == ["self.other.tokenizer.encode"]


# ---- on the command line ----


def test_the_gate_passes_what_was_reviewed(make_seams: MakeSeams, tree: Path, audit: Callable[..., Result]) -> None:
    result = audit(tree, "--seams", make_seams(ROW), "--check")
    assert (result.exit_code, result.stderr) == (0, "")


def test_an_open_call_is_1_and_says_what_to_do(
    make_seams: MakeSeams, make_tree: Make, audit: Callable[..., Result]
) -> None:
    tree = make_tree(only={"engine/entry.py": ENTRY, "engine/new.py": "def f(p):\n    other.process_inputs(p)\n"})
    result = audit(tree, "--seams", make_seams(ROW), "--check")
    assert result.exit_code == 1
    assert "open engine/new.py:2 f: other.process_inputs of vllm" in result.stdout
    assert "Add a row to seams" in result.stdout


def test_a_stale_seam_is_2(make_seams: MakeSeams, make_tree: Make, audit: Callable[..., Result]) -> None:
    tree = make_tree(only={"engine/entry.py": "x = 1\n"})
    result = audit(tree, "--seams", make_seams(ROW), "--check")
    assert result.exit_code == 2
    assert "stale engine/entry.py:1 Engine.add" in result.stdout


def test_an_unreadable_ledger_of_seams_is_2(make_seams: MakeSeams, tree: Path, audit: Callable[..., Result]) -> None:
    result = audit(tree, "--seams", make_seams({**ROW, "by": ""}))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "entry.jsonl:2: by is missing" in result.stderr


def test_a_ledger_of_error_sites_names_its_seams(
    make_seams: MakeSeams, make_ledger: Make, make_tree: Make, audit: Callable[..., Result]
) -> None:
    make_seams(ROW)
    folder = make_ledger('format = 1\npackage = "vllm_omni"\nseams = "../seams"\n')
    tree = make_tree(only={"engine/entry.py": "x = 1\n"})
    result = audit(tree, "--ledger", folder / "ledger.toml", "--check")
    assert result.exit_code == 2
    assert "stale engine/entry.py:1" in result.stdout


def test_a_ledger_may_name_no_seams(make_ledger: Make) -> None:
    assert seams.named_by(make_ledger()) is None
    with pytest.raises(LedgerError, match="seams is 5"):
        seams.named_by(make_ledger("format = 1\nseams = 5\n"))


def test_seams_of_another_caller_are_refused(make_seams: MakeSeams, tree: Path, audit: Callable[..., Result]) -> None:
    result = audit(tree, "--seams", make_seams(ROW, manifest=MANIFEST.replace("vllm_omni", "other")))
    assert (result.exit_code, "calls from other" in result.stderr) == (2, True)


def test_another_release_is_only_said(make_seams: MakeSeams, make_tree: Make, audit: Callable[..., Result]) -> None:
    tree = make_tree(only={"__init__.py": '__version__ = "0.31.0"\n', "engine/entry.py": ENTRY})
    result = audit(tree, "--seams", make_seams(ROW), "--check")
    assert (result.exit_code, "vllm 0.30.0, and the tree is 0.31.0" in result.stdout) == (0, True)


# ---- versions, and the committed ledger ----


@pytest.mark.parametrize("version", ["0.30.0", "0.30.0+cpu"])
def test_the_seams_of_a_reviewed_version(version: str) -> None:
    assert seams.require_reviewed(version).version == "0.30.0"


@pytest.mark.parametrize("version", ["0.30.1", "0.30.0rc1", "0.31.0+cpu", "", "../vllm-omni-0.30.0"])
def test_a_version_that_was_not_reviewed_is_refused(version: str) -> None:
    with pytest.raises(seams.UnreviewedVersionError, match="were not reviewed"):
        seams.require_reviewed(version)


def test_a_ledger_of_another_version_does_not_count(make_seams: MakeSeams, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_seams(ROW)
    monkeypatch.setattr(seams.ledgers, "folder", lambda name: folder)
    assert seams.reviewed_for("0.31.0") is None


COMMITTED = [row for folder in sorted(LEDGERS.glob("upstream-*")) for row in seams.load(folder).rows]


def test_committed_files_are_written_as_they_would_be_again() -> None:
    for file in LEDGERS.glob("upstream-*/**/*.jsonl"):
        path = json.loads(file.read_text().splitlines()[0])["module"]
        folder = next(parent for parent in file.parents if parent.name.startswith("upstream-"))
        rows = [row for row in seams.load(folder).rows if row.path == path]
        assert file.read_text() == seams.lines_of(path, rows)


@pytest.mark.parametrize("name", sorted({name for row in COMMITTED for name in row.by if name != seams.OPEN}))
def test_a_rewrite_that_a_seam_names_is_there(name: str) -> None:
    assert name in {rewrite.__name__ for rewrite in ALL}
