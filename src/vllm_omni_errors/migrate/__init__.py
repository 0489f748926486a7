# SPDX-License-Identifier: Apache-2.0
"""Migrate a stock vLLM-Omni: a changed tree, a diff, a wheel. `omni-errors migrate` is this function."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["FileChange", "Result", "RewriteRow", "migrate"]


@dataclass(frozen=True, slots=True)
class FileChange:
    """A changed or new file, with its numbers of added and removed lines."""

    path: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class RewriteRow:
    """A rewrite that was applied: what, where, in how many places, and why."""

    rewrite: str
    phase: str
    path: str
    function: str | None
    places: int
    why: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a migration did.

    Attributes:
        source: what was migrated, as the user named it.
        version: version of the stock vLLM-Omni, None if unknown.
        out: directory that holds the migrated tree; as the other paths, absolute.
        wheel: the wheel in it, if one was built.
        diff: the unified diff, if one was asked for.
        phases: phases that the tree has.
        new_phases: those that this run applied; empty if there was nothing to do.
        files: changed and new files, the manifest last.
        unchanged: number of files that are byte for byte those of the source.
        rewrites: what was applied, in order.
        notes: sentences that a user should read.
    """

    source: str
    version: str | None
    out: Path
    wheel: Path | None
    diff: Path | None
    phases: tuple[str, ...]
    new_phases: tuple[str, ...]
    files: tuple[FileChange, ...]
    unchanged: int
    rewrites: tuple[RewriteRow, ...]
    notes: tuple[str, ...]

    @property
    def added(self) -> int:
        """Added lines of all files."""
        return sum(file.added for file in self.files)

    @property
    def removed(self) -> int:
        """Removed lines of all files."""
        return sum(file.removed for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """The same as plain objects, for `json.dumps`."""
        return {
            "source": self.source,
            "version": self.version,
            "out": str(self.out),
            "wheel": str(self.wheel) if self.wheel else None,
            "diff": str(self.diff) if self.diff else None,
            "phases": list(self.phases),
            "new_phases": list(self.new_phases),
            "rewrites": [asdict(row) for row in self.rewrites],
            "files": [asdict(file) for file in self.files],
            "totals": {
                "files": len(self.files),
                "unchanged": self.unchanged,
                "rewrites": len(self.rewrites),
                "places": sum(row.places for row in self.rewrites),
                "added": self.added,
                "removed": self.removed,
            },
            "notes": list(self.notes),
        }


def migrate(
    source: str,
    out: Path,
    *,
    phase: str | None = None,
    diff: Path | None = None,
    wheel: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Result:
    """Write a migrated copy of a vLLM-Omni to the directory `out`; the source is never changed.

    Args:
        source: a checkout, an installed or unpacked distribution, a wheel file, or a requirement such as
            ``vllm-omni==0.30.0``, which pip downloads.
        out: made whole or not at all; replaced if it is the untouched output of an earlier run, refused otherwise.
        phase: last phase to apply; all of them if None.
        diff: file for a unified diff that applies to the source with ``git apply`` or ``patch -p1``.
        wheel: whether to put a wheel into `out` too.
        progress: called as ``progress(step, done, total)``.

    Raises `vllm_omni_errors.migrate.source.MigrationError`, with nothing written, if it cannot be done, and
    ModuleNotFoundError if the extra ``[tools]`` is not installed.
    """
    from vllm_omni_errors.migrate.apply import check_out, staged, staged_file, write_tree
    from vllm_omni_errors.migrate.plan import make_plan
    from vllm_omni_errors.migrate.source import open_source
    from vllm_omni_errors.migrate.wheel import build_wheel, check_source

    out = out.resolve()
    if progress:
        progress("read", 0, 1)
    with open_source(source) as opened:
        if progress:
            progress("read", 1, 1)
        if wheel:
            check_source(opened)
        in_place = opened.location == out
        if not in_place:
            check_out(opened, out, diff)
        plan = make_plan(opened, phase=phase, progress=progress)
        if in_place and (plan.new_phases or diff or wheel):
            check_out(opened, out, diff)
        if progress and wheel:
            progress("wheel", 0, 1)
        built = build_wheel(opened, plan) if wheel else None
        if progress and wheel:
            progress("wheel", 1, 1)
        if not in_place:
            patch = b"".join(change.diff for change in plan.changes)
            with staged_file(diff, patch) if diff else nullcontext(), staged(out) as directory:
                write_tree(opened, plan, directory, progress)
                if built:
                    (directory / built.name).write_bytes(built.content)
        changed = {change.path for change in plan.changes if change.before is not None}
        return Result(
            source=source,
            version=plan.version,
            out=out,
            wheel=out / built.name if built else None,
            diff=diff.resolve() if diff else None,
            phases=plan.phases,
            new_phases=plan.new_phases,
            files=tuple(FileChange(change.path, change.added, change.removed) for change in plan.changes),
            unchanged=len(opened.entries) - len(changed),
            rewrites=tuple(
                RewriteRow(row.rewrite, row.phase, row.path, row.function, row.places, plan.reasons[row.rewrite])
                for row in plan.rewrites
            ),
            notes=plan.notes,
        )
