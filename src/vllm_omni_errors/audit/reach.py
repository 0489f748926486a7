# SPDX-License-Identifier: Apache-2.0
"""From which boundary a site can be reached, which clause catches it on the way, and what the client sees of it today.

A boundary is where an exception meets what is not the tree's own code: a route, a stream, a socket, a job, an offline
call, a stage process. A site's answer is read along the nearest path to each boundary that leads to it; another path
may end differently. Whatever is not certain is listed under `Arrival.guesses`.
"""

import fnmatch
import heapq
import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import msgspec

from vllm_omni_errors.audit.facts import DETACHED, NO_CHAIN, VARIABLE, Action, File, Handler, Raise
from vllm_omni_errors.audit.graph import Graph
from vllm_omni_errors.audit.vocabulary import parents_of
from vllm_omni_errors.catalogue import CATALOGUE

GUESS_COST = 8
"""A path with one guess is taken only where every certain one has more than so many calls more."""
SHOWN_BOUNDARIES = 6
ESCAPE_DEPTH = 24
SHOWN_STEPS = 12

BOUNDARY_KINDS: dict[str, str] = {
    "route": "an HTTP route",
    "stream": "a stream whose headers are sent",
    "socket": "a WebSocket",
    "job": "a job that outlives its request",
    "task": "a task of the API process",
    "offline": "a call of the offline API",
    "stage": "an engine's, a stage's or a worker's own loop",
    "model": "a method that a framework calls on a model",
    "command": "the command line",
}
REQUEST_KINDS = frozenset({"route", "stream", "socket", "job", "task", "offline", "stage"})

OFFLINE_MODULES = ("entrypoints/*.py",)
OFFLINE_CLASSES = re.compile(r"^(?:Async)?(?:Duplex)?Omni$")
COMMAND_MODULES = ("entrypoints/cli/*", "benchmarks/*")
STAGE_FUNCTIONS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("*/stage_input_processors/*", re.compile(r"^[a-z]\w*$")),
    ("diffusion/models/*", re.compile(r"^get_\w+_process_func$")),
    ("diffusion/models/*", re.compile(r"^\w*Pipeline\w*\.(?:__call__|forward|generate|(?:prepare|denoise|post)_\w+)$")),
    ("diffusion/*", re.compile(r"^\w*(?:Worker|Runner|Engine|Executor|Proc|Scheduler)\w*\.(?:[a-z]\w*|__call__)$")),
    ("engine/*", re.compile(r"^\w*(?:Orchestrator|Proc|Client|Pool|Router|Controller|Manager)\w*\.[a-z]\w*$")),
    ("core/*", re.compile(r"^\w*Scheduler\w*\.[a-z]\w*$")),
    ("worker*/*", re.compile(r"^\w*(?:Worker|Runner)\w*\.[a-z]\w*$")),
)  # fmt: skip
MODEL_MODULES = ("diffusion/models/*", "model_executor/models/*", "model_executor/layers/*", "diffusion/layers/*")
START_UP = re.compile(
    r"(?:^|\.)(?:__init__|from_\w+|load_\w+|initialize_\w*|init_\w+|warm_?up\w*|profile\w*|add_cli_args)$"
)
"""Functions that run before the first request: no path to a client begins in them."""
STREAM_MODULES = ("entrypoints/openai/*",)
DETACHING_MODULES = ("engine/*", "diffusion/*", "worker/*", "distributed/*")
VALIDATOR_NAMES = re.compile(
    r"(?:^|\.)_*(?:check_inputs?|validate\w*|check_\w*|parse_\w*|coerce_\w*|resolve_\w*|normalize_\w*)$"
)


@cache
def within(path: str, globs: tuple[str, ...]) -> bool:
    """Whether a path matches one of some patterns; ``*`` matches ``/`` too."""
    return any(fnmatch.fnmatchcase(path, glob) for glob in globs)


@cache
def _stage_patterns(path: str) -> tuple[re.Pattern[str], ...]:
    return tuple(pattern for glob, pattern in STAGE_FUNCTIONS if fnmatch.fnmatchcase(path, glob))


class Boundary(msgspec.Struct, frozen=True, array_like=True):
    """Where an exception leaves the tree's own code."""

    kind: str
    name: str
    function: str


class Arrival(msgspec.Struct, array_like=True):
    """What becomes of a site's exception at one boundary.

    Attributes:
        boundary: which.
        steps: functions on the nearest path, boundary first.
        clauses: ``path:line``, types and doing of the clauses that catch it on the way, innermost first.
        caught_by: ``path:line`` and types of the clause that ends it, or None.
        today: the HTTP status that the client sees, or None.
        outcome: what happens today, in a few words.
        guesses: why the answer may be wrong; empty if nothing was guessed.
    """

    boundary: Boundary
    steps: tuple[str, ...]
    clauses: tuple[str, ...]
    caught_by: str | None
    today: int | None
    outcome: str
    guesses: tuple[str, ...]


class _Step(NamedTuple):
    caller: int
    chain: int
    guess: str


class _Way(NamedTuple):
    boundary: Boundary
    root: int
    before: dict[int, _Step | None]


class Reach:
    """The boundaries of a tree, and what each leads to."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._defined = graph.exception_bases()
        self._parents: dict[str, tuple[str, ...]] = {}
        self._escaping: dict[int, dict[tuple[str, int], str]] = {}
        self._raises_of: dict[tuple[str, str], list[int]] = {}
        for path, file in graph.files.items():
            for number, site in enumerate(file.raises):
                self._raises_of.setdefault((path, site.function), []).append(number)
        self._ways = self._all_ways()
        self._through: dict[int, list[int]] = {}
        for number, way in enumerate(self._ways):
            for place in way.before:
                self._through.setdefault(place, []).append(number)

    def parents(self, name: str) -> tuple[str, ...]:
        """A type with its parents."""
        if name not in self._parents:
            self._parents[name] = parents_of(name, self._defined)
        return self._parents[name]

    def type_of(self, path: str, site: Raise) -> str:
        """The type of a raise: where it is ``(variable)``, that of the expression that makes it, if that is known."""
        if site.exception != VARIABLE or not site.made:
            return site.exception
        if site.made.startswith("="):
            return site.made[1:]
        place = self._place(path, site.function)
        names = self.graph.types_of(place, site.made) if place is not None else ()
        return names[0] if len(names) == 1 else site.exception

    @property
    def boundaries(self) -> list[Boundary]:
        """All of them."""
        return [way.boundary for way in self._ways]

    def kinds(self, path: str, function: str) -> tuple[str, ...]:
        """Kinds of the boundaries that lead to a function."""
        place = self._place(path, function)
        found = (
            {self._ways[number].boundary.kind for number in self._through.get(place, ())}
            if place is not None
            else set()
        )
        return tuple(kind for kind in BOUNDARY_KINDS if kind in found)

    def arrivals(self, path: str, function: str, chain: int, exception: str, status: int | None) -> list[Arrival]:
        """What becomes of an exception raised in a function, at each boundary that leads to it.

        Args:
            path: the file.
            function: its qualified name.
            chain: the innermost try statement around the raise.
            exception: the type's last name.
            status: the HTTP status that it carries, if the source spells it out.
        """
        place = self._place(path, function)
        if place is None:
            return []
        return [
            self._arrival(self._ways[number], place, chain, exception, status)
            for number in self._through.get(place, ())
        ]

    def _place(self, path: str, function: str) -> int | None:
        while True:
            place = self.graph.index.get((path, function))
            if place is not None:
                return place if function else None
            if not function:
                return None
            function = function.rpartition(".")[0]

    # ---- boundaries ----

    def _all_ways(self) -> list[_Way]:
        roots: dict[int, Boundary] = {}
        routes: list[tuple[Boundary, int]] = []
        for file in self.graph.files.values():
            for route in file.routes:
                place = self.graph.index.get((file.path, route.function))
                if place is not None and not within(file.path, COMMAND_MODULES):
                    kind = "socket" if route.method == "WS" else "route"
                    name = f"{route.method} {route.path}"
                    routes.append((Boundary(kind, name, self.graph.functions[place].title), place))
        ways = [_Way(boundary, place, self._before([place])) for boundary, place in routes]
        near = {place for way in ways for place in way.before}
        jobs: dict[int, Boundary] = {}
        for place in sorted(near):
            for edge in self.graph.edges[place]:
                if edge.flags & DETACHED and self.graph.functions[place].path.startswith("entrypoints/"):
                    target = self.graph.functions[edge.target]
                    job = any(place == way.root for way in ways if way.boundary.kind == "route")
                    jobs[edge.target] = Boundary("job" if job else "task", target.function.name, target.title)
        ways += [_Way(boundary, place, self._before([place])) for place, boundary in jobs.items()]
        for kind, found in self._groups().items():
            roots = {place: Boundary(kind, self.graph.functions[place].function.name, self.graph.functions[place].title)
                     for place in found}  # fmt: skip
            ways += self._grouped(roots)
        return ways

    def _groups(self) -> dict[str, list[int]]:
        """Boundaries by their names and places, for those that nothing in the source marks."""
        groups: dict[str, list[int]] = {"offline": [], "stage": [], "model": [], "command": []}
        for place, node in enumerate(self.graph.functions):
            name = node.function.name
            if not name or START_UP.search(name):
                continue
            owner, _, last = name.rpartition(".")
            if (
                within(node.path, OFFLINE_MODULES)
                and node.path.count("/") == 1
                and OFFLINE_CLASSES.match(owner)
                and not last.startswith("_")
            ):
                groups["offline"].append(place)
            elif any(pattern.match(name) for pattern in _stage_patterns(node.path)):
                groups["stage"].append(place)
            elif within(node.path, MODEL_MODULES) and owner and not last.startswith("_"):
                if "." not in owner:
                    groups["model"].append(place)
            elif within(node.path, COMMAND_MODULES) and not owner:
                groups["command"].append(place)
        for node in self.graph.functions:
            if within(node.path, DETACHING_MODULES):
                here = self.graph.index[node.path, node.function.name]
                groups["stage"] += [edge.target for edge in self.graph.edges[here] if edge.flags & DETACHED]
        return groups

    def _grouped(self, roots: dict[int, Boundary]) -> list[_Way]:
        """One search for a whole group of boundaries; each function belongs to the nearest."""
        before = self._before(list(roots))
        owner: dict[int, int] = {}
        ways = {root: _Way(boundary, root, {}) for root, boundary in roots.items()}
        for place in before:
            trail = [place]
            while trail[-1] not in owner:
                step = before[trail[-1]]
                if step is None:
                    owner[trail[-1]] = trail[-1]
                else:
                    trail.append(step.caller)
            for visited in trail:
                owner[visited] = owner[trail[-1]]
            ways[owner[place]].before[place] = before[place]
        return list(ways.values())

    def _before(self, roots: Iterable[int]) -> dict[int, _Step | None]:
        """The step that leads to each function that can be reached, on the nearest path; None for a root."""
        done: dict[int, _Step | None] = {}
        heap: list[tuple[int, int, int, _Step | None]] = [(0, root, root, None) for root in roots]
        heapq.heapify(heap)
        edges = self.graph.edges
        while heap:
            cost, _, place, step = heapq.heappop(heap)
            if place in done:
                continue
            done[place] = step
            for edge in edges[place]:
                if edge.target not in done and not edge.flags & DETACHED:
                    further = cost + (GUESS_COST if edge.guess else 1)
                    heapq.heappush(heap, (further, place, edge.target, _Step(place, edge.chain, edge.guess)))
        return done

    # ---- what a clause catches ----

    def caught_below(self, path: str, handler: int) -> dict[tuple[str, int], str]:
        """What a clause catches: each raise, as ``(path, place in File.raises)``, and its type when it arrives.

        Follows every call that is certain, through any number of functions; recursion is followed once.
        """
        file = self.graph.files[path]
        statement = next(number for number, chain in enumerate(file.chains) if handler in chain.handlers)
        place = self._place(path, file.handlers[handler].function)
        found: dict[tuple[str, int], str] = {}
        if place is None:
            return found
        name = self.graph.functions[place].function.name
        for number, site in enumerate(file.raises):
            if site.function == name or site.function.startswith(name + "."):
                self._note(found, (path, number), file, site.chain, self.type_of(path, site), statement, handler)
        for edge in self.graph.edges[place]:
            if not edge.guess and not edge.flags & DETACHED and self._within(file, edge.chain, statement):
                for key, exception in self._escapes(edge.target, frozenset({place})).items():
                    self._note(found, key, file, edge.chain, exception, statement, handler)
        return found

    def _note(self, found: dict[tuple[str, int], str], key: tuple[str, int], file: File, chain: int, exception: str,
              statement: int, handler: int) -> None:  # fmt: skip
        while chain != NO_CHAIN:
            catching = self._catching([file.handlers[place] for place in file.chains[chain].handlers], exception)
            if chain == statement:
                if catching is file.handlers[handler]:
                    found.setdefault(key, exception)
                return
            if catching is not None:
                raised = _goes_on(catching, exception)
                if raised is None:
                    return
                exception = raised
            chain = file.chains[chain].outer

    @staticmethod
    def _within(file: File, chain: int, statement: int) -> bool:
        while chain not in (NO_CHAIN, statement):
            chain = file.chains[chain].outer
        return chain == statement

    def _escapes(self, place: int, seen: frozenset[int]) -> dict[tuple[str, int], str]:
        """The raises that leave a function, its own and those of what it calls, each with its type then."""
        if place in self._escaping:
            return self._escaping[place]
        if place in seen or len(seen) > ESCAPE_DEPTH:
            return {}
        node = self.graph.functions[place]
        found: dict[tuple[str, int], str] = {}
        for number in self._raises_of.get((node.path, node.function.name), ()):
            site = node.file.raises[number]
            left = self._leaves(node.file, site.chain, self.type_of(node.path, site))
            if left is not None:
                found[node.path, number] = left
        deeper = seen | {place}
        for edge in self.graph.edges[place]:
            if edge.guess or edge.flags & DETACHED:
                continue
            for key, exception in self._escapes(edge.target, deeper).items():
                if key not in found:
                    left = self._leaves(node.file, edge.chain, exception)
                    if left is not None:
                        found[key] = left
        self._escaping[place] = found
        return found

    def _leaves(self, file: File, chain: int, exception: str) -> str | None:
        while chain != NO_CHAIN:
            catching = self._catching([file.handlers[place] for place in file.chains[chain].handlers], exception)
            if catching is not None:
                raised = _goes_on(catching, exception)
                if raised is None:
                    return None
                exception = raised
            chain = file.chains[chain].outer
        return exception

    # ---- what becomes of an exception ----

    def _arrival(self, way: _Way, place: int, chain: int, exception: str, status: int | None) -> Arrival:
        functions = self.graph.functions
        guesses: list[str] = []
        steps: list[str] = []
        clauses: list[str] = []
        streams = False
        current, step_chain = place, chain
        result: tuple[str | None, int | None, str] | None = None
        while True:
            node = functions[current]
            steps.append(node.title)
            if result is None:
                caught, exception, status, outcome = self._through_function(
                    node.path, step_chain, exception, status, guesses, clauses
                )
                if outcome is not None:
                    result = (caught, status, outcome)
            if node.function.is_async and node.function.is_generator and within(node.path, STREAM_MODULES):
                streams = True
            step = way.before[current]
            if step is None:
                break
            if step.guess:
                guesses.append(step.guess)
            current, step_chain = step.caller, step.chain
        boundary = way.boundary
        if streams and boundary.kind == "route":
            boundary = Boundary("stream", boundary.name, boundary.function)
            guesses.append("whether the headers are sent by then")
        if boundary.kind == "task":
            guesses.append("who awaits the task")
        if boundary.kind in ("stage", "model"):
            guesses.append("what calls this boundary is not in the tree's own calls")
        if result is None:
            today, outcome = self._at_boundary(boundary.kind, exception, status)
            result = (None, today, outcome)
        elif boundary.kind not in ("route", "stream"):
            result = (result[0], None, result[2])
        steps.reverse()
        if len(steps) > SHOWN_STEPS:
            half = SHOWN_STEPS // 2
            steps = [*steps[:half], "…", *steps[-half:]]
        return Arrival(
            boundary, tuple(steps), tuple(clauses), result[0], result[1], result[2], tuple(dict.fromkeys(guesses))
        )

    def _through_function(
        self, path: str, chain: int, exception: str, status: int | None, guesses: list[str], clauses: list[str]
    ) -> tuple[str | None, str, int | None, str | None]:
        """An exception on its way out of the try statements of one function: the clause that ended it, the type and the
        status that it has now, and what became of it, or None if it leaves the function."""
        file = self.graph.files[path]
        while chain != NO_CHAIN:
            statement = file.chains[chain]
            chain = statement.outer
            handler = self._catching([file.handlers[place] for place in statement.handlers], exception)
            if handler is None:
                continue
            where = f"{path}:{handler.line} except {', '.join(handler.types)}"
            action = _deciding(handler.actions)
            if len({(a.what, a.detail) for a in handler.actions if a.what != "breaks"}) > 1:
                guesses.append(f"what {path}:{handler.line} does depends on a condition")
            clauses.append(f"{where}: {_words(action)}")
            match action:
                case Action(what="raises", detail=""):
                    continue
                case Action(what="raises"):
                    exception, status = action.detail, action.status
                    continue
                case Action(what="responds"):
                    return where, exception, *_responded(action, exception, self.parents(exception))
                case Action(what="sends"):
                    return where, exception, None, "an error event, or a message to another process"
            return where, exception, None, "the clause neither raises nor answers: the code goes on"
        return None, exception, status, None

    def _catching(self, handlers: list[Handler], exception: str) -> Handler | None:
        parents = self.parents(exception) if exception[:1] != "(" else ("Exception", "BaseException")
        for handler in handlers:
            if set(handler.types) & set(parents):
                return handler
        return None

    def _at_boundary(self, kind: str, exception: str, status: int | None) -> tuple[int | None, str]:
        """What vLLM and vLLM-Omni do with an exception that nothing caught (vLLM 0.27 and later)."""
        if kind in ("route", "stream"):
            seen = self.uncaught_status(exception, status)
            if kind == "stream":
                return seen, "ends a stream whose status is sent already; before the first byte, this status"
            return seen, f"rendered by vLLM's handlers as {seen or 'the status that it carries'}"
        if kind == "socket":
            return None, "the socket closes abnormally"
        if kind == "task":
            return None, "ends the task; whoever awaits it gets the exception"
        if kind == "job":
            return None, "the job fails, or is lost with the task"
        if kind == "offline":
            return None, f"raised to the caller as {exception}"
        if kind == "command":
            return None, "ends the command"
        client = "OmniClientError" in self.parents(exception)
        return (status or 400, "reported to the API process with its status") if client else (
            None, "reported to the API process as text, 500, or fatal to the stage")  # fmt: skip

    def uncaught_status(self, exception: str, status: int | None) -> int | None:
        """The status that stock answers an exception with which reaches a route's boundary; None if it is computed."""
        parents = self.parents(exception) if exception[:1] != "(" else ()
        if "HTTPException" in parents:
            return status
        rows = {row.exception: row.status for row in CATALOGUE}
        for name in parents:
            if name in ("ValueError", "TypeError", "OverflowError"):
                return 400
            if name == "NotImplementedError":
                return 501
            if name.startswith("VLLM") and name in rows:
                return rows[name]
        return 500


def _goes_on(handler: Handler, exception: str) -> str | None:
    """The type that leaves a clause, or None if none does."""
    action = _deciding(handler.actions)
    return None if action is None or action.what != "raises" else action.detail or exception


def _words(action: Action | None) -> str:
    if action is None:
        return "goes on"
    parts = (action.what, action.detail or ("it again" if action.what == "raises" else ""), str(action.status or ""))
    return " ".join(part for part in parts if part)


def _deciding(actions: tuple[Action, ...]) -> Action | None:
    """The action of a clause that the client notices most."""
    for what in ("responds", "sends"):
        for action in actions:
            if action.what == what and action.detail != "yield":
                return action
    raising = [action for action in actions if action.what == "raises"]
    if raising:
        return next((action for action in raising if action.detail), raising[0])
    return next((action for action in actions if action.what == "sends"), None)


def _responded(action: Action, exception: str, parents: tuple[str, ...]) -> tuple[int | None, str]:
    if action.detail == "_create_engine_error_json_response":
        return 500, "answered as an engine error"
    if action.status is not None:
        return action.status, f"answered with {action.status}"
    if action.detail in ("create_error_response", "_create_error_response"):
        return 400, "answered with 400, the default of an error response"
    if action.detail == "ErrorResponse":
        return 200, "an ErrorResponse without a status: 200 with the code in the body"
    return None, "answered with a status that is computed"
