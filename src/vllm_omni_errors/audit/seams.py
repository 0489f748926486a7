# SPDX-License-Identifier: Apache-2.0
"""The seams ledger: where vLLM-Omni hands a request to code of vLLM, and what that code's raw exceptions become.

It is a folder like the ledger of error sites (`ledger`): ``ledger.toml`` says format, vLLM's version and where to look;
``engine/async_omni_engine.jsonl`` holds the seams of ``engine/async_omni_engine.py``, one row a line, sorted. Keys that
this version does not know stay as they are. Nothing of either source's text is in it but names.

A call is followed by its name alone: what is imported from vLLM by where it comes from, a method by its last name.
"""

import ast
import fnmatch
import functools
import json
import keyword
import re
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from vllm_omni_errors import ledgers
from vllm_omni_errors.audit.extract import COMMON, METHODS, dotted
from vllm_omni_errors.audit.gate import Finding
from vllm_omni_errors.audit.ledger import MANIFEST, REASON_CHARACTERS, LedgerError, lines_in, parsed
from vllm_omni_errors.audit.tree import AuditError, Tree
from vllm_omni_errors.audit.vocabulary import DECISIONS

FORMAT = 1
KIND = "seams"
OPEN = "open"
IDENTITY = ("function", "call")
ORDER = (*IDENTITY, "callee", "raises", "decision", "parameter", "by", "reason", "reviewed")

CONVERTED = ("validation", "unprocessable", "media", "not-found")
"""Decisions that turn a raw exception, or a returned error response, into a typed exception."""

UNCONVERTED: dict[str, str] = {
    "typed": "What it raises for a client's mistake is typed already.",
    "internal": "It reads what the server made itself: a raw exception stays a 500.",
    "configuration": DECISIONS["configuration"].meaning,
}
"""Decisions after which a call stays as it is."""

_ASKING = frozenset({"isinstance", "issubclass", "cast"})
"""What only asks about a class that it is given."""

_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_CALLEE = re.compile(rf"{_MODULE.pattern}:{_MODULE.pattern}")
_PATTERN = re.compile(r"[\w.*]+:[\w.*]+")


class UnreviewedVersionError(AuditError):
    """The seams of a version of vLLM were not reviewed."""


def reviewed_for(version: str) -> "SeamsLedger | None":
    """The ledger of the seams of a version of vLLM, None if they were not reviewed; a part as ``+cpu`` does not matter.

    Raises LedgerError if the ledger cannot be read.
    """
    version = version.partition("+")[0]
    try:
        ledger = load(ledgers.folder(f"upstream-{version}"))
    except FileNotFoundError:
        return None
    return ledger if ledger.version == version else None


def require_reviewed(version: str) -> "SeamsLedger":
    """`reviewed_for`, for what relies on it. Raises UnreviewedVersionError if there is no such ledger."""
    ledger = reviewed_for(version)
    if ledger is None:
        raise UnreviewedVersionError(
            f"The calls into vLLM {version} were not reviewed. Use a version that has a ledger, such as "
            "upstream-0.30.0, or review them as ledgers/README.md says."
        )
    return ledger


@dataclass(frozen=True, slots=True)
class Seam:
    """A call in vLLM-Omni, or several alike in one function, of code of vLLM that reads the request.

    Attributes:
        path: file below the calling package.
        function: qualified name of the calling function.
        call: what is called, as it stands there: dotted, ``()`` for calls and ``[]`` for items on the way.
        callee: what that is in vLLM, as ``module:name``.
        raises: raw types that it raises for a client's mistake.
        decision: one of `CONVERTED` or `UNCONVERTED`.
        parameter: public name of the request's parameter at fault, if it is always the same.
        by: names of the rewrites that convert, or `OPEN`; empty where nothing is to be converted.
        reason: why, in the reviewer's words.
        reviewed: when.
        unknown: keys that this version does not know.
    """

    path: str
    function: str
    call: str
    callee: str
    raises: tuple[str, ...]
    decision: str
    reason: str
    reviewed: date
    parameter: str | None = None
    by: tuple[str, ...] = ()
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether it is still to be converted."""
        return self.by == (OPEN,)

    def to_line(self) -> str:
        """The row as it stands in the file."""
        values: dict[str, Any] = {
            "function": self.function,
            "call": self.call,
            "callee": self.callee,
            "raises": ", ".join(self.raises) or None,
            "decision": self.decision,
            "parameter": self.parameter,
            "by": ", ".join(self.by) or None,
            "reason": self.reason,
            "reviewed": self.reviewed.isoformat(),
        }
        kept = {key: value for key, value in values.items() if value is not None}
        return json.dumps(kept | dict(self.unknown), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class SeamsLedger:
    """A whole ledger of seams.

    Attributes:
        folder: where it is.
        package, version: whose code is called: vLLM, and which.
        callers: the package that calls.
        paths, skipped: patterns of the caller's files to look into, and not to; ``*`` matches ``/`` too.
        watched: code of vLLM, as ``module:name``, that would be a seam if it were called.
        apart: patterns of ``module:name`` of code of vLLM that reads nothing of a request.
        rows: in order of path.
    """

    folder: Path
    package: str
    version: str
    callers: str
    paths: tuple[str, ...]
    skipped: tuple[str, ...]
    watched: tuple[str, ...]
    apart: tuple[str, ...]
    rows: tuple[Seam, ...]

    def looks_into(self, path: str) -> bool:
        """Whether calls in a file are asked about."""
        return _matches(path, self.paths) and not _matches(path, self.skipped)


def _matches(text: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


# ---- reading ----


def named_by(folder: Path) -> Path | None:
    """The ledger of seams that a ledger of error sites names as ``seams``, relative to itself."""
    manifest = folder / MANIFEST
    named = _manifest(manifest).get("seams")
    if named is None:
        return None
    if not isinstance(named, str) or not named:
        raise LedgerError(f'{manifest}: seams is {named!r}, and has to be a folder such as "../upstream-0.30.0".')
    return folder / named


def load(place: Path) -> SeamsLedger:
    """The ledger in a folder, or beside its ``ledger.toml``. Raises LedgerError if any of it cannot be read."""
    folder = place.parent if place.name == MANIFEST else place
    manifest = folder / MANIFEST
    head = _manifest(manifest)
    _check_format(str(manifest), head.get("format"))
    if head.get("kind") != KIND:
        raise LedgerError(
            f"{manifest}: kind is {head.get('kind')!r}, and has to be {KIND!r}. Error sites are for --ledger."
        )
    texts = {name: _text_in(manifest, head, name) for name in ("package", "version", "callers")}
    lists = {name: _list_in(manifest, head, name) for name in ("paths", "skip", "watch", "apart")}
    if not lists["paths"]:
        raise LedgerError(f"{manifest}: paths is missing. Say which of the caller's files to look into.")
    wrong = [name for name in lists["watch"] if not _CALLEE.fullmatch(name)]
    wrong += [name for name in lists["apart"] if not _PATTERN.fullmatch(name)]
    if wrong:
        raise LedgerError(f"{manifest}: {wrong[0]!r} has to be module:name, such as vllm.renderers:BaseRenderer.")
    rows: dict[tuple[str, str, str], Seam] = {}
    for file in sorted(folder.rglob("*.jsonl")):
        for where, row in _rows(folder, file):
            if rows.setdefault((row.path, row.function, row.call), row) != row:
                raise LedgerError(
                    f"{where}: {row.function or 'the module'} has two rows for {row.call}. "
                    "Keep one; a merge leaves both where two reviews decided the same seam."
                )
    return SeamsLedger(
        folder=folder,
        package=texts["package"],
        version=texts["version"],
        callers=texts["callers"],
        paths=lists["paths"],
        skipped=lists["skip"],
        watched=lists["watch"],
        apart=lists["apart"],
        rows=tuple(rows.values()),
    )


def _manifest(manifest: Path) -> dict[str, Any]:
    try:
        return parsed(tomllib.loads, manifest.read_text(encoding="utf-8"))
    except OSError as error:
        raise LedgerError(
            f"{manifest} cannot be read ({error.strerror}). A ledger is a folder with that file."
        ) from None
    except ValueError as error:
        raise LedgerError(f"{manifest} is not TOML: {error}. Repair that line.") from None


def _check_format(where: str, value: object) -> None:
    if value != FORMAT:
        raise LedgerError(
            f"{where}: its format is {value!r}, and this version reads {FORMAT}. Use the version that wrote it."
        )


def _text_in(manifest: Path, head: Mapping[str, Any], name: str) -> str:
    value = head.get(name)
    if not isinstance(value, str) or not value:
        raise LedgerError(f'{manifest}: {name} is missing, or no text. Write {name} = "…".')
    return value


def _list_in(manifest: Path, head: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = head.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise LedgerError(f"{manifest}: {name} has to be a list of texts.")
    return tuple(value)


def _rows(folder: Path, file: Path) -> Iterator[tuple[str, Seam]]:
    path = file.relative_to(folder).with_suffix(".py").as_posix()
    try:
        lines = lines_in(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{file} cannot be read: {error}. Repair the file.") from None
    if not lines:
        raise LedgerError(f"{file} is empty. Its first line says format and module; remove the file if it has no rows.")
    for number, line in enumerate(lines, 1):
        where = f"{file}:{number}"
        try:
            values = parsed(json.loads, line)
        except ValueError as error:
            raise LedgerError(f"{where} is not JSON: {error}. Repair the line, or what a merge left of it.") from None
        if not isinstance(values, dict):
            raise LedgerError(f"{where} is no object. Every line is one row.")
        if number > 1:
            yield where, row_of(where, path, values)
            continue
        _check_format(where, values.get("format"))
        if values.get("module") != path:
            raise LedgerError(
                f"{where}: it is for {values.get('module')!r}, and stands where {path!r} belongs. Move it."
            )


def row_of(where: str, path: str, values: Mapping[str, Any]) -> Seam:
    """A checked row. Raises LedgerError, whose text begins with `where`."""
    texts = {name: values.get(name, "") for name in ORDER}
    for name, value in texts.items():
        if not isinstance(value, str):
            raise LedgerError(f"{where}: {name} is {value!r}, and has to be a text, or left out.")
    for name in ("call", "callee", "decision", "reason"):
        if not texts[name].strip():
            raise LedgerError(f"{where}: {name} is missing. Add it; ledgers/README.md says what it is.")
    if not _CALLEE.fullmatch(texts["callee"]):
        raise LedgerError(
            f"{where}: callee is {texts['callee']!r}, and has to be module:name, such as vllm.renderers:BaseRenderer."
        )
    raises, by = _names(where, "raises", texts["raises"]), _names(where, "by", texts["by"])
    _check_decision(where, texts, by)
    if len(texts["reason"]) > REASON_CHARACTERS or "\n" in texts["reason"]:
        raise LedgerError(f"{where}: reason has to be one line of at most {REASON_CHARACTERS} characters. Shorten it.")
    try:
        reviewed = date.fromisoformat(texts["reviewed"])
    except ValueError:
        raise LedgerError(
            f"{where}: reviewed is {texts['reviewed']!r}, and has to be a date such as 2026-01-31."
        ) from None
    return Seam(
        path=path,
        function=texts["function"],
        call=texts["call"],
        callee=texts["callee"],
        raises=raises,
        decision=texts["decision"],
        parameter=texts["parameter"] or None,
        by=by,
        reason=texts["reason"],
        reviewed=reviewed,
        unknown={key: value for key, value in values.items() if key not in ORDER},
    )


def _names(where: str, key: str, text: str) -> tuple[str, ...]:
    names = tuple(text.split(", ")) if text else ()
    wrong = [name for name in names if not name.isidentifier() or keyword.iskeyword(name)]
    if wrong:
        raise LedgerError(f"{where}: {wrong[0]!r} in {key} is no name. Write names with a comma and a blank between.")
    return names


def _check_decision(where: str, texts: Mapping[str, str], by: tuple[str, ...]) -> None:
    decision = texts["decision"]
    if decision not in CONVERTED and decision not in UNCONVERTED:
        known = ", ".join((*CONVERTED, *UNCONVERTED))
        raise LedgerError(f"{where}: decision is {decision!r}, and has to be one of {known}.")
    if OPEN in by and len(by) > 1:
        raise LedgerError(f"{where}: by is {texts['by']!r}. Name rewrites, or write {OPEN!r} alone.")
    if decision in CONVERTED and not by:
        raise LedgerError(f"{where}: by is missing. Name the rewrites that convert it, or write {OPEN!r}.")
    if decision in UNCONVERTED and (by or texts["parameter"]):
        raise LedgerError(f"{where}: {decision} converts nothing. Leave by and parameter out, or decide differently.")


# ---- writing ----


def lines_of(path: str, rows: Iterable[Seam]) -> str:
    """A file of the ledger."""
    head = json.dumps({"format": FORMAT, "module": path}, ensure_ascii=False)
    ordered = sorted(rows, key=lambda row: (row.function, row.call))
    return "\n".join([head, *(row.to_line() for row in ordered)]) + "\n"


# ---- the tree ----


@dataclass(frozen=True, slots=True)
class Call:
    """A call, a function that is handed over, or the type of a route's argument.

    Attributes:
        path, line: where.
        function: qualified name of the function that it is in.
        name: as it stands there, as `Seam.call`.
        origin: as ``module:name``, if it is imported from elsewhere; empty if nobody can say.
    """

    path: str
    line: int
    function: str
    name: str
    origin: str

    @property
    def last(self) -> str:
        """The last name of what is called, whatever it is imported as."""
        return re.split(r"[.:]", self.origin or self.name)[-1]


def calls_in(path: str, text: bytes) -> list[Call]:
    """Every call in one file, and every function that one hands over; none if the file does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    walk = _Calls(path, _imports(tree))
    walk.visit(tree)
    return walk.found


def _imports(tree: ast.Module) -> dict[str, str]:
    """Local name → ``module:name``, or the module alone, of all that a file imports anywhere."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update({alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names})
        elif isinstance(node, ast.Import):
            found.update({alias.asname: alias.name for alias in node.names if alias.asname})
            found.update({alias.name.partition(".")[0]: alias.name.partition(".")[0] for alias in node.names})
    return found


class _Calls(ast.NodeVisitor):
    def __init__(self, path: str, imports: dict[str, str]) -> None:
        self.path = path
        self.imports = imports
        self.stack: list[str] = []
        self.found: list[Call] = []

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self.stack.append(node.name)
        if not isinstance(node, ast.ClassDef) and any(_is_route(decorator) for decorator in node.decorator_list):
            arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            for annotation in (argument.annotation for argument in arguments if argument.annotation):
                self._note(annotation, handed_over=True)  # the web framework makes it from the request
        for name, value in ast.iter_fields(node):
            for part in value if isinstance(value, list) else [value]:
                if name != "decorator_list" and isinstance(part, ast.AST):
                    self.visit(part)
        self.stack.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _scope  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        self._note(node.func)
        if isinstance(node.func, ast.Call):  # a wrapper, and what it wraps is called
            for wrapped in node.func.args:
                self._note(wrapped)
        if dotted(node.func) not in _ASKING:
            for given in (*node.args, *(each.value for each in node.keywords)):
                if isinstance(given, ast.Attribute | ast.Name):
                    self._note(given, handed_over=True)
        self.generic_visit(node)

    def _note(self, node: ast.expr, *, handed_over: bool = False) -> None:
        name = dotted(node)
        if not name:
            return
        root, dot, rest = name.partition(".")
        origin = self.imports.get(root, "")
        if origin and dot:
            origin += (":" if ":" not in origin else ".") + rest
        if handed_over and not origin and not dot:
            return  # a variable
        self.found.append(Call(self.path, node.lineno, ".".join(self.stack), name, origin))


def _is_route(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and dotted(decorator.func).rpartition(".")[2] in METHODS


@dataclass(frozen=True, slots=True)
class Checked:
    """A ledger of seams held against a tree.

    Attributes:
        found: the calls of each seam.
        stale: seams whose function, or call in it, is gone.
        open: calls into vLLM that no row and no pattern decides.
    """

    found: Mapping[tuple[str, str, str], list[Call]]
    stale: list[Seam]
    open: list[Call]


def check(ledger: SeamsLedger, tree: Tree) -> Checked:
    """Hold a ledger against the tree that calls. Raises AuditError if a file of it cannot be read."""
    wanted = [path for path in tree.files if ledger.looks_into(path) or any(row.path == path for row in ledger.rows)]
    calls = [call for path, text in tree.texts(wanted) for call in calls_in(path, text)]
    rows = {(row.path, row.function, row.call): row for row in ledger.rows}
    found: dict[tuple[str, str, str], list[Call]] = {}
    undecided: list[Call] = []
    is_asked = _asked(ledger)
    for call in calls:
        key = (call.path, call.function, call.name)
        if key in rows:
            found.setdefault(key, []).append(call)
        elif ledger.looks_into(call.path) and is_asked(call):
            undecided.append(call)
    stale = [row for key, row in rows.items() if key not in found]
    return Checked(found, stale, undecided)


def _asked(ledger: SeamsLedger) -> Callable[[Call], bool]:
    """Says of a call without a row whether it is open."""
    callees = {*(row.callee for row in ledger.rows), *ledger.watched}
    names = {_name_of(callee) for callee in callees}
    # A method that built-in types have too says nothing by its last name alone.
    common = {name for name in names if name in COMMON}
    known = {row.call.rpartition(".")[0].rpartition(".")[2] + "." + _name_of(row.callee) for row in ledger.rows}
    apart = functools.cache(functools.partial(_matches, patterns=ledger.apart))
    prefix = (ledger.package + ".", ledger.package + ":")

    def asked(call: Call) -> bool:
        if call.origin.startswith(prefix):
            return not apart(call.origin) and call.origin.rpartition(":")[2] != ""
        if call.last not in names:
            return False
        two = ".".join(call.name.split(".")[-2:])
        return call.last not in common or two in known

    return asked


def _name_of(callee: str) -> str:
    return re.split(r"[.:]", callee)[-1]


def findings(ledger: SeamsLedger, tree: Tree) -> list[Finding]:
    """What the gate has to say about the seams, in order of path and line."""
    if tree.package != ledger.callers:
        raise LedgerError(f"{ledger.folder} is about calls from {ledger.callers}, and the tree is {tree.package}.")
    checked = check(ledger, tree)
    found = [
        Finding(
            "stale", row.path, 1, f"{row.function or 'the module'}: the call of {row.call} is gone.",
            f"Remove its row in {ledger.folder.name}, and decide what is called there now.",
        )
        for row in checked.stale
    ]  # fmt: skip
    found += [
        Finding(
            "open", call.path, call.line,
            f"{call.function or 'the module'}: {call.name} of {ledger.package} may read the request; nobody decided "
            "what its raw exceptions become.",
            f"Add a row to {ledger.folder.name}; ledgers/README.md says how.",
        )
        for call in {(call.path, call.function, call.name): call for call in reversed(checked.open)}.values()
    ]  # fmt: skip
    if tree.version.split(".")[:2] != ledger.version.split(".")[:2] and tree.version != "unknown":
        text = f"The seams were reviewed for {ledger.package} {ledger.version}, and the tree is {tree.version}."
        step = "Review what the functions of vLLM raise now."
        found.append(Finding("other-version", "", 1, text, step, note=True))
    return sorted(found, key=lambda finding: (finding.path, finding.line, finding.code, finding.text))
