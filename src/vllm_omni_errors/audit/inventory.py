# SPDX-License-Identifier: Apache-2.0
"""Every site of a tree, with its identity, its reach, and whether a review has to decide it.

A site's identity is its file, its function, its exception (of an except clause: the types; of a response: what makes
it), the hash of its normalized message (of a clause: a hash of what it does), and a number where one function says the
same more than once. Lines are no part of it.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from vllm_omni_errors.audit.facts import Action, File, Handler, Response
from vllm_omni_errors.audit.graph import Graph, is_validator
from vllm_omni_errors.audit.messages import NO_MESSAGE
from vllm_omni_errors.audit.reach import (
    MODEL_MODULES,
    REQUEST_KINDS,
    SHOWN_BOUNDARIES,
    VALIDATOR_NAMES,
    Arrival,
    Boundary,
    Reach,
    within,
)
from vllm_omni_errors.audit.vocabulary import BROAD, Kind, is_raw

TWIN_LETTERS = 12
"""Messages with fewer letters of their own are no twins: they say too little."""
SHOWN_CAUGHT = 200
DEFAULT_RESPONSES = ("create_error_response", "_create_error_response")
DEFAULT_RESPONSE_STATUS = 400

Path = str


class Site(msgspec.Struct, array_like=True):
    """One raise, except clause or error response.

    Attributes:
        kind: ``raise``, ``except`` or ``response``.
        path: file below the package.
        line: in this tree.
        function: qualified name, empty at the top of a module.
        exception: raised type; caught types with commas; callee that makes the response.
        message: hash of the normalized message.
        nth: 1, or more where the function has the same once more.
        fingerprint: of the identity.
        text: the normalized message.
        echo: how values get into the message (`messages.Message`).
        form: of a response (`facts.FORMS`).
        status: HTTP status that the source spells out.
        handled: types of the except clause that it stands in, or None.
        does: what an except clause does.
        raw: whether the type says nothing about whose fault it is.
        validator: whether pydantic calls the function.
        boundaries: number of boundaries by their kind.
        arrivals: what becomes of it at the nearest of them.
        today: every HTTP status that a client may see of it today.
        request_path: ``yes``, ``model`` (model code that a request runs through), ``no``.
        asked: whether a review has to decide it.
        twin: a name for all sites with this message, if there are others.
        catches: fingerprints of the raises that an except clause catches, as far as calls are certain.
        client_errors: those of them that are an ``OmniClientError``, which today is a ``ValueError``.
    """

    kind: Kind
    path: Path
    line: int
    function: str
    exception: str
    message: str
    nth: int
    fingerprint: str
    text: str
    echo: tuple[str, ...] = ()
    form: str = ""
    status: int | None = None
    handled: tuple[str, ...] | None = None
    does: tuple[str, ...] = ()
    raw: bool = False
    validator: bool = False
    boundaries: dict[str, int] = {}
    arrivals: tuple[Arrival, ...] = ()
    today: tuple[int, ...] = ()
    request_path: str = "no"
    asked: bool = False
    twin: str | None = None
    catches: tuple[str, ...] = ()
    client_errors: tuple[str, ...] = ()


def certain_kinds(site: Site) -> frozenset[str]:
    """Kinds of the request boundaries from which a site is reached without a guess."""
    return frozenset(arrival.boundary.kind for arrival in site.arrivals if not arrival.guesses) & REQUEST_KINDS


class Inventory(msgspec.Struct, array_like=True):
    """All sites of a tree, in order of path and line; `problems` are files that do not parse, with the reason."""

    package: str
    version: str
    files: int
    lines: int
    sites: list[Site]
    boundaries: list[Boundary]
    problems: dict[str, str]


def fingerprint(path: str, function: str, exception: str, message: str, nth: int = 1) -> str:
    """First 12 hexadecimal digits of the SHA-256 of an identity."""
    text = "|".join((path, function, exception, message)) + (f"|#{nth}" if nth > 1 else "")
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def take(package: str, version: str, files: Sequence[File]) -> Inventory:
    """The inventory of a tree's files."""
    reach = Reach(Graph(package, files))
    validators = {(node.path, node.function.name) for node in reach.graph.functions if is_validator(node.function)}
    seen: Counter[tuple[str, str, str, str]] = Counter()
    sites: list[Site] = []
    raises: dict[tuple[str, int], str] = {}
    clauses: list[tuple[Site, str, int]] = []
    routes = {(file.path, route.function) for file in files for route in file.routes}
    for file in files:
        for number, site in enumerate(_of_file(file, reach, seen, routes)):
            site.validator = (site.path, site.function) in validators
            if site.kind == "raise":
                raises[file.path, number] = site.fingerprint
            elif site.kind == "except":
                clauses.append((site, file.path, number - len(file.raises)))
            sites.append(site)
    _pair(sites)
    for site, path, number in clauses:
        if set(site.exception.split(", ")) & BROAD:
            _note_caught(site, reach.caught_below(path, number), raises, reach)
    sites.sort(key=lambda site: (site.path, site.line, site.kind, site.fingerprint))
    problems = {file.path: file.problem for file in files if file.problem is not None}
    lines = sum(file.lines for file in files)
    return Inventory(package, version, len(files), lines, sites, reach.boundaries, problems)


class Identity(NamedTuple):
    """What a site is known by, and where it stands."""

    kind: Kind
    line: int
    fingerprint: str


def identities(file: File) -> Iterator[Identity]:
    """The sites of one file: raises first, then except clauses, then responses."""
    seen: Counter[tuple[str, str, str, str]] = Counter()
    parts: tuple[tuple[Kind, Iterable[Any]], ...] = (
        ("raise", ((found, found.exception) for found in file.raises)),
        ("except", ((clause, ", ".join(clause.types)) for clause in file.handlers)),
        ("response", ((made, made.callee) for made in file.responses)),
    )
    for kind, records in parts:
        for record, exception in records:
            site = _site(kind, file.path, record.line, record.function, exception, record.hash, "", seen)
            yield Identity(kind, site.line, site.fingerprint)


def _of_file(
    file: File, reach: Reach, seen: "Counter[tuple[str, str, str, str]]", routes: set[tuple[str, str]]
) -> Iterable[Site]:
    """Raises first, then except clauses, then responses, each in the order of the file's record."""
    for found in file.raises:
        site = _site("raise", file.path, found.line, found.function, found.exception, found.hash, found.text, seen)
        site.echo, site.status, site.handled = found.echo, found.status, found.handled
        exception = reach.type_of(file.path, found)
        site.raw = is_raw(exception, reach.parents(exception))
        _reach(site, reach, found.chain, exception, found.status)
        site.asked = site.request_path == "yes" and site.raw
        yield site
    for clause in file.handlers:
        types = ", ".join(clause.types)
        site = _site("except", file.path, clause.line, clause.function, types, clause.hash, "", seen)
        site.does = tuple(_said(action.what, action.detail, action.status) for action in clause.actions) or (
            "swallows",
        )
        site.raw = bool(set(clause.types) & BROAD)
        _reach(site, reach, clause.chain, "Exception", None)
        site.arrivals = ()
        site.today = tuple(sorted({status for action in clause.actions if (status := _answers(action)) is not None}))
        site.asked = site.request_path == "yes" and site.raw and not _only_passes_on(clause)
        yield site
    for made in file.responses:
        site = _site("response", file.path, made.line, made.function, made.callee, made.hash, made.text, seen)
        site.echo, site.form, site.status, site.handled = made.echo, made.form, made.status, made.handled
        site.raw = True
        _reach(site, reach, made.chain, "Exception", None)
        site.arrivals = ()
        site.today = _status_of(made, (file.path, made.function) in routes)
        site.asked = site.request_path == "yes"
        yield site


def _site(
    kind: Kind, path: str, line: int, function: str, exception: str, message: str, text: str,
    seen: "Counter[tuple[str, str, str, str]]",
) -> Site:  # fmt: skip
    key = (path, function, exception, message)
    seen[key] += 1
    return Site(kind, path, line, function, exception, message, seen[key], fingerprint(*key, seen[key]), text)


def _reach(site: Site, reach: Reach, chain: int, exception: str, status: int | None) -> None:
    arrivals = reach.arrivals(site.path, site.function, chain, exception, status)
    counts = Counter(arrival.boundary.kind for arrival in arrivals)
    site.boundaries = dict(sorted(counts.items()))
    arrivals.sort(key=lambda arrival: (bool(arrival.guesses), len(arrival.steps), arrival.boundary.name))
    shown: dict[tuple[str, int | None], Arrival] = {}
    for arrival in arrivals:
        shown.setdefault((arrival.boundary.kind, arrival.today), arrival)
    rest = [arrival for arrival in arrivals if arrival not in shown.values()]
    site.arrivals = tuple([*shown.values(), *rest][:SHOWN_BOUNDARIES])
    site.today = tuple(sorted({arrival.today for arrival in arrivals if arrival.today is not None}))
    site.request_path = _request_path(site)


def _request_path(site: Site) -> str:
    if site.path.startswith("entrypoints/"):
        return "yes"
    kinds = set(site.boundaries)
    in_model = within(site.path, MODEL_MODULES)
    if not in_model:
        return "yes" if kinds & REQUEST_KINDS else "model" if "model" in kinds else "no"
    if not kinds & (REQUEST_KINDS | {"model"}):
        return "no"
    return "yes" if VALIDATOR_NAMES.search(site.function) else "model"


def _answers(action: Action) -> int | None:
    """The status that an action of an except clause answers with."""
    if action.what in ("raises", "responds") and action.status is None and action.detail in DEFAULT_RESPONSES:
        return DEFAULT_RESPONSE_STATUS
    return action.status


def _status_of(made: Response, in_route: bool) -> tuple[int, ...]:
    """The status that a client sees of a response: of one that a route returns as it is, FastAPI sends 200."""
    if made.form == "returned" and in_route and made.callee in (*DEFAULT_RESPONSES, "ErrorResponse"):
        return (200,)
    if made.form not in ("json", "built", "returned"):
        return ()
    if made.status is None and made.callee in DEFAULT_RESPONSES:
        return (DEFAULT_RESPONSE_STATUS,)
    return (made.status,) if made.status is not None else ()


def _only_passes_on(clause: Handler) -> bool:
    return bool(clause.actions) and all(action.what == "raises" and not action.detail for action in clause.actions)


def _said(what: str, detail: str, status: int | None) -> str:
    return " ".join(
        word for word in (what, detail or ("it again" if what == "raises" else ""), str(status or "")) if word
    )


def _pair(sites: Iterable[Site]) -> None:
    groups: dict[str, list[Site]] = defaultdict(list)
    for site in sites:
        if site.kind != "except" and site.text != NO_MESSAGE and site.text[:1] != "<":
            groups[site.message].append(site)
    for message, group in groups.items():
        if len(group) > 1 and sum(letter.isalpha() for letter in group[0].text.replace("{}", "")) >= TWIN_LETTERS:
            for site in group:
                site.twin = message


def _note_caught(
    site: Site, caught: dict[tuple[str, int], str], raises: dict[tuple[str, int], str], reach: Reach
) -> None:
    prints = [raises[key] for key in caught]
    site.catches = tuple(sorted(prints)[:SHOWN_CAUGHT])
    site.client_errors = tuple(
        sorted(raises[key] for key, exception in caught.items() if "OmniClientError" in reach.parents(exception))
    )
    fallout = bool(site.client_errors) and "ValueError" in site.exception.split(", ")
    site.asked = site.asked or (fallout and set(site.does) != {"raises it again"})
