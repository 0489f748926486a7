# SPDX-License-Identifier: Apache-2.0
"""A migration as a series of patches for ``git am``: made by git, one for each part of the tree that is reviewed."""

import os
import subprocess
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from vllm_omni_errors.migrate import manifest, rewrites
from vllm_omni_errors.migrate.apply import staged, write_tree
from vllm_omni_errors.migrate.bundled import bundled
from vllm_omni_errors.migrate.complete import incomplete, open_entries
from vllm_omni_errors.migrate.patches import PATCHES, VENDOR_SUBJECT, VENDOR_WHY, Patch
from vllm_omni_errors.migrate.plan import Plan, Progress, make_plan, phases_up_to, remove_notice
from vllm_omni_errors.migrate.rewrite import Rewrite
from vllm_omni_errors.migrate.rewrites.decided import DecidedSites
from vllm_omni_errors.migrate.source import PACKAGE, MigrationError, Source, open_source
from vllm_omni_errors.migrate.vendor import (
    FOLDER,
    MOVED,
    TESTS,
    TESTS_FOLDER,
    library_files,
    vendored,
)

GIT_DEADLINE_S = 300
COLUMNS = 72
KEPT_VARIABLES = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG_", "GIT_EXEC_PATH")
# what a user's own configuration may not change, so that `git am` takes the patches and every byte arrives
SETTINGS = (
    "color.ui=false",
    "commit.gpgSign=false",
    "core.attributesFile=/dev/null",
    "core.autocrlf=false",
    "core.hooksPath=/dev/null",
    "diff.noprefix=false",
    "format.noprefix=false",
    "format.useAutoBase=false",
    "i18n.commitEncoding=utf-8",
    "log.showSignature=false",
)


@dataclass(frozen=True, slots=True)
class PatchFile:
    """A patch as it was written: its file name, first line, and numbers of files and of added and removed lines."""

    name: str
    subject: str
    files: int
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class Series:
    """What was written.

    Attributes:
        source: what was migrated, as the user named it.
        version: version of the stock vLLM-Omni, None if unknown.
        directory: where the patches are, named so that ``*.patch`` is their order.
        base: git's hash of the ``vllm_omni`` folder that the first patch applies to (``git rev-parse HEAD:vllm_omni``).
        result: the same after the last one.
    """

    source: str
    version: str | None
    directory: Path
    base: str
    result: str
    patches: tuple[PatchFile, ...]

    def to_json(self) -> dict[str, Any]:
        """The same as plain objects, for `json.dumps`."""
        return asdict(self) | {"directory": str(self.directory)}


def write_series(source: str, directory: Path, *, phase: str | None = None, progress: Progress | None = None) -> Series:
    """Write a migration as patches that apply in order with ``git am``; the first vendors the library.

    The tree that they make is that of `migrate`, except that it imports the library from ``vllm_omni.errors``, and
    has neither our notices nor our manifest: history says who changed what.

    Args:
        source: the stock vLLM-Omni, as for `migrate`.
        directory: made whole or not at all; one that holds anything is refused.
        phase: last phase to apply; all of them if None.
        progress: called as ``progress(step, done, total)``.

    Author, committer, date and sign-off (``format.signOff``) are those of git's own configuration and environment.

    Raises MigrationError, with nothing written, if it cannot be done.
    """
    directory = directory.resolve()
    refuse_filled(directory)
    patches = chosen_patches(phase)
    steps = len(patches) + 1
    if progress:
        progress("patch", 0, steps)
    with open_source(source) as opened, tempfile.TemporaryDirectory(prefix="omni-errors-") as temporary:
        repository = _Repository(Path(temporary))
        _refuse_unfit(opened)
        if "finalize" in phases_up_to(phase) and (undecided := open_entries(opened)):
            raise incomplete(opened, undecided)
        base = repository.begin(opened)
        for done, (subject, body, files, removed) in enumerate(_commits(opened, patches), 1):
            repository.commit(f"{subject}\n\n{body}", files, removed)
            if progress:
                progress("patch", done, steps)
        with staged(directory, refuse_filled, "Choose another --series.") as staging:
            written = repository.write_patches(staging)
        return Series(source, opened.version, directory, base, repository.tree(), written)


def refuse_filled(directory: Path) -> None:
    """Raise MigrationError if `directory` (resolved) is anything but absent or an empty directory."""
    if Path.cwd().is_relative_to(directory):
        raise MigrationError(
            str(directory), "--series is the current directory or holds it", "Name a directory inside of it."
        )
    try:
        filled = directory.exists() and next(directory.iterdir(), None) is not None
    except OSError as error:
        raise MigrationError(
            str(directory), f"--series cannot be used: {error.strerror}", "Choose another --series."
        ) from None
    if filled:
        raise MigrationError(
            str(directory),
            "--series is not empty, and patches of two runs must not mix",
            "Empty it, or choose another.",
        )


def _refuse_unfit(source: Source) -> None:
    stock = "Give the stock one."
    if source.entry(manifest.PATH) is not None:
        raise MigrationError(source.label, "it is migrated already, and a series begins with the stock one", stock)
    for folder in (FOLDER, TESTS_FOLDER):
        if found := next((entry.path for entry in source.entries if entry.path.startswith(f"{folder}/")), None):
            raise MigrationError(source.label, f"it has {found}, where the series puts the library", stock)


# What each patch holds


def rewrites_of(patch: Patch) -> tuple[type[Rewrite], ...]:
    """The rewrites of a patch, in their order."""
    area = next(area for area in rewrites.AREAS if area.name == patch.area)
    mine = [other for other in PATCHES if other.area == patch.area]
    return tuple(r for r in area.rewrites if next(other for other in mine if _fits(other, r)) is patch)


def _fits(patch: Patch, rewrite: type[Rewrite]) -> bool:
    return any(fnmatchcase(rewrite.module, pattern) for pattern in patch.paths)


def chosen_patches(phase: str | None) -> tuple[Patch, ...]:
    """The patches of all phases up to `phase`. Raises MigrationError if there is no such phase."""
    phases = phases_up_to(phase)
    areas = {area.name for area in rewrites.AREAS if area.phase in phases}
    return tuple(patch for patch in PATCHES if patch.area in areas)


def _commits(source: Source, patches: Sequence[Patch]) -> Iterator[tuple[str, str, dict[str, str], list[str]]]:
    """Subject and body of each patch, the files that it writes, and those that it removes."""
    files = library_files()
    moved = {new: source.read(old).decode("utf-8") for old, new in MOVED.items() if source.entry(old)}
    removed = [old for old in MOVED if source.entry(old)]
    yield VENDOR_SUBJECT, vendor_message(), files | moved, removed
    for patch in patches:
        own = rewrites_of(patch)
        plan = _plan(source, own)
        changed = {
            change.path: remove_notice(change.after.decode("utf-8"))
            for change in plan.changes
            if change.path != manifest.PATH
        }
        source = _with(source, changed)
        yield (
            patch.subject,
            message(patch, own),
            vendored(changed),
            [],
        )


def _plan(source: Source, own: Sequence[type[Rewrite]]) -> Plan:
    try:
        return make_plan(source, rewrites=own)
    except MigrationError:
        make_plan(source)  # says everything that does not match, not only this patch's
        raise


def _with(source: Source, changed: dict[str, str]) -> Source:
    before = source.read

    def read(path: str) -> bytes:
        return changed[path].encode("utf-8") if path in changed else before(path)

    return replace(source, read=read)


# Messages


def vendor_message() -> str:
    """Body of the first patch's message."""
    tests = sum(Path(name).name.startswith("test_") for name in TESTS)
    return "\n\n".join(
        _wrapped(paragraph)
        for paragraph in (
            VENDOR_WHY,
            f"Made from vllm-omni-errors {manifest.library_version()}, whose imports are renamed.",
            f"Tests: {tests} modules in {TESTS_FOLDER}/, which need pytest, pytest-asyncio and what vLLM needs.",
        )
    )


def message(patch: Patch, own: Sequence[type[Rewrite]]) -> str:
    """Body of a patch's message: why, what, the statuses that change, the tests."""
    parts = [_wrapped(patch.why)]
    decided = Counter(row.decision for r in own if issubclass(r, DecidedSites) for row in r.rows)
    if decided:
        listed = ", ".join(f"{decision} {count}" for decision, count in decided.most_common())
        parts.append(_wrapped(f"Raise sites and error responses, each decided in its context: {listed}."))
    reasons = dict.fromkeys(" ".join((r.__doc__ or "").split()) for r in own if not issubclass(r, DecidedSites))
    if reasons:
        parts.append(f"In particular:\n\n{_listed(reasons)}")
    if patch.statuses:
        parts.append(f"Statuses that change:\n\n{_listed(map(_status, patch.statuses))}")
    tests = ", ".join(f"tests/rig/{name}" for name in patch.tests)
    parts.append(_wrapped(f"Tests: in vllm-omni-errors, on the real vLLM-Omni: {tests}."))
    return "\n\n".join(parts)


def _status(name: str) -> str:
    text = (bundled("newsfragments") / f"+{name}.status-change.md").read_text(encoding="utf-8")
    return " ".join(text.replace("**", "").split())


def _wrapped(text: str, bullet: str = "") -> str:
    return textwrap.fill(
        text,
        COLUMNS,
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _listed(texts: Iterable[str]) -> str:
    return "\n".join(_wrapped(text, "- ") for text in texts)


# Git


class _Repository:
    """A repository of our own, in an empty directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("GIT_") or name.startswith(KEPT_VARIABLES)
        }
        self._stock = ""
        self._git("init", "--quiet")
        for identity in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
            self._git("var", identity)

    def begin(self, source: Source) -> str:
        """Commit the source's package; returns the hash of its folder."""
        package = tuple(entry for entry in source.entries if entry.path.startswith(f"{PACKAGE}/"))
        write_tree(replace(source, entries=package), Plan(source.version, (), (), (), (), {}), self._directory)
        self._commit("Stock vLLM-Omni", PACKAGE)
        self._stock = self._git("rev-parse", "HEAD").strip()
        return self.tree()

    def tree(self) -> str:
        """Git's hash of the package's folder."""
        return self._git("rev-parse", f"HEAD:{PACKAGE}").strip()

    def commit(self, message: str, files: dict[str, str], removed: Sequence[str]) -> None:
        """Commit files with these contents, which keep their modes, and without the removed ones."""
        for path, text in files.items():
            target = self._directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode("utf-8"))
        for path in removed:
            (self._directory / path).unlink()
        self._commit(message, *files, *removed)

    def _commit(self, message: str, *paths: str) -> None:
        self._git("add", "--force", "--all", "--", *paths)
        self._git("commit", "--quiet", "--no-verify", "--cleanup=verbatim", "--file=-", stdin=message)

    def write_patches(self, directory: Path) -> tuple[PatchFile, ...]:
        """Write every commit but the first as a patch."""
        options = (
            "--zero-commit",
            "--no-signature",
            "--full-index",
            "--no-ext-diff",
            "--no-attach",
            "--suffix=.patch",
            "--numbered",
        )
        names = self._git("format-patch", *options, "--no-cover-letter", f"--output-directory={directory}", self._stock)
        subjects = self._git("log", "--reverse", "--format=%s", f"{self._stock}..").splitlines()
        numbers = self._git("log", "--reverse", "--format=%x00", "--numstat", f"{self._stock}..").split("\0")[1:]
        return tuple(
            PatchFile(Path(name).name, subject, *_totals(rows))
            for name, subject, rows in zip(names.splitlines(), subjects, numbers, strict=True)
        )

    def _git(self, command: str, *arguments: str, stdin: str = "") -> str:
        settings = [part for setting in SETTINGS for part in ("-c", setting)]
        try:
            done = subprocess.run(
                ["git", *settings, command, *arguments],
                cwd=self._directory,
                env=self._environment,
                input=stdin,
                capture_output=True,
                encoding="utf-8",
                timeout=GIT_DEADLINE_S,
                check=False,
            )
        except FileNotFoundError:
            raise MigrationError("git", "it is not installed, and a series is made with it", "Install it.") from None
        except subprocess.TimeoutExpired:
            raise MigrationError("git", f"{command} did not end in {GIT_DEADLINE_S} s", "Run it again.") from None
        if done.returncode:
            raise MigrationError(
                f"git {command}", " ".join(done.stderr.split()).rstrip("."), "Make that work, and run it again."
            )
        return done.stdout


def _totals(rows: str) -> tuple[int, int, int]:
    lines = [line.split("\t") for line in rows.splitlines() if line]
    return len(lines), sum(int(added) for added, _, _ in lines), sum(int(removed) for _, removed, _ in lines)
