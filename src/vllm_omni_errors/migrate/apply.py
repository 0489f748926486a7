# SPDX-License-Identifier: Apache-2.0
"""Write a migrated tree: whole or not at all."""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from vllm_omni_errors.migrate import manifest as manifests
from vllm_omni_errors.migrate.plan import Plan, Progress
from vllm_omni_errors.migrate.source import MigrationError, Source, walk

OUR_WHEEL_PATTERN = re.compile(r"vllm_omni-[^/]*errors\.\d+-[^/]*\.whl")
LOCK_DEADLINE_S = 30.0
LOCK_PAUSE_S = 0.05
ELSEWHERE = "Choose another --out."
NEXT_STEPS = {
    errno.ENOSPC: "Free some space, or choose a place on another disk.",
    errno.EDQUOT: "Free some space, or choose a place on another disk.",
    errno.EBUSY: "Name a directory inside of it.",
}


def check_out(source: Source, out: Path, diff: Path | None) -> None:
    """Refuse a place to write to that would destroy something, or grow into the source. `out` is resolved.

    Raises MigrationError.
    """
    if source.location is not None:
        if out.is_relative_to(source.location):
            raise MigrationError(str(out), "--out lies inside of the source", "Choose a directory beside it.")
        if source.location.is_relative_to(out):
            raise MigrationError(str(out), "the source lies inside of --out", "Choose a directory beside it.")
    if Path.cwd().is_relative_to(out):
        raise MigrationError(str(out), "--out is the current directory or holds it", "Name a directory inside of it.")
    if diff is not None:
        if diff.resolve().is_relative_to(out):
            raise MigrationError(
                str(diff), "--diff lies inside of --out, which is replaced as a whole", "Choose a file beside --out."
            )
        if diff.is_dir():
            raise MigrationError(str(diff), "--diff is a directory", "Name a file.")
    refuse_foreign(out)


def refuse_foreign(out: Path) -> None:
    """Raise MigrationError if `out` holds anything that is not exactly the output of an earlier run."""
    if not out.exists() and not out.is_symlink():
        return
    if not out.is_dir():
        raise MigrationError(str(out), "--out exists and is not a directory", ELSEWHERE)
    try:
        names = sorted(os.listdir(out))
        if not names:
            return
        if not (out / manifests.PATH).is_file():
            raise MigrationError(
                str(out), "--out exists and was not written by omni-errors migrate", f"{ELSEWHERE[:-1]}, or remove it."
            )
        manifest = manifests.load((out / manifests.PATH).read_bytes(), str(out))
        ours = [name for name in names if not OUR_WHEEL_PATTERN.fullmatch(name)]
        entries = tuple(entry for name in ours for entry in walk(out, name, frozenset({"__pycache__"})))
        same = manifests.tree_digest(entries, lambda path: (out / path).read_bytes()) == manifest.tree_sha256
    except OSError as error:
        raise _cannot_write(out, error) from None
    if not same:
        raise MigrationError(
            str(out),
            "--out was written by omni-errors migrate, but files in it were edited, added or removed since",
            "Keep what you need and remove it, or choose another --out.",
        )


@contextlib.contextmanager
def staged(out: Path, refuse: Callable[[Path], None] = refuse_foreign, elsewhere: str = ELSEWHERE) -> Iterator[Path]:
    """A new directory beside `out`, which takes its place if the block ends well, and is gone if it does not.

    What stood at `out` is checked again (by `refuse`) and replaced in one step; two runs at once take turns.
    Raises MigrationError if it cannot be written, whatever the reason.
    """
    parents: list[Path] = []
    staging = out.with_name(f".{out.name}.{secrets.token_hex(4)}.partial")
    try:
        parents = _make_parents(out)
        staging.mkdir()
        yield staging
        _swap(staging, out, refuse)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        _remove_empty(parents)
        if isinstance(error, OSError):
            raise _cannot_write(out, error, elsewhere) from None
        raise


def _make_parents(out: Path) -> list[Path]:
    missing = [parent for parent in out.parents if not parent.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        _remove_empty(missing)
        raise
    return missing


def _remove_empty(directories: list[Path]) -> None:
    for directory in directories:
        with contextlib.suppress(OSError):
            directory.rmdir()


def _swap(staging: Path, out: Path, refuse: Callable[[Path], None]) -> None:
    previous = out.with_name(f".{out.name}.{secrets.token_hex(4)}.previous")
    with _turn(out.parent):
        refuse(out)
        if not out.exists():
            staging.rename(out)
            return
        out.rename(previous)
        try:
            staging.rename(out)
        except BaseException:
            previous.rename(out)
            raise
    try:
        shutil.rmtree(previous, ignore_errors=True)
    except BaseException:
        shutil.rmtree(previous, ignore_errors=True)
        raise


@contextlib.contextmanager
def _turn(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        deadline = time.monotonic() + LOCK_DEADLINE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise MigrationError(
                        str(directory), "another run holds this directory", "Wait for it to end, and run it again."
                    ) from None
                time.sleep(LOCK_PAUSE_S)
            except OSError:
                break  # a file system without locks: each rename is still atomic
        yield
    finally:
        os.close(descriptor)


def _cannot_write(out: Path, error: OSError, next_step: str = ELSEWHERE) -> MigrationError:
    place = f" {error.filename}" if error.filename and Path(str(error.filename)).name != out.name else ""
    return MigrationError(
        str(out),
        f"cannot write{place}: {error.strerror or error}; nothing was changed",
        NEXT_STEPS.get(error.errno or 0, next_step),
    )


def write_tree(source: Source, plan: Plan, directory: Path, progress: Progress | None = None) -> int:
    """Write every file of the source into an empty directory, changed as planned. Returns the number of files.

    Symbolic links are kept as links. Raises MigrationError for the source's side, OSError for the directory's.
    """
    changed = plan.changed
    new = [change for change in plan.changes if change.before is None]
    total = len(source.entries) + len(new)
    made: set[Path] = set()
    for done, entry in enumerate(source.entries):
        if progress and done % 50 == 0:
            progress("write", done, total)
        target = _target(directory, entry.path, made)
        if entry.link is not None:
            target.symlink_to(entry.link)
            continue
        change = changed.get(entry.path)
        _write(target, change.after if change else source.read(entry.path), entry.mode)
    for change in new:
        _write(_target(directory, change.path, made), change.after, change.mode)
    if progress:
        progress("write", total, total)
    return total


def _target(directory: Path, path: str, made: set[Path]) -> Path:
    target = directory / path
    if target.parent not in made:
        target.parent.mkdir(parents=True, exist_ok=True)
        made.add(target.parent)
    return target


def _write(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        file.write(content)


@contextlib.contextmanager
def staged_file(path: Path, content: bytes) -> Iterator[None]:
    """Write a file that takes its place if the block ends well, and is gone if it does not.

    Devices, pipes and symbolic links (``/dev/stdout``) are written to at the end, never replaced.
    Raises MigrationError.
    """
    replaceable = not path.is_symlink() and (path.is_file() or not path.exists())
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    parents: list[Path] = []
    try:
        if replaceable:
            parents = _make_parents(path)
            partial.write_bytes(content)
        yield
        if replaceable:
            partial.replace(path)
        else:
            path.write_bytes(content)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        _remove_empty(parents)
        if isinstance(error, OSError):
            raise _cannot_write(path, error, "Choose another --diff.") from None
        raise
