# SPDX-License-Identifier: Apache-2.0
"""What one file says about errors, and about who calls whom: plain records that a cache can hold.

The counting rule, for the whole audit:

- Every ``*.py`` file of the package is read, whatever its name.
- A *raise* is one ``raise`` statement. Its type is the last name of the class, after imports and assignments that only
  rename it; ``(bare)`` without an operand, ``(variable)`` if what is raised has a lower-case name, ``(expression)``
  for anything else.
- An *except* is one clause, ``except*`` too. One that names several types counts once, under each of them.
- A *response* is one place that makes an error answer without raising; its form says which (`FORMS`).
"""

import msgspec

BARE, VARIABLE, EXPRESSION = "(bare)", "(variable)", "(expression)"

FORMS: dict[str, str] = {
    "returned": "an error response that is returned; what sends it has to add the status",
    "built": "an error response that is made and used in another way",
    "json": "a response with an error status or an error body, made by hand",
    "dict": "a dict with an error in it, made by hand",
    "sse": "an event of a stream, made by hand",
    "websocket": "an error sent on a socket, or its close",
    "message": "an `ErrorMessage` between processes",
    "fields": "flat error fields of an output",
}

NO_CHAIN = -1
DETACHED, STREAMED, REFERENCE = 1, 2, 4  # flags of a call


class Raise(msgspec.Struct, array_like=True):
    """A ``raise``; `chain` is the innermost try statement whose body it stands in, and `made` the expression that makes
    what a ``(variable)`` raises."""

    line: int
    function: str
    exception: str
    text: str
    hash: str
    echo: tuple[str, ...]
    chain: int
    handled: tuple[str, ...] | None
    status: int | None
    made: str


class Action(msgspec.Struct, array_like=True):
    """What an except clause does: ``raises`` (with a type, bare if empty), ``responds``, ``sends``, ``breaks``."""

    what: str
    detail: str
    status: int | None


class Handler(msgspec.Struct, array_like=True):
    """An except clause."""

    line: int
    function: str
    types: tuple[str, ...]
    hash: str
    actions: tuple[Action, ...]
    chain: int


class Chain(msgspec.Struct, array_like=True):
    """A try statement: the one around it, and its clauses in order, as places in `File.handlers`."""

    outer: int
    handlers: tuple[int, ...]


class Response(msgspec.Struct, array_like=True):
    """A place that makes an error answer without raising."""

    line: int
    function: str
    form: str
    callee: str
    text: str
    hash: str
    echo: tuple[str, ...]
    chain: int
    handled: tuple[str, ...] | None
    status: int | None


class Call(msgspec.Struct, array_like=True):
    """A call, or with REFERENCE a function handed over; `callee` is dotted, ``()`` for calls and ``[]`` for items."""

    callee: str
    line: int
    chain: int
    flags: int


class Function(msgspec.Struct, array_like=True):
    """A function; `name` is qualified. `types` says for names in it what they may hold: an annotation's names, or the
    callee of the call that made them with ``()`` at its end."""

    name: str
    line: int
    cls: str
    is_async: bool
    is_generator: bool
    decorators: tuple[str, ...]
    returns: tuple[str, ...]
    calls: list[Call]
    types: dict[str, tuple[str, ...]]


class Route(msgspec.Struct, array_like=True):
    """A function that a web framework calls."""

    function: str
    method: str
    path: str


class Class(msgspec.Struct, array_like=True, eq=False):
    """A class, with the types of its attributes as in `Function.types`."""

    name: str
    line: int
    bases: tuple[str, ...]
    attributes: dict[str, tuple[str, ...]]
    properties: tuple[str, ...]


class File(msgspec.Struct, array_like=True):
    """Everything of one file; `problem` if it does not parse."""

    path: str
    lines: int
    raises: list[Raise] = []
    handlers: list[Handler] = []
    chains: list[Chain] = []
    responses: list[Response] = []
    functions: list[Function] = []
    classes: list[Class] = []
    routes: list[Route] = []
    imports: dict[str, str] = {}
    problem: str | None = None
