# SPDX-License-Identifier: Apache-2.0
"""The ledger: what a review decided about each site. Text, one row a line, one file for each file of the tree.

A ledger is a folder. ``ledger.toml`` says its format, the package and the version that was reviewed, and holds the
rules; ``entrypoints/openai/api_server.jsonl`` holds the rows of ``entrypoints/openai/api_server.py``. Rows are sorted,
so that two reviews of different sites never change the same line; ``.gitattributes`` makes git merge them as a union.
Keys that this version does not know stay as they are. Nothing of the tree is in it but names and hashes.
"""

import contextlib
import fcntl
import fnmatch
import json
import os
import re
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeVar

from vllm_omni_errors.audit.inventory import Site, fingerprint
from vllm_omni_errors.audit.messages import NO_MESSAGE, hash_of
from vllm_omni_errors.audit.tree import AuditError
from vllm_omni_errors.audit.vocabulary import DECISIONS, KINDS, Kind

FORMAT = 1
MANIFEST = "ledger.toml"
REASON_CHARACTERS = 600
IDENTITY = ("function", "kind", "exception", "message", "nth")
ORDER = (*IDENTITY, "decision", "parameter", "text", "reason", "reviewed", "expires", "apart")
REACHES = ("yes", "model", "no")
_HASH = re.compile(r"[0-9a-f]{12}")
_Parsed = TypeVar("_Parsed")


class LedgerError(AuditError):
    """A ledger that cannot be read as a whole; nothing of it counts. The text says which line, and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """A decision about one site.

    Attributes:
        path, function, kind, exception, message, nth: the site's identity (`inventory.Site`).
        decision: a key of `vocabulary.DECISIONS`.
        parameter: public name of the request's parameter at fault.
        text: what the client reads instead, where the original quotes a value, a path or an inner exception.
        reason: why, in the reviewer's words.
        reviewed: when.
        expires: from when on the decision is open again.
        apart: whether a twin may be decided differently.
        unknown: keys that this version does not know.
    """

    path: str
    function: str
    kind: Kind
    exception: str
    message: str
    decision: str
    reason: str
    reviewed: date
    nth: int = 1
    parameter: str | None = None
    text: str | None = None
    expires: date | None = None
    apart: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Of the identity; the same as that of the site."""
        return fingerprint(self.path, self.function, self.exception, self.message, self.nth)

    def to_line(self) -> str:
        """The row as it stands in the file."""
        values: dict[str, Any] = {
            "function": self.function,
            "kind": self.kind,
            "exception": self.exception,
            "message": self.message,
            "nth": self.nth if self.nth > 1 else None,
            "decision": self.decision,
            "parameter": self.parameter,
            "text": self.text,
            "reason": self.reason,
            "reviewed": self.reviewed.isoformat(),
            "expires": self.expires.isoformat() if self.expires else None,
            "apart": self.apart or None,
        }
        kept = {key: value for key, value in values.items() if value is not None}
        return json.dumps(kept | dict(self.unknown), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """A decision about all sites of a kind and a place that no row decides.

    Attributes:
        name: unique.
        paths, functions, exceptions: patterns of which one each has to match; ``*`` matches ``/`` too.
        kinds: kinds of sites.
        reach: values of `Site.request_path` that it is for; ``yes`` only if it says so.
        sites: how many sites it covered when it was reviewed; any other number fails the gate.
    """

    name: str
    paths: tuple[str, ...]
    decision: str
    reason: str
    reviewed: date
    sites: int
    functions: tuple[str, ...] = ("*",)
    exceptions: tuple[str, ...] = ("*",)
    kinds: tuple[Kind, ...] = KINDS
    reach: tuple[str, ...] = ("model", "no")
    expires: date | None = None

    def covers(self, site: Site) -> bool:
        """Whether a site is of its kind and place."""
        return (
            site.kind in self.kinds
            and site.request_path in self.reach
            and any(fnmatch.fnmatchcase(site.path, glob) for glob in self.paths)
            and any(fnmatch.fnmatchcase(site.function, glob) for glob in self.functions)
            and any(fnmatch.fnmatchcase(name, glob) for glob in self.exceptions for name in site.exception.split(", "))
        )


@dataclass(slots=True)
class Ledger:
    """A whole ledger.

    Attributes:
        beyond: how many rows were reviewed that are about sites which the audit does not ask about; None if nobody
            counted. Any other number fails the gate, as such a row leaves no open site behind.
    """

    folder: Path
    package: str
    version: str
    rules: list[Rule]
    rows: dict[str, Row]
    beyond: int | None = None

    def files(self) -> dict[str, list[Row]]:
        """Rows by the path of the tree's file."""
        found: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows.values():
            found[row.path].append(row)
        return found


# ---- reading ----


def lines_in(text: str) -> list[str]:
    """The lines of a file of rows. Not `splitlines`: JSON may hold other ends of lines as they are."""
    return text.removesuffix("\n").split("\n") if text else []


def parsed(parse: Callable[[str], _Parsed], text: str) -> _Parsed:
    """What a parser of JSON or TOML makes of a text.

    Raises ValueError, also where the text is nested too deeply, and for half a character, which cannot be written.
    """
    try:
        value = parse(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def load(place: Path) -> Ledger:
    """The ledger in a folder, or beside its ``ledger.toml``. Raises LedgerError if any of it cannot be read."""
    folder = place.parent if place.name == MANIFEST else place
    manifest = folder / MANIFEST
    try:
        head = parsed(tomllib.loads, manifest.read_text(encoding="utf-8"))
    except OSError as error:
        raise LedgerError(
            f"{manifest} cannot be read ({error.strerror}). A ledger is a folder with that file."
        ) from None
    except ValueError as error:
        raise LedgerError(f"{manifest} is not TOML: {error}.") from None
    _check_format(manifest, head.get("format"))
    entries = head.get("rule", [])
    if not isinstance(entries, list):
        raise LedgerError(f"{manifest}: rule is no list of tables. Write each under [[rule]].")
    rules = [_rule(manifest, number, entry) for number, entry in enumerate(entries, 1)]
    twice = [name for name, times in Counter(rule.name for rule in rules).items() if times > 1]
    if twice:
        raise LedgerError(f"{manifest}: more than one rule is named {twice[0]}.")
    rows: dict[str, Row] = {}
    for file in sorted(folder.rglob("*.jsonl")):
        for row in _rows(folder, file):
            if rows.get(row.fingerprint, row) != row:
                raise LedgerError(
                    f"{file}: {row.function or 'the module'} has two rows for {row.exception} {row.message}. "
                    "Keep one; a merge leaves both where two reviews decided the same site."
                )
            rows[row.fingerprint] = row
    beyond = head.get("beyond")
    if beyond is not None:
        beyond = _count(str(manifest), "beyond", "rows about sites that the audit does not ask about", beyond)
    package, version = str(head.get("package", "vllm_omni")), str(head.get("version", "unknown"))
    return Ledger(folder, package, version, rules, rows, beyond)


def _check_format(file: Path, value: object) -> None:
    if value != FORMAT:
        raise LedgerError(
            f"{file}: its format is {value!r}, and this version reads {FORMAT}. Use the version that wrote it."
        )


def _rows(folder: Path, file: Path) -> Iterator[Row]:
    path = file.relative_to(folder).with_suffix(".py").as_posix()
    try:
        lines = lines_in(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{file} cannot be read: {error}.") from None
    for number, line in enumerate(lines, 1):
        where = f"{file}:{number}"
        try:
            values = parsed(json.loads, line)
        except ValueError as error:
            raise LedgerError(f"{where} is not JSON: {error}.") from None
        if not isinstance(values, dict):
            raise LedgerError(f"{where} is no object. Every line is one row.")
        if number == 1:
            _check_format(file, values.get("format"))
            if values.get("module") != path:
                raise LedgerError(f"{where}: it is for {values.get('module')!r}, and stands where {path!r} belongs.")
            continue
        yield row_of(where, path, values)
    if not lines:
        raise LedgerError(f"{file} is empty. Its first line says format and module; remove the file if it has no rows.")


def row_of(where: str, path: str, values: Mapping[str, Any]) -> Row:
    """A checked row. Raises LedgerError, whose text begins with `where`."""
    known = dict.fromkeys(ORDER)
    unknown = {key: value for key, value in values.items() if key not in known}
    kind, decision = values.get("kind"), values.get("decision")
    if kind not in KINDS:
        raise LedgerError(f"{where}: kind is {kind!r}, and has to be one of {', '.join(KINDS)}.")
    _check_decision(where, decision, (kind,))
    for name in ("function", "exception", "message", "reason"):
        if not isinstance(values.get(name), str):
            raise LedgerError(f"{where}: {name} is missing, or no text.")
    if not _HASH.fullmatch(values["message"]):
        raise LedgerError(f"{where}: message has to be a hash of 12 hexadecimal digits; the text stays in the tree.")
    _check_reason(where, values["reason"])
    nth = values.get("nth", 1)
    if not isinstance(nth, int) or isinstance(nth, bool) or nth < 1:
        raise LedgerError(f"{where}: nth is {nth!r}, and has to be a number from 1 on.")
    parameter, text = values.get("parameter"), values.get("text")
    if not all(value is None or (isinstance(value, str) and value) for value in (parameter, text)):
        raise LedgerError(f"{where}: parameter and text are texts, or left out.")
    if parameter is not None and not DECISIONS[str(decision)].parameter:
        raise LedgerError(f"{where}: {decision} has no parameter. Leave it out, or decide differently.")
    return Row(
        path=path,
        function=values["function"],
        kind=kind,
        exception=values["exception"],
        message=values["message"],
        nth=nth,
        decision=str(decision),
        parameter=parameter,
        text=text,
        reason=values["reason"],
        reviewed=_date(where, "reviewed", values.get("reviewed")) or date.min,
        expires=_date(where, "expires", values.get("expires"), needed=False),
        apart=values.get("apart") is True,
        unknown=unknown,
    )


def _rule(manifest: Path, number: int, entry: object) -> Rule:
    where = f"{manifest}: rule {number}"
    if not isinstance(entry, dict):
        raise LedgerError(f"{where} is no table.")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise LedgerError(f"{where} has no name.")
    where = f"{manifest}: rule {name}"
    lists: dict[str, tuple[str, ...]] = {}
    defaults: dict[str, Sequence[str]] = {
        "functions": ["*"],
        "exceptions": ["*"],
        "kinds": KINDS,
        "reach": ["model", "no"],
    }
    for key in ("paths", "functions", "exceptions", "kinds", "reach"):
        value = entry.get(key, defaults.get(key))
        if not isinstance(value, list | tuple) or not value or not all(isinstance(item, str) for item in value):
            raise LedgerError(f"{where}: {key} has to be a list of texts.")
        lists[key] = tuple(value)
    if not set(lists["reach"]) <= set(REACHES):
        raise LedgerError(f"{where}: reach may hold {', '.join(REACHES)}.")
    if not set(lists["kinds"]) <= set(KINDS):
        raise LedgerError(f"{where}: kinds may hold {', '.join(KINDS)}.")
    kinds = tuple(kind for kind in KINDS if kind in lists["kinds"])
    _check_decision(where, entry.get("decision"), kinds)
    _check_reason(where, entry.get("reason"))
    sites = _count(where, "sites", "sites that it covers", entry.get("sites"))
    return Rule(
        name=name,
        paths=lists["paths"],
        functions=lists["functions"],
        exceptions=lists["exceptions"],
        kinds=kinds,
        reach=lists["reach"],
        decision=str(entry["decision"]),
        reason=str(entry["reason"]),
        reviewed=_date(where, "reviewed", entry.get("reviewed")) or date.min,
        expires=_date(where, "expires", entry.get("expires"), needed=False),
        sites=sites,
    )


def _count(where: str, name: str, of: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise LedgerError(f"{where}: {name} has to be the number of {of}.")
    return value


def _check_decision(where: str, decision: object, kinds: Sequence[Kind]) -> None:
    found = DECISIONS.get(decision) if isinstance(decision, str) else None
    if found is None:
        raise LedgerError(f"{where}: decision is {decision!r}, and has to be one of {', '.join(DECISIONS)}.")
    wrong = [kind for kind in kinds if kind not in found.kinds]
    # A rule may cover raises and clauses alike: what stays for one stays for the other.
    if wrong and (len(kinds) == 1 or decision in ("propagate", "narrow")):
        raise LedgerError(f"{where}: {decision} is not for {wrong[0]} sites.")


def _check_reason(where: str, reason: object) -> None:
    if not isinstance(reason, str) or not reason.strip():
        raise LedgerError(f"{where}: reason is missing. Say in your own words why.")
    if len(reason) > REASON_CHARACTERS or "\n" in reason:
        raise LedgerError(f"{where}: reason has to be one line of at most {REASON_CHARACTERS} characters.")


def _date(where: str, name: str, value: object, *, needed: bool = True) -> date | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if value is None and not needed:
        return None
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise LedgerError(f"{where}: {name} is {value!r}, and has to be a date such as 2026-01-31.") from None


# ---- matching ----


@dataclass(frozen=True, slots=True)
class Move:
    """A row whose site is in another place now."""

    row: Row
    site: Site


@dataclass(slots=True)
class Matched:
    """A ledger held against a tree.

    Attributes:
        rows: fingerprint of the site → row that decides it.
        rules: fingerprint of the site → rule that decides it, where no row does.
        moved: rows that were found again in another place.
        stale: rows whose site is gone.
        covered: number of sites by the name of the rule.
    """

    rows: dict[str, Row]
    rules: dict[str, Rule]
    moved: list[Move]
    stale: list[Row]
    covered: dict[str, int]


def match(ledger: Ledger, sites: Iterable[Site]) -> Matched:
    """Which row or rule decides which site. A row always goes before a rule, and an earlier rule before a later one."""
    every = {site.fingerprint: site for site in sites}
    rows = {key: row for key, row in ledger.rows.items() if key in every and every[key].kind == row.kind}
    moved: list[Move] = []
    stale: list[Row] = []
    free: dict[tuple[str, str, str], list[Site]] = defaultdict(list)
    for site in every.values():
        if site.fingerprint not in rows:
            free[site.kind, site.exception, site.message].append(site)
    for key, row in ledger.rows.items():
        if key in rows:
            continue
        candidates = free[row.kind, row.exception, row.message]
        found = _found_again(row, candidates)
        if found is None:
            stale.append(row)
            continue
        candidates.remove(found)
        rows[found.fingerprint] = row
        moved.append(Move(row, found))
    rules: dict[str, Rule] = {}
    covered = dict.fromkeys((rule.name for rule in ledger.rules), 0)
    for site in every.values():
        if site.raw and site.fingerprint not in rows:
            rule = next((rule for rule in ledger.rules if rule.covers(site)), None)
            if rule is not None:
                rules[site.fingerprint] = rule
                covered[rule.name] += 1
    return Matched(rows, rules, moved, stale, covered)


def _found_again(row: Row, candidates: Sequence[Site]) -> Site | None:
    """The one site that a row can mean if it only moved: the same function elsewhere, else the same file, else the same
    message anywhere. Without a message of its own, only the same function counts."""
    last = row.function.rpartition(".")[2]
    tiers = [
        [site for site in candidates if site.function == row.function],
        [site for site in candidates if site.path == row.path and site.function.rpartition(".")[2] == last],
        [site for site in candidates if site.function.rpartition(".")[2] == last],
    ]
    if row.kind != "except" and row.message != hash_of(NO_MESSAGE):
        tiers += [[site for site in candidates if site.path == row.path], list(candidates)]
    for tier in tiers:
        if len(tier) == 1 and (
            tier[0].kind == "except" or not tier[0].text.startswith("<") or tier[0].function == row.function
        ):
            return tier[0]
        if tier:
            return None
    return None


# ---- writing ----


def file_of(folder: Path, path: str) -> Path:
    """Where the rows of a file of the tree stand."""
    return folder / Path(path).with_suffix(".jsonl")


def lines_of(path: str, rows: Iterable[Row]) -> str:
    """A file of the ledger."""
    head = json.dumps({"format": FORMAT, "module": path}, ensure_ascii=False)
    ordered = sorted(rows, key=lambda row: (row.function, row.kind, row.exception, row.message, row.nth))
    return "\n".join([head, *(row.to_line() for row in ordered)]) + "\n"


def write(folder: Path, changed: Mapping[str, Iterable[Row]]) -> None:
    """Replace the files of some paths, each at once; one without rows goes."""
    for path, rows in changed.items():
        file, found = file_of(folder, path), list(rows)
        if not found:
            file.unlink(missing_ok=True)
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as part:
            part.write(lines_of(path, found))
        os.chmod(name, 0o644)
        os.replace(name, file)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the ledger while it is read, changed and written: reviews on one machine wait for each other."""
    with (folder / MANIFEST).open("rb") as manifest:
        fcntl.flock(manifest, fcntl.LOCK_EX)
        yield


def moved_to(move: Move) -> Row:
    """A row with its site's new place."""
    return replace(move.row, path=move.site.path, function=move.site.function, nth=move.site.nth)
