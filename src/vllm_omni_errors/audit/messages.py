# SPDX-License-Identifier: Apache-2.0
"""A message's identity: its text with every hole as ``{}``, and the hash of that."""

import ast
import hashlib
import re
import tokenize
from collections.abc import Iterable
from io import BytesIO
from itertools import accumulate
from typing import Any, NamedTuple

NO_MESSAGE = "<none>"
HASH_DIGITS = 12

_CONSTANT = frozenset({ast.Constant, ast.MatchSingleton, ast.Load, ast.Store, ast.Del, str, int, type(None)})
_SPACE = re.compile(r"\s+")
_LITERAL_START = re.compile(r"""([A-Za-z]{0,2})('''|\"\"\"|'|")""")
_PLAIN = re.compile(r"""[^\\{}'"]+""")
_PLAIN_IN_HOLE = re.compile(r"""[^\[\](){}'"]+""")
_FILLER = re.compile(r"(?:\s+|#[^\n]*|\\\n)+")


def as_parsed(text: bytes) -> bytes:
    """A file's bytes as the parser counts them: UTF-8, without a mark at the start, lines ended by a line feed.

    Raises SyntaxError or UnicodeDecodeError if the text is not in the encoding that it says it is in.
    """
    encoding, _ = tokenize.detect_encoding(BytesIO(text).readline)
    if encoding != "utf-8":
        text = text.decode(encoding).encode()
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class Source:
    """The text of one file (`as_parsed`), with the places of its nodes; the parser counts columns in bytes."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._starts: list[int] | None = None

    def offset(self, line: int, column: int) -> int:
        """Place in `text`, in bytes, of a line (from 1) and a column (in bytes, from 0)."""
        if self._starts is None:
            self._starts = [*accumulate(map(len, self.text.splitlines(keepends=True)), initial=0)]
        return self._starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Start and end of an expression, without parentheses around it, or of a statement."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def between(self, start: int, end: int) -> str:
        """The text of a span."""
        return self.text[start:end].decode("utf-8", "replace")


class Message(NamedTuple):
    """The text that a site is made with, and what it shows of values.

    Attributes:
        text: the normalized text.
        hash: first 12 hexadecimal digits of its SHA-256.
        echo: how values get into it: ``f-string``, ``!r``, ``%``, ``.format``, ``exception`` (the text of a caught
            exception), ``other`` (an expression whose value the source does not tell).
    """

    text: str
    hash: str
    echo: tuple[str, ...]


def made_of(text: str, echo: Iterable[str] = ()) -> Message:
    """A message by its normalized text, which is shown with surrogates as escapes: they cannot be encoded."""
    return Message(text.encode("utf-8", "backslashreplace").decode(), hash_of(text), tuple(sorted(echo)))


def hash_of(text: str) -> str:
    """First 12 hexadecimal digits of the SHA-256 of a normalized text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]


def message_of(call: ast.Call) -> ast.expr | None:
    """The text that a raise or an error response is built with: detail=, message=, or the positional argument."""
    for keyword in call.keywords:
        if keyword.arg in ("detail", "message"):
            return keyword.value
    plain = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    index = 1 if _last_name(call.func).endswith("HTTPException") else 0
    return plain[index] if len(plain) > index else None


def normalized(source: Source, node: ast.expr | None, within: tuple[int, int]) -> str:
    """A message with every hole as ``{}``; quotes, line breaks and layout do not matter.

    Args:
        source: the file.
        node: the message.
        within: the span that parentheses around the message may stand in.
    """
    match node:
        case None:
            return NO_MESSAGE
        case ast.Constant(value=str() | bytes()):
            return str(node.value)
        case ast.JoinedStr():
            return _literals(source.between(*source.span(node)))
        case ast.BinOp(op=ast.Add()):
            start, end = _with_parentheses(source, node, within)
            left, right = source.span(node.left)[1], source.span(node.right)[0]
            return normalized(source, node.left, (start, right)) + normalized(source, node.right, (left, end))
    return "<" + _SPACE.sub(" ", source.between(*_with_parentheses(source, node, within)).strip()) + ">"


def message(source: Source, call: ast.Call | None, caught: str | None = None) -> Message:
    """The message of a raise or of an error response.

    Args:
        source: the file.
        call: the call that makes it, or None if a class is raised without one.
        caught: name of the exception that is being handled there.
    """
    node = message_of(call) if call is not None else None
    if call is None or node is None:
        return made_of(NO_MESSAGE)
    start, end = source.span(call)
    opening = source.text.index(b"(", source.span(call.func)[1]) + 1
    if source.text.rfind(b")", start, opening) > source.span(call.func)[1]:  # a parenthesized callee
        opening = source.span(node)[0]
    return made_of(normalized(source, node, (opening, end - 1)), echo_of(node, caught))


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _with_parentheses(source: Source, node: ast.expr, within: tuple[int, int]) -> tuple[int, int]:
    """A node's span with the parentheses that belong to it: LibCST counts them in."""
    start, end = source.span(node)
    lowest, highest = within
    if start < lowest:  # a generator as the only argument counts the call's parentheses as its own
        return lowest, highest
    while True:
        before = _rstrip(source.text[lowest:start])
        after = source.between(end, highest)
        filler = _FILLER.match(after)
        skipped = filler.end() if filler else 0
        if not before.endswith(b"(") or not after[skipped:].startswith(")"):
            return start, end
        start = lowest + len(before) - 1
        end += len(after[: skipped + 1].encode())


def _rstrip(text: bytes) -> bytes:
    """Text without the white space and the comments at its end."""
    while True:
        shorter = text.rstrip(b" \t\r\n\f\\")
        line = shorter.rfind(b"\n") + 1
        comment = shorter.find(b"#", line)
        if comment == -1:
            return shorter
        text = shorter[:comment]


def _literals(text: str) -> str:
    """Adjacent string literals: what they say, with ``{}`` for each hole of a formatted one, whose text stays raw."""
    parts, place = [], 0
    while place < len(text):
        filler = _FILLER.match(text, place)
        if filler:
            place = filler.end()
            continue
        start = _LITERAL_START.match(text, place)
        if start is None:  # a parenthesis between them
            place += 1
            continue
        prefix, quote = start.groups()
        if "f" in prefix.lower():
            said, place = _formatted(text, start.end(), quote, raw="r" in prefix.lower())
            parts.append(said)
        else:
            end = _end_of_string(text, start.end(), quote)
            said = text[start.end() : end - len(quote)]
            plain = not prefix and "\\" not in said
            parts.append(said if plain else str(ast.literal_eval(text[place:end])))
            place = end
    return "".join(parts)


def _end_of_string(text: str, place: int, quote: str) -> int:
    while not text.startswith(quote, place):
        place += 2 if text[place] == "\\" else 1
    return place + len(quote)


def _formatted(text: str, place: int, quote: str, *, raw: bool) -> tuple[str, int]:
    """The text of one formatted string from after its quote on, and where it ends."""
    said: list[str] = []
    while not text.startswith(quote, place):
        plain = _PLAIN.match(text, place)
        if plain is not None:
            said.append(plain.group())
            place = plain.end()
            continue
        two = text[place : place + 2]
        if two in ("{{", "}}"):
            said.append(two)
            place += 2
        elif two.startswith("\\") and not raw and text.startswith("N{", place + 1):
            end = text.index("}", place) + 1
            said.append(text[place:end])
            place = end
        elif two.startswith("\\") and two[1:] not in ("{", "}"):
            said.append(two)
            place += 2
        elif two.startswith("{"):
            said.append("{}")
            place = _end_of_hole(text, place + 1)
        else:
            said.append(text[place])
            place += 1
    return "".join(said), place + len(quote)


def _end_of_hole(text: str, place: int) -> int:
    """Where a replacement field ends, given where it starts: brackets nest, and strings within it may hold any."""
    depth = 1
    while depth:
        plain = _PLAIN_IN_HOLE.match(text, place)
        if plain is not None:
            place = plain.end()
        start = _LITERAL_START.match(text, place)
        if start is not None and not start.group(1):
            # A format specification holds no string, and an expression no apostrophe outside of one.
            place = _end_of_string(text, start.end(), start.group(2))
            continue
        depth += {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(text[place], 0)
        place += 1
    return place


def children(node: ast.AST) -> list[Any]:
    """The nodes directly below one, in order, without constants; the node is no constant itself."""
    found = []
    for value in vars(node).values():
        if value.__class__ is list:
            found += [item for item in value if item.__class__ not in _CONSTANT]
        elif value.__class__ not in _CONSTANT:
            found.append(value)
    return found


def echo_of(node: ast.expr, caught: str | None) -> set[str]:
    """How values get into a message (`Message.echo`)."""
    found: set[str] = set()
    parts: list[Any] = [] if isinstance(node, ast.Constant) else [node]
    for part in parts:
        kind = part.__class__
        if kind is ast.Name:
            if part.id == caught:
                found.add("exception")
            continue
        if kind is ast.FormattedValue:
            found.add("f-string")
            if part.conversion == ord("r"):
                found.add("!r")
        elif kind is ast.BinOp and isinstance(part.op, ast.Mod):
            found.add("%")
        elif kind is ast.Call:
            function = part.func
            if isinstance(function, ast.Attribute) and function.attr == "format":
                found.add(".format")
            elif isinstance(function, ast.Name) and function.id == "repr":
                found.add("!r")
        parts += children(part)
    if not found and not (isinstance(node, ast.Constant) or _only_text(node)):
        found.add("other")
    return found


def _only_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _only_text(node.left) and _only_text(node.right)
    return isinstance(node, (ast.Constant, ast.JoinedStr))
