# SPDX-License-Identifier: Apache-2.0
"""The patch series: each patch applies on the one before, and all make the migrated tree."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from synthetic_tree import DOOR, FILES, WINDOW, Enter, Leave, Look, contents

from vllm_omni_errors import cli
from vllm_omni_errors.migrate import migrate, rewrites, series
from vllm_omni_errors.migrate.patches import Patch
from vllm_omni_errors.migrate.rewrites import Area
from vllm_omni_errors.migrate.series import message, write_series
from vllm_omni_errors.migrate.source import MigrationError

ROOT = Path(__file__).parents[2]
ERRORS = b"class OmniClientError(ValueError):\n    pass\n"
SOURCE = {**FILES, "vllm_omni/errors.py": ERRORS}
LIBRARY = {"vllm_omni/errors/wire.py": "x = 1\n", "tests/errors/test_wire.py": "def test_wire():\n    pass\n"}
OWN = (
    Patch("doors", "Let doors greet", "They did not.", statuses=("no-image",), tests=("test_contract_http.py",)),
    Patch("rooms", "Let windows greet", "They stood open.", paths=("house/*",), tests=("test_contract_http.py",)),
    Patch("rooms", "Let doors part", "They fell shut.", tests=("test_contract_http.py",)),
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, own_rewrites: None, tmp_path: Path) -> None:
    """A library of one module, three patches, and no configuration of git but an identity."""
    monkeypatch.setattr(
        rewrites, "AREAS", (Area("doors", "bridge", (Enter,)), Area("rooms", "requests", (Leave, Look)))
    )
    monkeypatch.setattr(series, "PATCHES", OWN)
    monkeypatch.setattr(series, "library_files", lambda: dict(LIBRARY))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    configure(monkeypatch, tmp_path, "[user]\nname = Ann Author\nemail = ann@example.org\n")


def configure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    """The user's own configuration of git."""
    (tmp_path / "gitconfig").write_text(text)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))


def git(directory: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(make_tree) -> Path:
    """The stock source, committed."""
    tree = make_tree(SOURCE, "checkout")
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message=Stock")
    return tree


def tracked(repository: Path) -> dict[str, bytes]:
    return {path: content for path, content in contents(repository).items() if not path.startswith(".git/")}


def refused(source: Path, directory: Path, **options: str) -> MigrationError:
    with pytest.raises(MigrationError) as caught:
        write_series(str(source), directory, **options)
    return caught.value


def test_each_patch_applies_on_the_one_before_and_all_make_the_migrated_tree(make_tree, repository, tmp_path):
    written = write_series(str(make_tree(SOURCE)), tmp_path / "series")
    names = sorted(path.name for path in (tmp_path / "series").iterdir())
    assert names == [patch.name for patch in written.patches]
    assert git(repository, "rev-parse", "HEAD:vllm_omni").strip() == written.base
    git(repository, "am", "--quiet", *(str(tmp_path / "series" / name) for name in names))
    assert git(repository, "rev-parse", "HEAD:vllm_omni").strip() == written.result
    assert git(repository, "log", "--reverse", "--format=%s").splitlines() == [
        "Stock",
        "Add the error contract as vllm_omni.errors",
        "Let doors greet",
        "Let windows greet",
        "Let doors part",
    ]
    assert tracked(repository) == {
        **FILES,
        **{path: text.encode() for path, text in LIBRARY.items()},
        "vllm_omni/errors/__init__.py": ERRORS,
        "vllm_omni/door.py": DOOR.replace("hello", "greet").replace("bye", "part").encode(),
        "vllm_omni/house/window.py": WINDOW.replace("hello", "greet").encode(),
    }


def test_wheel_and_tree_give_the_same_patches(make_tree, make_wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")
    write_series(str(make_tree(FILES)), tmp_path / "of-tree")
    write_series(str(make_wheel()), tmp_path / "of-wheel")
    tree, wheel = contents(tmp_path / "of-tree"), contents(tmp_path / "of-wheel")
    assert [name for name in tree if b"odd.bin" in tree[name]] == []
    assert tree == wheel


def test_attributes_of_a_checkout_change_no_byte(make_tree, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")
    files = {**SOURCE, "vllm_omni/house/window.py": WINDOW.replace("\n", "\r\n").encode()}
    write_series(str(make_tree(files)), tmp_path / "plain")
    write_series(str(make_tree({**files, ".gitattributes": b"* text=auto\n"}, "checkout")), tmp_path / "series")
    assert contents(tmp_path / "series") == contents(tmp_path / "plain")


def test_phase_is_the_last_one(make_tree, tmp_path):
    written = write_series(str(make_tree(SOURCE)), tmp_path / "series", phase="bridge")
    assert [patch.subject for patch in written.patches][1:] == ["Let doors greet"]
    assert refused(make_tree(SOURCE), tmp_path / "other", phase="soon").reason == "there is no such phase"


def test_message_says_why_what_the_statuses_and_the_tests():
    said = message(OWN[0], (Enter,))
    assert said.startswith("They did not.\n\nIn particular:\n\n- Doors greet, they do not say hello.\n\n")
    assert "Statuses that change:\n\n- `POST /v1/images/generations`" in said
    assert " is 500 `InternalServerError`" in " ".join(said.split())
    assert said.endswith("tests/rig/test_contract_http.py.")


# Who made it


def test_author_and_sign_off_are_those_of_gits_configuration(make_tree, tmp_path, monkeypatch):
    write_series(str(make_tree(SOURCE)), tmp_path / "plain")
    assert b"Signed-off-by" not in b"".join(contents(tmp_path / "plain").values())
    configure(monkeypatch, tmp_path, "[user]\nname=Ann Author\nemail=ann@example.org\n[format]\nsignOff=true\n")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Bob Author")
    write_series(str(make_tree(SOURCE)), tmp_path / "signed")
    for content in contents(tmp_path / "signed").values():
        assert b"From: Bob Author <ann@example.org>" in content
        assert b"\nSigned-off-by: Ann Author <ann@example.org>\n" in content


def test_without_an_identity_nothing_is_written_and_gits_own_words_say_what_to_do(make_tree, tmp_path, monkeypatch):
    configure(monkeypatch, tmp_path, "[user]\nuseConfigOnly = true\n")
    error = refused(make_tree(SOURCE), tmp_path / "series")
    assert "git config --global user.email" in error.reason
    assert not (tmp_path / "series").exists()


def test_without_git_it_says_so(make_tree, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(make_tree(SOURCE), tmp_path / "series").subject == "git"
    assert not (tmp_path / "series").exists()


def test_a_users_configuration_cannot_spoil_the_patches(make_tree, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")
    write_series(str(make_tree(SOURCE)), tmp_path / "plain")
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "commit-msg").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "hooks" / "commit-msg").chmod(0o755)
    configure(
        monkeypatch,
        tmp_path,
        "[user]\nname=Ann Author\nemail=ann@example.org\n[diff]\nnoprefix=true\nexternal=false\n"
        f"[core]\nautocrlf=true\nhooksPath={tmp_path / 'hooks'}\nexcludesFile={tmp_path / 'ignored'}\n"
        "[format]\nattach=true\nnoprefix=true\n"
        "coverLetter=true\nsuffix=.txt\nuseAutoBase=true\n[commit]\ngpgSign=true\n[tag]\ngpgSign=true\n"
        "[color]\nui=always\n[log]\nshowSignature=true\n",
    )
    (tmp_path / "ignored").write_text("*.py\n")
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    write_series(str(make_tree(SOURCE)), tmp_path / "spoiled")
    assert contents(tmp_path / "spoiled") == contents(tmp_path / "plain")


# Complete or absent


def test_a_directory_that_holds_anything_is_refused_and_stays(make_tree, tmp_path):
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "thesis.txt").write_text("years of work")
    assert refused(make_tree(SOURCE), tmp_path / "series").reason.startswith("--series is not empty")
    assert contents(tmp_path / "series") == {"thesis.txt": b"years of work"}


def test_an_empty_directory_is_taken(make_tree, tmp_path):
    (tmp_path / "series").mkdir()
    assert len(write_series(str(make_tree(SOURCE)), tmp_path / "series").patches) == 4


def test_the_current_directory_and_a_file_are_refused(make_tree, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    assert "cannot be used" in refused(make_tree(SOURCE), tmp_path / "file").reason
    monkeypatch.chdir(tmp_path)
    assert "current directory" in refused(make_tree(SOURCE), tmp_path).reason


def test_something_that_appears_meanwhile_is_not_overwritten(make_tree, tmp_path):
    def progress(step, done, total):
        (tmp_path / "series").mkdir(exist_ok=True)
        (tmp_path / "series" / "thesis.txt").write_text("years of work")

    with pytest.raises(MigrationError, match="--series is not empty"):
        write_series(str(make_tree(SOURCE)), tmp_path / "series", progress=progress)
    assert contents(tmp_path / "series") == {"thesis.txt": b"years of work"}
    assert not list(tmp_path.glob(".*partial"))


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(make_tree, tmp_path, monkeypatch, failure):
    def write_patches(repository, directory):
        (directory / "0001-half.patch").touch()
        raise failure

    monkeypatch.setattr(series._Repository, "write_patches", write_patches)
    with pytest.raises((MigrationError, KeyboardInterrupt)):
        write_series(str(make_tree(SOURCE)), tmp_path / "new" / "series")
    assert {path.name for path in tmp_path.iterdir()} == {"gitconfig", "source"}


def test_a_migrated_source_is_refused(make_tree, tmp_path):
    migrate(str(make_tree(SOURCE)), tmp_path / "migrated")
    assert "migrated already" in refused(tmp_path / "migrated", tmp_path / "series").reason


@pytest.mark.parametrize("path", ["vllm_omni/errors/mine.py", "tests/errors/test_mine.py"])
def test_a_source_with_files_where_the_library_goes_is_refused(make_tree, tmp_path, path):
    assert path in refused(make_tree({**FILES, path: b""}), tmp_path / "series").reason


def test_everything_that_does_not_match_is_listed_not_only_the_first_patch(make_tree, tmp_path):
    broken = {**SOURCE, "vllm_omni/door.py": b"", "vllm_omni/house/window.py": b""}
    error = refused(make_tree(broken), tmp_path / "series")
    assert {row.rewrite for row in error.unmatched} == {"Enter", "Leave", "Look"}


# The command


def test_command_writes_the_series_and_says_what_it_applies_to(make_tree, tmp_path, capsys):
    code = cli.run(["migrate", str(make_tree(SOURCE)), "--series", str(tmp_path / "series"), "--json", "-"])
    caught = capsys.readouterr()
    assert code == 0
    assert re.search(r'"base": "[0-9a-f]{40}"', caught.out)
    assert re.search(r"Let doors greet +1 +\+1 -1\n", caught.err)
    assert "git rev-parse HEAD:vllm_omni" in caught.err


@pytest.mark.parametrize("more", [["--out", "x"], ["--diff", "x"], ["--wheel"]])
def test_command_takes_series_instead_of_what_a_tree_needs(make_tree, tmp_path, capsys, more):
    assert cli.run(["migrate", str(make_tree(SOURCE)), "--series", str(tmp_path / "series"), *more]) == 2
    assert "or --series alone" in capsys.readouterr().err
    assert not (tmp_path / "series").exists()


def test_command_refuses_in_words(make_tree, tmp_path, capsys):
    source = make_tree(SOURCE)
    assert cli.run(["migrate", str(source), "--series", str(source)]) == 2
    assert "--series is not empty" in capsys.readouterr().err
