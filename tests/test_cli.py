# SPDX-License-Identifier: Apache-2.0
"""The command line: exit codes, what goes to which stream, and how it ends."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import types
from importlib.metadata import version
from pathlib import Path

import click
import libcst as cst
import pytest
from rich.console import Console

from vllm_omni_errors import cli
from vllm_omni_errors.migrate import rewrites, summary
from vllm_omni_errors.migrate.rewrite import PHASES, Rewrite
from vllm_omni_errors.migrate.series import PatchFile, Series
from vllm_omni_errors.migrate.source import MigrationError, Unmatched


class Greet(Rewrite):
    """Doors greet [sic]."""

    phase = "bridge"
    module = "door.py"
    function = "enter"
    before = after = ""

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:  # noqa: N802 (LibCST's name)
        if self.inside() and original_node.value == "hello":
            self.found += 1
            return updated_node.with_changes(value="greet")
        return updated_node


@pytest.fixture(autouse=True)
def _one_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrites, "ALL", (Greet,))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "source" / "vllm_omni"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "door.py").write_text("def enter():\n    return hello()\n")
    return tmp_path / "source"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


# Help and version


def test_version(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"omni-errors, version {version('vllm-omni-errors')}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["migrate", "--help"]])
def test_help_has_examples(arguments, capsys):
    assert cli.run(arguments) == 0
    shown = capsys.readouterr().out
    assert "Examples:\n" in shown
    assert "omni-errors migrate vllm-omni==0.30.0 --out" in shown
    assert "  omni-errors" in shown.partition("Examples:\n")[2].splitlines()[0]


def test_help_lists_the_commands_without_importing_them(capsys, monkeypatch):
    monkeypatch.setattr(cli.importlib, "import_module", None)
    assert cli.run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "migrate  Write a migrated copy" in shown
    assert "probe    Check the error contract" in shown


def test_help_of_migrate_names_the_phases(capsys):
    cli.run(["migrate", "--help"])
    named = " ".join(capsys.readouterr().out.split()).replace(" or ", ", ")
    assert f"Last phase to apply: {', '.join(PHASES)} (default" in named


@pytest.mark.parametrize("command", [None, *cli.group.list_commands(None)])
def test_help_is_whole_in_80_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    cli.run([*filter(None, [command]), "--help"])
    shown = capsys.readouterr().out
    assert "..." not in shown.partition("Options:")[2]
    assert command == "audit" or max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("arguments", [["nonsense"], ["migrate"], ["migrate", "x"], ["migrate", "x", "--out"]])
def test_wrong_usage_is_could_not_run(arguments, capsys):
    assert cli.run(arguments) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert "Error: " in caught.err


def test_without_arguments_it_shows_help(capsys):
    assert cli.run([]) == 2
    caught = capsys.readouterr()
    assert "Examples:" in caught.out + caught.err


# What is imported


def test_command_line_imports_neither_vllm_nor_torch_nor_what_other_commands_need():
    program = (
        "import sys; from vllm_omni_errors import cli; cli.run(['--help'])\n"
        "heavy = {'vllm', 'vllm_omni', 'torch', 'libcst', 'httpx', 'jinja2', 'rich', 'PIL'} & set(sys.modules)\n"
        "sys.exit(sorted(heavy) or 0)"
    )
    assert python(program).returncode == 0


def test_migrating_imports_neither_vllm_nor_torch(tree, out):
    program = (
        "import sys; from vllm_omni_errors import cli; from vllm_omni_errors.migrate import rewrites\n"
        "rewrites.ALL = ()\n"
        "assert cli.run(sys.argv[1:]) == 0\n"
        "sys.exit(sorted({'vllm', 'vllm_omni', 'torch'} & set(sys.modules)) or 0)"
    )
    done = python(program, "migrate", str(tree), "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", sorted(cli.TOOLS & {"click", "libcst", "packaging", "rich", "ruff"}))
def test_missing_extra_is_one_sentence(module, tree, out):
    program = f"import sys; sys.modules[{module!r}] = None; from vllm_omni_errors.cli import main; main()"
    done = python(program, "migrate", str(tree), "--out", str(out))
    assert done.returncode == 2
    assert done.stderr == f"omni-errors: {cli.NEEDS_TOOLS}\n"
    assert done.stdout == ""


# The probe, which is built elsewhere


@pytest.fixture
def probe_module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("vllm_omni_errors.probe.command")
    monkeypatch.setitem(sys.modules, "vllm_omni_errors.probe", types.ModuleType("vllm_omni_errors.probe"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize("code", [0, 1, 2])
def test_exit_code_of_the_probe_is_passed_on(probe_module, code):
    @click.command()
    @click.argument("url")
    @click.pass_context
    def probe(ctx: click.Context, url: str) -> None:
        ctx.exit(code)

    probe_module.probe = probe  # type: ignore[attr-defined]
    assert cli.run(["probe", "http://here"]) == code


def test_probe_that_is_not_there_is_told(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vllm_omni_errors.probe.command", None)
    assert cli.run(["probe", "http://here"]) == 2
    assert "probe is not part of this version" in capsys.readouterr().err


def test_probe_without_the_extra_is_one_sentence(probe_module, monkeypatch, capsys):
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'httpx'", name="httpx")

    monkeypatch.setattr(cli.importlib, "import_module", missing)
    assert cli.run(["probe", "http://here"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# migrate


def test_summary_is_readable(tree, out, tmp_path, capsys):
    diff = tmp_path / "changes.diff"
    assert cli.run(["migrate", str(tree), "--out", str(out), "--diff", str(diff)]) == 0
    caught = capsys.readouterr()
    assert caught.err == ""
    _, heading, row = caught.out.splitlines()[:3]
    assert heading == "bridge  vllm_omni/door.py  +3 -1"
    assert row.split() == ["Greet", "1", "Doors", "greet", "[sic]."]
    assert "1 rewrite in 1 place; 2 files changed or new, +" in caught.out
    assert "1 file unchanged." in caught.out
    assert f"Tree:  {out}\n" in caught.out
    assert f"Diff:  {diff}\n" in caught.out


def test_a_long_summary_is_one_line_a_folder(tree, out, monkeypatch, capsys):
    monkeypatch.setattr("vllm_omni_errors.migrate.summary.MOST_ROWS", 0)
    assert cli.run(["migrate", str(tree), "--out", str(out)]) == 0
    head, row, hint = capsys.readouterr().out.splitlines()[:3]
    assert head.split() == ["Phase", "Folder", "Files", "Rewrites", "Places"]
    assert row.split() == ["bridge", ".", "1", "1", "1"]
    assert hint.startswith("Every rewrite with its reason: --json FILE")


def test_own_output_says_so(tree, out, capsys):
    cli.run(["migrate", str(tree), "--out", str(out)])
    capsys.readouterr()
    assert cli.run(["migrate", str(out), "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith("Nothing to do: this vLLM-Omni was migrated by vllm-omni-errors ")


def test_json_to_standard_output_is_nothing_but_json(tree, out, capsys):
    assert cli.run(["migrate", str(tree), "--out", str(out), "--json", "-"]) == 0
    caught = capsys.readouterr()
    document = json.loads(caught.out)
    assert "Greet" in caught.err
    assert document["rewrites"] == [
        {
            "rewrite": "Greet",
            "phase": "bridge",
            "path": "vllm_omni/door.py",
            "function": "enter",
            "places": 1,
            "why": "Doors greet [sic].",
        }
    ]
    assert document["totals"]["files"] == 2
    assert (document["version"], document["out"], document["wheel"]) == (None, str(out), None)


def test_paths_of_the_result_are_absolute(tree, out, monkeypatch, capsys):
    monkeypatch.chdir(out.parent)
    assert cli.run(["migrate", str(tree), "--out", "out", "--diff", "changes.diff", "--json", "done.json"]) == 0
    document = json.loads(Path("done.json").read_text())
    assert (document["out"], document["diff"]) == (str(out), str(out.parent / "changes.diff"))
    assert f"Diff:  {document['diff']}\n" in capsys.readouterr().out


def test_json_to_a_file(tree, out, tmp_path):
    file = tmp_path / "done.json"
    assert cli.run(["migrate", str(tree), "--out", str(out), "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert document["totals"]["added"] == sum(row["added"] for row in document["files"])


def test_what_does_not_match_is_listed(tree, out, capsys):
    (tree / "vllm_omni/door.py").write_text("def enter(): hello(hello)\n")
    assert cli.run(["migrate", str(tree), "--out", str(out), "--json", "-"]) == 2
    caught = capsys.readouterr()
    assert "bridge  vllm_omni/door.py\n  Greet: 2 places instead of 1 in enter; its place is ambiguous" in caught.err
    assert f"omni-errors: {tree}: 1 rewrite does not match a vLLM-Omni of unknown version.\n" in caught.err
    error = json.loads(caught.out)["error"]
    (unmatched,) = error["unmatched"]
    assert (unmatched["rewrite"], unmatched["expected"], unmatched["found"]) == ("Greet", 1, 2)
    assert error["phases"] == [{"phase": "bridge", "matched": 0, "unmatched": 1}]
    assert not out.exists()


def test_in_80_columns_what_does_not_match_is_named_whole():
    row = Unmatched("Names" * 12, "stages", "a/" * 60 + "x.py", "Owner." * 9 + "run", 1, 0, "missing", ("s" * 70,))
    console = Console(width=80, record=True, file=io.StringIO())
    summary.show_unmatched(console, MigrationError("tree", "why", "what", (row,)))
    told = console.export_text()
    assert f"stages  {row.path}\n" in told
    assert all(word in told for word in (f"  {row.rewrite}:", row.function, row.reason, row.sites[0]))


def test_in_80_columns_a_series_is_shown_whole():
    patch = PatchFile("0001.patch", "A subject of many words " * 4, 1_000, 100_000, 100_000)
    console = Console(width=80, record=True, file=io.StringIO())
    summary.show_series(console, Series("x", "0.30.0", Path("/series/" + "d" * 90), "a" * 40, "b" * 40, (patch,)))
    told = console.export_text()
    assert "…" not in told
    assert all(word in told for word in ("+100000 -100000", f"{'d' * 90}/*.patch", "a" * 40, "b" * 40))


def test_error_names_source_reason_and_next_step(tmp_path, out, capsys):
    source = tmp_path / "nothing.whl"
    assert cli.run(["migrate", str(source), "--out", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"omni-errors: {source}: there is no such file, and it is not a requirement.\n"
        "Give a checkout, a wheel file, or a requirement such as vllm-omni==0.30.0.\n"
    )


def test_unknown_phase_names_the_phases(tree, out, capsys):
    assert cli.run(["migrate", str(tree), "--out", str(out), "--phase", "nonsense"]) == 2
    assert "The phases are bridge, requests, stages, transports, finalize." in capsys.readouterr().err


def test_json_that_cannot_be_written_is_told_before_anything_is_done(tree, out, tmp_path, capsys):
    (tmp_path / "file").touch()
    for place, reason in ((tmp_path / "file" / "x.json", "cannot write"), (out / "x.json", "lies inside of --out")):
        assert cli.run(["migrate", str(tree), "--out", str(out), "--json", str(place)]) == 2
        assert f"{place}: " in (shown := capsys.readouterr().err)
        assert reason in shown
        assert not out.exists()


def test_what_the_tree_needs_is_told(tree, out, capsys):
    cli.run(["migrate", str(tree), "--out", str(out)])
    assert f"Needs: vllm-omni-errors {version('vllm-omni-errors')} or later where it runs.\n" in capsys.readouterr().out


# How it ends


def test_interruption(monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.group, "invoke", interrupted)
    assert cli.run(["migrate"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_defect_of_ours_is_no_finding(monkeypatch, capsys):
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(cli.group, "invoke", broken)
    assert cli.run(["migrate"]) == 2
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in shown
    assert shown.endswith("please report it with the lines above.\n")


@pytest.mark.parametrize("arguments", [[], ["--json", "-"]])
def test_reader_that_goes_away_is_no_finding(tree, out, arguments):
    program = (
        "from vllm_omni_errors.cli import main; from vllm_omni_errors.migrate import rewrites\n"
        "rewrites.ALL = (); main()"
    )
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", program, "migrate", str(tree), "--out", str(out), *arguments]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    finally:
        os.close(writing)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert (out / "vllm_omni/door.py").exists()


def of_the_command_line(*arguments: str, stdout: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vllm_omni_errors.cli", *arguments]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


@pytest.mark.parametrize("arguments", [[], ["--json", "-"]])
def test_reader_of_an_audit_that_goes_away_is_no_finding(tree, arguments):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = of_the_command_line("audit", str(tree), "--no-cache", *arguments, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["explain", "503"], ["explain", "503", "--json", "-"], ["audit"], ["audit", "--json", "-"]],
    ids=" ".join,
)
def test_output_that_takes_nothing_is_no_defect_of_ours(tree, arguments):
    given = [str(tree), "--no-cache"] if arguments[0] == "audit" else []
    with Path("/dev/full").open("w") as full:
        done = of_the_command_line(*arguments, *given, stdout=full.fileno())
    assert done.returncode == 2
    assert done.stderr == "omni-errors: the output could not be written: No space left on device.\n"


def test_handler_of_sigterm_is_put_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    cli.run(["--version"])
    assert signal.getsignal(signal.SIGTERM) is before
    codes = []
    thread = threading.Thread(target=lambda: codes.append(cli.run(["--version"])))
    thread.start()
    thread.join(30)
    assert codes == [0]


def test_main_exits_with_the_code(tmp_path, out):
    with pytest.raises(SystemExit) as caught:
        cli.main(["migrate", str(tmp_path / "nothing.whl"), "--out", str(out)])
    assert caught.value.code == 2
