# SPDX-License-Identifier: Apache-2.0
"""What the tests of a real server share: sending a request, and seeing its answer and how it was counted."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

DEADLINE_S = 20.0
SETTLING_S = 2.0
"""The server counts a request when its response is over, which the client may see a little earlier."""

_SAMPLE = re.compile(r"^http_requests_total\{(?P<labels>.*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Call:
    """One request. At most one of ``json``, ``content`` and ``form`` (with ``files``) is its body."""

    method: str
    path: str
    json: Any = None
    content: bytes | None = None
    form: Mapping[str, Any] | None = None
    files: Sequence[tuple[str, tuple[str, bytes, str]]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Those of ``httpx.Client.request`` after the URL."""
        body: dict[str, Any] = {"headers": dict(self.headers)}
        if self.json is not None:
            body["json"] = self.json
        if self.content is not None:
            body["content"] = self.content
        if self.form is not None:
            body["data"] = dict(self.form)
            body["files"] = [*self.files] or {"nothing": (None, b"")}
        return body


def get(path: str) -> Call:
    return Call("GET", path)


def post(path: str, body: Any) -> Call:
    return Call("POST", path, json=body)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response, and by which status classes `http_requests_total` grew meanwhile."""

    status: int
    headers: httpx.Headers
    text: str
    counted: tuple[str, ...]

    @property
    def body(self) -> Any:
        """The body as JSON, or None if it is not."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    @property
    def error(self) -> dict[str, Any]:
        """The error object; empty if there is none."""
        return error_object(self.body)

    @property
    def shape(self) -> str:
        return shape(self.body)

    def events(self) -> list[Any]:
        """Each data of a stream of events, parsed; `[DONE]` as it is."""
        lines = [line.removeprefix("data: ") for line in self.text.splitlines() if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


@dataclass(frozen=True, slots=True)
class Seen:
    """An answer: ``type`` and ``param`` of its error, ``shape`` of its body; ``counted`` as that status class."""

    status: int
    type: str | None
    param: str | None
    shape: str
    counted: str = field(compare=False)


def error_object(body: Any) -> dict[str, Any]:
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


FOUR = frozenset({"message", "type", "param", "code"})
SIX = FOUR | {"request_id", "error_stage_id"}
SHAPES = {
    FOUR: "four",
    SIX: "six",
    frozenset({"message", "type"}): "anthropic",
}
"""Keys of the error object → the name by which the tables here call it."""


def shape(body: Any) -> str:
    """By the keys under ``error`` (:data:`SHAPES`); else the body's own keys; ``-`` if it is no object."""
    error = error_object(body)
    if error:
        return SHAPES.get(frozenset(error), "error:" + ",".join(sorted(error)))
    return ",".join(sorted(body)) if isinstance(body, dict) else "-"


Counts = Counter[tuple[str, str]]
"""`(handler, status class)` → requests."""


def counters(url: str, client: httpx.Client) -> Counts:
    """`http_requests_total`, without the requests for the metrics themselves."""
    counts: Counts = Counter()
    for sample in _SAMPLE.finditer(client.get(f"{url}/metrics", timeout=DEADLINE_S).text):
        labels = dict(_LABEL.findall(sample["labels"]))
        if labels["handler"] != "/metrics":
            counts[labels["handler"], labels["status"]] += int(float(sample["value"]))
    return counts


def handler_of(path: str, handlers: Iterable[str]) -> str:
    """The label `handler` of requests for that path: the route's template, ``none`` for an unknown route."""
    path = path.partition("?")[0]
    for handler in sorted(handlers, key=lambda handler: handler.count("{")):  # a literal path before a template
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(handler)), path):
            return handler
    return "none"


def _once(url: str, call: Call, deadline_s: float) -> httpx.Response:
    with httpx.Client(timeout=deadline_s) as client:  # its own connection: a server error may close it
        return client.request(call.method, url + call.path, **call.arguments())


def observing() -> httpx.Client:
    """A client for the counters: a connection for each request, since the server closes one that is idle for 5 s."""
    return httpx.Client(limits=httpx.Limits(max_keepalive_connections=0))


def growth(url: str, before: Counts, requests: int, observer: httpx.Client) -> Counts:
    """How the counters grew, as soon as they have grown by so many requests."""
    give_up = time.monotonic() + SETTLING_S
    while (change := counters(url, observer) - before).total() < requests and time.monotonic() < give_up:
        time.sleep(0.05)
    return change


def send(url: str, call: Call, deadline_s: float = DEADLINE_S) -> Answer:
    """Send one request to an otherwise idle server. Raises `httpx.TimeoutException` if no whole answer comes."""
    with observing() as observer:
        before = counters(url, observer)
        response = _once(url, call, deadline_s)
        change = growth(url, before, 1, observer)
    counted = tuple(sorted(status for _, status in change.elements()))
    return Answer(response.status_code, response.headers, response.text, counted)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to several requests by name, and how `http_requests_total` grew over all of them."""

    calls: Mapping[str, Call]
    by_name: Mapping[str, Answer]
    counted: Counts

    def expected(self, classes: Mapping[str, str]) -> Counts:
        """How it should have grown: ``classes`` holds a status class for each name."""
        handlers = {handler for handler, _ in self.counted}
        return Counter(
            ("none" if answer.status == 405 else handler_of(self.calls[name].path, handlers), classes[name])
            for name, answer in self.by_name.items()
        )


def send_all(url: str, calls: Mapping[str, Call], at_once: int = 4) -> Answers:
    """Send several requests to an otherwise idle server, a few at a time; no answer in time is status 0."""

    def one(call: Call) -> Answer:
        try:
            response = _once(url, call, DEADLINE_S)
        except httpx.HTTPError as error:
            return Answer(0, httpx.Headers(), repr(error), ())
        return Answer(response.status_code, response.headers, response.text, ())

    with observing() as observer, ThreadPoolExecutor(at_once) as pool:
        before = counters(url, observer)
        answers = dict(zip(calls, pool.map(one, calls.values()), strict=True))
        return Answers(calls, answers, growth(url, before, len(calls), observer))


class Titled(Protocol):
    """A row of a table of requests."""

    @property
    def title(self) -> str: ...
    @property
    def call(self) -> Call: ...


def answers_of(url: str, rows: Iterable[Titled]) -> Answers:
    """The answers to a table's requests, by their titles."""
    return send_all(url, {row.title: row.call for row in rows})


def seen(answer: Answer) -> Seen:
    """What a table row holds of an answer."""
    error = answer.error
    shape = answer.shape if answer.status >= 400 else ""
    return Seen(answer.status, error.get("type"), error.get("param"), shape, ",".join(answer.counted))
