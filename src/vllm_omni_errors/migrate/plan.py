# SPDX-License-Identifier: Apache-2.0
"""The plan: every change of a migration, worked out and checked before anything is written."""

import io
import re
import tokenize
import traceback
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import libcst as cst

from vllm_omni_errors.audit.parallel import in_processes
from vllm_omni_errors.audit.read import without_collector
from vllm_omni_errors.migrate import manifest as manifests
from vllm_omni_errors.migrate import rewrites as catalogue
from vllm_omni_errors.migrate.complete import incomplete, open_entries
from vllm_omni_errors.migrate.diff import unified
from vllm_omni_errors.migrate.manifest import AppliedRewrite, ChangedFile, Manifest
from vllm_omni_errors.migrate.rewrite import PHASES, Mismatch, Phase, Rewrite, rewrite_module, tidy_where_clean
from vllm_omni_errors.migrate.source import PACKAGE, Matched, MigrationError, Source, Unmatched

Progress = Callable[[str, int, int], None]
"""Called as ``progress(step, done, total)``; steps are "read", "rewrite", "wheel" and "write"."""

KNOWN_VERSIONS = ("0.30.0",)

NOTICE = "# This file was changed by vllm-omni-errors {version}: it is not vLLM-Omni's original.\n# Phases: {phases}.\n"
NOTICE_PATTERN = re.compile(r"^# This file was changed by vllm-omni-errors [^\n]*\n# Phases: [^\n]*\n", re.MULTILINE)
LICENCE_PATTERN = re.compile(r"SPDX-|copyright|licen[cs]e", re.IGNORECASE)
FIRST_LINES_PATTERN = re.compile(r"#!|#.*coding[:=]")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Change:
    """A file that comes out different. `before` is None for a new file; `diff` is its unified diff."""

    path: str
    before: bytes | None
    after: bytes
    mode: int
    diff: bytes
    added: int
    removed: int


@dataclass(frozen=True)
class Plan:
    """What a migration will write.

    Attributes:
        version: version of the stock vLLM-Omni, None if unknown.
        phases: phases that the result has.
        new_phases: those of them that the source did not have; empty if there is nothing to do.
        changes: changed files in order of their paths, the manifest last.
        rewrites: rewrites that were applied by this run.
        reasons: by the name of a rewrite, why it is made.
        notes: sentences that the user should read.
    """

    version: str | None
    phases: tuple[str, ...]
    new_phases: tuple[str, ...]
    changes: tuple[Change, ...]
    rewrites: tuple[AppliedRewrite, ...]
    reasons: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> dict[str, Change]:
        """Changes by path."""
        return {change.path: change for change in self.changes}


@dataclass(frozen=True)
class _Module:
    """A module as it is, and decoded, without its byte order mark and without our notice."""

    content: bytes
    text: str
    mark: bytes


class _UnreadableError(Exception):
    """A module that cannot be rewritten; the message is the reason."""


def make_plan(
    source: Source,
    *,
    phase: str | None = None,
    rewrites: Sequence[type[Rewrite]] | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Apply the rewrites of all phases up to `phase` to the files that they name, in memory.

    `rewrites` is `rewrites.ALL` unless given; of others nothing is asked about the ledgers. A source that is migrated
    already gets only the phases that it lacks.

    Raises MigrationError if a phase is unknown, if any rewrite does not find its place (all of them are listed in its
    `unmatched`), or if the source is a migrated tree that was edited afterwards.
    """
    every = tuple(catalogue.ALL if rewrites is None else rewrites)
    wanted = phases_up_to(phase)
    earlier = _earlier(source, every)
    done = earlier.phases if earlier else ()
    missing = tuple(name for name in wanted if name not in done)
    version = earlier.source_version if earlier else source.version
    if earlier and not missing:
        return Plan(version, done, (), (), (), {}, (_nothing_to_do(done, wanted, earlier),))
    chosen = sorted((r for r in every if r.phase in missing), key=lambda r: PHASES.index(r.phase))
    changes, files = _rewrite_all(source, chosen, earlier, version, progress)
    undecided = _undecided(source, rewrites, earlier)
    if "finalize" in missing and undecided:
        raise incomplete(source, undecided)
    applied = tuple(AppliedRewrite(r.__name__, r.phase, _path(r), r.function, r.hits) for r in chosen)
    phases = tuple(name for name in PHASES if name in done or name in missing)
    changes.append(_manifest_change(source, earlier, version, phases, changes, files, applied, undecided))
    notes: tuple[str, ...] = ()
    if version not in KNOWN_VERSIONS:
        notes = (f"The rewrites are written for {_known()}; this is {_named(version)}, and every one found its place.",)
    reasons = {r.__name__: " ".join((r.__doc__ or "").split()) for r in chosen}
    return Plan(version, phases, missing, tuple(changes), applied, reasons, notes)


def phases_up_to(phase: str | None) -> tuple[str, ...]:
    """Names of the phases up to this one, all if None. Raises MigrationError if there is no such phase."""
    names: tuple[str, ...] = PHASES
    if phase is None:
        return names
    if phase not in names:
        raise MigrationError(f"--phase {phase}", "there is no such phase", f"The phases are {', '.join(names)}.")
    return names[: names.index(phase) + 1]


def _known() -> str:
    return f"vLLM-Omni {' and '.join(KNOWN_VERSIONS)}"


def _named(version: str | None) -> str:
    return f"vLLM-Omni {version}" if version else "a vLLM-Omni of unknown version"


def _path(rewrite: type[Rewrite]) -> str:
    return f"{PACKAGE}/{rewrite.module}"


# A source that is migrated already


def _earlier(source: Source, every: Sequence[type[Rewrite]]) -> Manifest | None:
    if source.entry(manifests.PATH) is None:
        return None
    from_stock = "Begin again from the stock vLLM-Omni."
    manifest = manifests.load(source.read(manifests.PATH), source.label)
    edited = []
    for file in manifest.files:
        entry = source.entry(file.path)
        if entry is None or entry.path != file.path or entry.link is not None:
            edited.append(f"{file.path} (missing)")
        elif manifests.sha256(source.read(file.path)) != file.sha256:
            edited.append(file.path)
    if edited:
        raise MigrationError(
            source.label, f"it was migrated before, and these files were edited since: {', '.join(edited)}", from_stock
        )
    mine = {(r.__name__, r.phase, _path(r)) for r in every if r.phase in manifest.phases}
    theirs = {(row.rewrite, row.phase, row.path) for row in manifest.rewrites}
    if mine != theirs or not set(manifest.phases) <= set(PHASES):
        raise MigrationError(
            source.label,
            f"it was migrated by vllm-omni-errors {manifest.library_version}, whose rewrites were not those of"
            f" {manifests.library_version()}",
            from_stock,
        )
    return manifest


def _nothing_to_do(done: Sequence[str], wanted: Sequence[str], earlier: Manifest) -> str:
    note = (
        f"Nothing to do: this vLLM-Omni was migrated by vllm-omni-errors {earlier.library_version}"
        f" (phases: {', '.join(done)})."
    )
    later = [name for name in done if name not in wanted]
    return note + (f" Later phases are not taken back: {', '.join(later)}." if later else "")


# Rewriting


def _rewrite_all(
    source: Source,
    chosen: Sequence[type[Rewrite]],
    earlier: Manifest | None,
    version: str | None,
    progress: Progress | None,
) -> tuple[list[Change], dict[str, ChangedFile]]:
    by_path: dict[str, list[type[Rewrite]]] = {}
    for rewrite in chosen:
        by_path.setdefault(_path(rewrite), []).append(rewrite)
    files = {file.path: file for file in earlier.files} if earlier else {}
    modules: dict[str, _Module] = {}
    texts: dict[str, str] = {}
    unmatched: dict[type[Rewrite], Unmatched] = {}
    for path, group in sorted(by_path.items()):
        try:
            modules[path] = _read(source, path)
        except _UnreadableError as error:
            unmatched |= {rewrite: _unmatched(rewrite, 0, str(error)) for rewrite in group}

    def work(path: str) -> str | dict[int, Unmatched]:
        return _rewrite(path, modules[path].text, by_path[path])

    with in_processes(work, list(modules)) as outcomes:
        for done, (path, outcome) in enumerate(zip(modules, outcomes, strict=True)):
            if progress:
                progress("rewrite", done, len(modules))
            if isinstance(outcome, str):
                texts[path] = outcome
            else:
                unmatched |= {by_path[path][position]: row for position, row in outcome.items()}
    if unmatched:
        raise _no_place(source, version, unmatched, chosen)
    tidied = tidy_where_clean([(module.text, texts[path]) for path, module in modules.items()])
    changes: list[Change] = []
    for (path, module), text in zip(modules.items(), tidied, strict=True):
        if text == module.text:
            continue
        phases = _file_phases(by_path[path], files.get(path))
        notice = NOTICE.format(version=manifests.library_version(), phases=", ".join(phases))
        after = module.mark + add_notice(text, notice).encode("utf-8")
        original = files[path].original_sha256 if path in files else manifests.sha256(module.content)
        files[path] = ChangedFile(path, manifests.sha256(after), original, phases)
        changes.append(_change(source, path, module.content, after))
    if progress:
        progress("rewrite", len(modules), len(modules))
    return changes, files


def _rewrite(path: str, text: str, group: Sequence[type[Rewrite]]) -> str | dict[int, Unmatched]:
    """The new text of a module, or else what did not match, by its position in the group."""
    try:
        with without_collector(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            changed, mismatches = _apply(text, group)
            if not mismatches:
                _compile(path, changed.encode("utf-8"))
                return changed
    except _UnreadableError as error:
        return {position: _unmatched(rewrite, 0, str(error)) for position, rewrite in enumerate(group)}
    return {group.index(miss.rewrite): _unmatched(miss.rewrite, miss.found, sites=miss.missing) for miss in mismatches}


def _read(source: Source, path: str) -> _Module:
    entry = source.entry(path)
    if entry is None:
        raise _UnreadableError("there is no such file")
    if entry.link is not None:
        raise _UnreadableError(
            f"{entry.path} is a symbolic link to {entry.link}, and what it leads to is not rewritten"
        )
    return _decode(source.read(path))


def _apply(text: str, group: Sequence[type[Rewrite]]) -> tuple[str, list[Mismatch]]:
    try:
        return rewrite_module(text, group)
    except cst.ParserSyntaxError as error:
        raise _UnreadableError(f"the file does not parse (line {error.raw_line})") from None
    except SyntaxError as error:
        raise _UnreadableError(f"the file does not parse (line {error.lineno})") from None
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        raise _UnreadableError(f"a rewrite of this file failed ({type(error).__name__} at {place}: {error})") from error


def _file_phases(group: Sequence[type[Rewrite]], earlier: ChangedFile | None) -> tuple[str, ...]:
    names = {rewrite.phase for rewrite in group}
    return tuple(name for name in PHASES if name in names or (earlier and name in earlier.phases))


def _decode(content: bytes) -> _Module:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError as error:
        raise _UnreadableError(f"the file is not UTF-8 ({error})") from None
    if encoding not in ("utf-8", "utf-8-sig"):
        raise _UnreadableError(f"the file says that it is encoded as {encoding}, not as UTF-8")
    mark = BYTE_ORDER_MARK if content.startswith(BYTE_ORDER_MARK) else b""
    try:
        text = content[len(mark) :].decode("utf-8")
    except UnicodeDecodeError as error:
        raise _UnreadableError(f"the file is not UTF-8 (byte {error.start + len(mark)})") from None
    return _Module(content, remove_notice(text), mark)


def _compile(path: str, content: bytes) -> None:
    try:
        compile(content, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise _UnreadableError(f"after the rewrites the file does not compile: {error}") from None


def add_notice(text: str, notice: str) -> str:
    """Put a notice of our own below the licence header, in the file's own newlines.

    The licence header is the first block of comments that speaks of a licence or a copyright; without one the notice
    comes first, below an interpreter line and a coding line.
    """
    lines = text.split("\n")
    end = 0
    place = 0
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith("#")):
        start = end
        while end < len(lines) and lines[end].startswith("#"):
            end += 1
        if any(LICENCE_PATTERN.search(line) for line in lines[start:end]):
            place = end
            break
        if end == start:
            end += 1
    if not place:
        while place < min(2, len(lines)) and FIRST_LINES_PATTERN.match(lines[place]):
            place += 1
    carriage = "\r" if lines[0].endswith("\r") else ""
    return "\n".join([*lines[:place], *(line + carriage for line in notice.splitlines()), *lines[place:]])


def remove_notice(text: str) -> str:
    """Take our notice out again; text without one stays as it is."""
    return NOTICE_PATTERN.sub("", text, count=1)


# What did not match


def _unmatched(rewrite: type[Rewrite], found: int, reason: str | None = None, sites: tuple[str, ...] = ()) -> Unmatched:
    if reason is None:
        if not found:
            reason = "its place is missing"
        elif found < rewrite.hits:
            reason = "some of its places are missing"
        else:
            reason = "its place is ambiguous"
    return Unmatched(
        rewrite.__name__, rewrite.phase, _path(rewrite), rewrite.function, rewrite.hits, found, reason, sites
    )


def _no_place(
    source: Source, version: str | None, missed: Mapping[type[Rewrite], Unmatched], chosen: Sequence[type[Rewrite]]
) -> MigrationError:
    unmatched = tuple(sorted(missed.values(), key=lambda row: row.path))
    count = len(unmatched)
    which = "1 rewrite does" if count == 1 else f"{count} rewrites do"
    if version in KNOWN_VERSIONS:
        next_step = "If this source was edited, give the stock one; if not, please report it."
    else:
        next_step = f"The rewrites are written for {_known()}; give that version."
    matched = tuple(Matched(r.__name__, r.phase, _path(r), r.function, r.hits) for r in chosen if r not in missed)
    if safe := safe_phase([row.phase for row in unmatched], [row.phase for row in matched]):
        next_step += f" All of --phase {safe} matches here."
    return MigrationError(source.label, f"{which} not match {_named(version)}", next_step, unmatched, matched)


def safe_phase(unmatched: Collection[str], matched: Collection[str]) -> str | None:
    """The last phase up to which everything matches, None if there is none."""
    first = min(PHASES.index(cast(Phase, phase)) for phase in unmatched)
    safe = [phase for phase in PHASES[:first] if phase in matched]
    return safe[-1] if safe else None


# What the ledgers leave open


def _undecided(source: Source, rewrites: Sequence[type[Rewrite]] | None, earlier: Manifest | None) -> tuple[str, ...]:
    """Asked of the stock tree, whichever phase comes first: what is left of it later cannot tell."""
    if earlier:
        return earlier.undecided
    asked = rewrites is None and any(rewrite.phase == "finalize" for rewrite in catalogue.ALL)
    return open_entries(source) if asked else ()


# What comes out


def _change(source: Source, path: str, before: bytes | None, after: bytes) -> Change:
    entry = source.entry(path)
    mode = entry.mode if entry else 0o644
    return Change(path, before, after, mode, *unified(path, before, after, mode))


def _manifest_change(
    source: Source,
    earlier: Manifest | None,
    version: str | None,
    phases: tuple[str, ...],
    changes: Sequence[Change],
    files: Mapping[str, ChangedFile],
    applied: tuple[AppliedRewrite, ...],
    undecided: tuple[str, ...],
) -> Change:
    after = {change.path: change.after for change in changes}

    def read(path: str) -> bytes:
        return after[path] if path in after else source.read(path)

    manifest = Manifest(
        version,
        manifests.library_version(),
        phases,
        tuple(file for _, file in sorted(files.items())),
        (*(earlier.rewrites if earlier else ()), *applied),
        manifests.tree_digest(source.entries, read),
        undecided,
    )
    before = source.read(manifests.PATH) if earlier else None
    return _change(source, manifests.PATH, before, manifest.dump())
