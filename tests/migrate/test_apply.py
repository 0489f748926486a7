# SPDX-License-Identifier: Apache-2.0
"""A migrated tree is written whole or not at all, and destroys nothing."""

import errno
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from synthetic_tree import FILES, WHEEL_FILES, contents

from vllm_omni_errors.migrate import apply, manifest, migrate
from vllm_omni_errors.migrate.source import MigrationError, open_directory

pytestmark = pytest.mark.usefixtures("own_rewrites")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "results" / "out"


def refused(*arguments, **options):
    with pytest.raises(MigrationError) as caught:
        migrate(*arguments, **options)
    return caught.value


def leftovers(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} if directory.exists() else set()


# What is written


def test_unchanged_files_are_byte_identical(make_tree, out):
    tree = make_tree({**FILES, "README.md": b"\r\n\xff", "empty": b""})
    result = migrate(str(tree), out)
    before, after = contents(tree), contents(out)
    changed = {"vllm_omni/door.py", "vllm_omni/house/window.py"}
    assert set(after) == {*before, manifest.PATH}
    assert {path for path in before if before[path] != after[path]} == changed
    assert [file.path for file in result.files] == [*sorted(changed), manifest.PATH]
    assert result.unchanged == len(before) - len(changed)
    assert leftovers(out.parent) == {"out"}


def test_source_is_never_changed(make_tree, out):
    tree = make_tree()
    migrate(str(tree), out)
    assert contents(tree) == dict(FILES)


def test_wheel_is_unpacked_as_it_is(make_wheel, out):
    migrate(str(make_wheel()), out)
    after = contents(out)
    changed = {"vllm_omni/door.py", "vllm_omni/house/window.py"}
    assert {path for path, content in WHEEL_FILES.items() if after[path] != content} == changed


def test_permissions_and_symbolic_links_are_kept(make_tree, out):
    tree = make_tree()
    (tree / "vllm_omni/house/odd.bin").chmod(0o750)
    (tree / "vllm_omni/house/window.py").chmod(0o755)
    (tree / "door").symlink_to("vllm_omni/door.py")
    (tree / "nowhere").symlink_to("gone")
    migrate(str(tree), out)
    umask = os.umask(0)
    os.umask(umask)
    for name, mode in (("odd.bin", 0o750), ("window.py", 0o755)):
        assert stat.S_IMODE((out / "vllm_omni/house" / name).stat().st_mode) == mode & ~umask
    assert os.readlink(out / "door") == "vllm_omni/door.py"
    assert b"greet" in (out / "door").read_bytes()
    assert os.readlink(out / "nowhere") == "gone"


@pytest.mark.parametrize("command", [["git", "apply"], ["patch", "-s", "-p1", "-i"]])
@pytest.mark.parametrize("phase", ["bridge", None])
def test_diff_makes_the_output_of_the_source(make_tree, out, tmp_path, command, phase):
    tree = make_tree({**FILES, "vllm_omni/door.py": FILES["vllm_omni/door.py"].replace(b"\n", b"\r\n")})
    diff = tmp_path / "some" / "where.diff"
    migrate(str(tree), out, diff=diff, phase=phase)
    subprocess.run([*command, str(diff)], cwd=tree, check=True, timeout=60)
    assert contents(tree) == contents(out)


def test_diff_of_a_later_phase_applies_to_the_output_of_the_earlier(make_tree, tmp_path):
    first, second, diff = tmp_path / "first", tmp_path / "second", tmp_path / "x.diff"
    migrate(str(make_tree()), first, phase="bridge")
    migrate(str(first), second, diff=diff)
    subprocess.run(["git", "apply", str(diff)], cwd=first, check=True, timeout=60)
    assert contents(first) == contents(second)


def test_missing_anchor_writes_nothing(make_tree, out, tmp_path):
    tree = make_tree({**FILES, "vllm_omni/door.py": b""})
    error = refused(str(tree), out, diff=tmp_path / "x.diff")
    assert [row.rewrite for row in error.unmatched] == ["Enter", "Leave"]
    assert leftovers(tmp_path) == {"source"}


# Running again


def test_own_output_gives_the_same_tree(make_tree, out, tmp_path):
    migrate(str(make_tree()), out)
    diff = tmp_path / "x.diff"
    result = migrate(str(out), tmp_path / "again", diff=diff)
    assert (result.new_phases, result.files, result.rewrites) == ((), (), ())
    assert result.notes[0].startswith("Nothing to do")
    assert contents(tmp_path / "again") == contents(out)
    assert diff.read_bytes() == b""


def test_own_output_in_place_touches_no_file(make_tree, out):
    migrate(str(make_tree()), out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert migrate(str(out), out).new_phases == ()
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_untouched_output_is_replaced(make_tree, make_wheel, out):
    migrate(str(make_wheel()), out, phase="bridge", wheel=True)
    (out / "vllm_omni/__pycache__").mkdir()
    (out / "vllm_omni/__pycache__/door.pyc").write_bytes(b"x")
    migrate(str(make_tree({**FILES, "new": b""})), out)
    assert set(contents(out)) == {*FILES, "new", manifest.PATH}
    assert leftovers(out.parent) == {"out"}


@pytest.mark.parametrize(
    "harm",
    [
        lambda out: (out / "vllm_omni/door.py").write_text("mine"),
        lambda out: (out / "vllm_omni/__init__.py").write_text("mine"),
        lambda out: (out / "mine.txt").write_text("mine"),
        lambda out: shutil.copytree(out / "vllm_omni", out / ".git"),
        lambda out: (out / "link").symlink_to("vllm_omni"),
        lambda out: (out / "vllm_omni/__init__.py").unlink(),
    ],
)
def test_output_that_holds_the_users_work_is_not_replaced(make_tree, out, harm):
    tree = str(make_tree())
    migrate(tree, out)
    harm(out)
    before = contents(out)
    error = refused(tree, out)
    assert "edited, added or removed" in error.reason
    assert contents(out) == before
    assert leftovers(out.parent) == {"out"}


def test_foreign_directory_is_not_replaced(make_tree, out):
    out.mkdir(parents=True)
    (out / "thesis.txt").write_text("years of work")
    error = refused(str(make_tree()), out)
    assert "was not written by omni-errors migrate" in error.reason
    assert leftovers(out) == {"thesis.txt"}


def test_empty_directory_is_used(make_tree, out):
    out.mkdir(parents=True)
    migrate(str(make_tree()), out)
    assert (out / manifest.PATH).is_file()


# Places that cannot be


def test_places_that_would_destroy_or_grow_into_something_are_refused(make_tree, make_wheel, tmp_path, monkeypatch):
    tree = make_tree()
    wheel = make_wheel()
    file = tmp_path / "file"
    file.write_text("x")
    away = tmp_path / "away"
    away.mkdir()
    monkeypatch.chdir(away)
    ok = tmp_path / "ok"
    for source, out, diff, reason in [
        (tree, tree, None, "--out lies inside of the source"),
        (tree, tree / "build" / "out", None, "--out lies inside of the source"),
        (tree, tmp_path, None, "the source lies inside of --out"),
        (wheel, wheel.parent, None, "the source lies inside of --out"),
        (tree, away, None, "--out is the current directory or holds it"),
        (tree, file, None, "--out exists and is not a directory"),
        (tree, file / "out", None, "cannot write"),
        (tree, ok, ok / "x.diff", "--diff lies inside of --out"),
        (tree, ok, away, "--diff is a directory"),
        (tree, ok, file / "x.diff", "cannot write"),
    ]:
        error = refused(str(source), out, diff=diff)
        assert reason in error.reason
        assert error.next_step
        assert leftovers(tmp_path) == {"source", "wheels", "file", "away"}
        assert contents(tree) == dict(FILES)


def test_package_given_directly_may_lie_beside_the_output(make_tree):
    tree = make_tree()
    migrate(str(tree / "vllm_omni"), tree / "out")
    assert set(contents(tree / "out")) == {*FILES, manifest.PATH}


def test_out_that_is_a_symbolic_link_is_followed(make_tree, out, tmp_path):
    out.parent.mkdir()
    out.symlink_to(tmp_path / "real")
    migrate(str(make_tree()), out)
    assert out.is_symlink()
    assert (tmp_path / "real" / manifest.PATH).is_file()


def test_place_without_permission_is_named(make_tree):
    error = refused(str(make_tree()), Path("/proc/out"))
    assert error.subject == "/proc/out"
    assert "cannot write" in error.reason
    assert error.next_step


def test_pipes_and_symbolic_links_are_written_to_and_not_replaced(make_tree, out, tmp_path):
    """Never tried on a real device: a defect would replace it."""
    pipe, link, target = (tmp_path / name for name in ("pipe", "link", "target"))
    target.touch()
    link.symlink_to(target)
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    for place in (pipe, link):
        migrate(str(make_tree()), out, diff=place)
    reader.join(30)
    assert received == [target.read_bytes()]
    assert received[0].startswith(b"diff --git")
    assert pipe.is_fifo()
    assert link.is_symlink()


# Whole or not at all


def fails_at(number: int, error: BaseException):
    calls = 0

    def write(path, content, mode, real=apply._write):
        nonlocal calls
        calls += 1
        if calls == number:
            raise error
        real(path, content, mode)

    return write


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(143), OSError(errno.ENOSPC, "No space left on device")]
)
@pytest.mark.parametrize("number", [1, 3, 5])
@pytest.mark.parametrize("existing", [False, True])
def test_interrupted_run_leaves_what_was_there(make_tree, out, tmp_path, monkeypatch, error, number, existing):
    tree = str(make_tree())
    if existing:
        migrate(tree, out, phase="bridge")
    before = contents(out)
    monkeypatch.setattr(apply, "_write", fails_at(number, error))
    with pytest.raises(MigrationError if isinstance(error, OSError) else type(error)) as caught:
        migrate(tree, out, diff=tmp_path / "x.diff")
    assert contents(out) == before
    assert leftovers(tmp_path) == ({"source", "results"} if existing else {"source"})
    assert leftovers(out.parent) == ({"out"} if existing else set())
    if isinstance(error, OSError):
        assert "No space left on device; nothing was changed" in str(caught.value)
        assert "Free some space" in str(caught.value)


def test_failure_between_the_two_renames_brings_the_old_output_back(make_tree, out, monkeypatch):
    tree = str(make_tree())
    migrate(tree, out, phase="bridge")
    before = contents(out)
    real = Path.rename

    def rename(self, target):
        if self.name.endswith(".partial"):
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        migrate(tree, out)
    assert contents(out) == before
    assert leftovers(out.parent) == {"out"}


def test_file_limit_of_the_system_leaves_nothing(make_tree, out, tmp_path):
    tree = make_tree({**FILES, "vllm_omni/large.bin": bytes(200_000)})
    program = "import sys; from vllm_omni_errors.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, "migrate", str(tree / "vllm_omni"), "--out", str(out)],  # no half .pyc
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert leftovers(tmp_path) == {"source"}


def test_file_of_the_source_that_disappears_in_the_middle_is_named(make_tree, out, tmp_path):
    tree = make_tree()

    def progress(step, done, total):
        if step == "write":
            (tree / "vllm_omni/house/odd.bin").unlink(missing_ok=True)

    error = refused(str(tree), out, progress=progress)
    assert "vllm_omni/house/odd.bin disappeared" in error.reason
    assert leftovers(tmp_path) == {"source"}


# Two at once


def test_two_runs_at_once_both_succeed_and_one_output_stands(make_tree, out):
    tree = str(make_tree())
    barrier = threading.Barrier(2, timeout=60)
    failures = []

    def run(phase):
        waited = False

        def progress(step, done, total):
            nonlocal waited
            if step == "write" and done == total and not waited:
                waited = True
                barrier.wait()

        try:
            migrate(tree, out, phase=phase, progress=progress)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(phase,)) for phase in ("bridge", "requests")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert leftovers(out.parent) == {"out"}
    assert migrate(str(out), out, phase="bridge").phases in {("bridge",), ("bridge", "requests")}


def test_directory_that_stays_locked_is_an_error(make_tree, out, monkeypatch):
    monkeypatch.setattr(apply, "LOCK_DEADLINE_S", 0.1)
    out.parent.mkdir()
    with apply._turn(out.parent):
        assert "another run" in refused(str(make_tree()), out).reason
    assert leftovers(out.parent) == set()


def test_something_that_appears_at_out_meanwhile_is_not_overwritten(make_tree, out):
    def progress(step, done, total):
        if step == "write" and done == total:
            out.mkdir(exist_ok=True)
            (out / "thesis.txt").write_text("years of work")

    assert "was not written by" in refused(str(make_tree()), out, progress=progress).reason
    assert leftovers(out) == {"thesis.txt"}
    assert leftovers(out.parent) == {"out"}


def test_digest_does_not_depend_on_order(make_tree):
    source = open_directory(make_tree(), "x")
    assert manifest.tree_digest(source.entries, source.read) == manifest.tree_digest(source.entries[::-1], source.read)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_leaves_nothing(tmp_path, make_tree, number, code):
    tree = make_tree()
    program = (
        "import sys, time; from vllm_omni_errors import cli; from vllm_omni_errors.migrate import apply, rewrites\n"
        "rewrites.ALL = ()\n"
        "def write(*_):\n    print('writing', flush=True); time.sleep(60)\n"
        "apply._write = write; cli.main()"
    )
    command = [sys.executable, "-c", program, "migrate", str(tree), "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert any(name.endswith(".partial") for name in leftovers(tmp_path))
        process.send_signal(number)
        assert process.wait(30) == code
    assert leftovers(tmp_path) == {"source"}


def test_ctrl_c_while_files_are_rewritten_ends_all_processes_and_leaves_nothing(tmp_path, make_tree):
    tree = make_tree()
    program = (
        "import time; from synthetic_tree import Enter; from vllm_omni_errors import cli\n"
        "from vllm_omni_errors.migrate import rewrites\n"
        "class Slow(Enter):\n"
        "    'Slow.'\n"
        "    def visit_Module(self, node):\n        print('rewriting', flush=True); time.sleep(600)\n"
        "rewrites.ALL = (Slow,)\n"
        "cli.main()"
    )
    command = [sys.executable, "-c", program, "migrate", str(tree), "--out", str(tmp_path / "out")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "rewriting\n"
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == ("", "\nomni-errors: interrupted; nothing half-written is left.\n")
    assert leftovers(tmp_path) == {"source"}
