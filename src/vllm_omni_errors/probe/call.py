# SPDX-License-Identifier: Apache-2.0
"""A request, or a conversation, as data: what is sent, what is shown of it, and the command that sends it again."""

import base64
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BODY_SHOWN_CHARACTERS = 2_000
MESSAGE_SHOWN_CHARACTERS = 600
# Longer texts and lists are written as a product in the command, when they are one.
LITERAL_CHARACTERS = 200
LITERAL_ITEMS = 20
PERIOD_CHARACTERS = 64
COMMAND_CHARACTERS = 6_000
HIDDEN = "<not shown>"


@dataclass(frozen=True, slots=True)
class File:
    """One uploaded file of a multipart form."""

    field: str
    name: str
    content: bytes
    content_type: str = "image/png"


@dataclass(frozen=True, slots=True)
class Call:
    """One request. At most one of `json`, `content` and `form` (with `files`) is set.

    `route` is the route's template where the path is made from one. `official`: sent by the official client.
    """

    method: str
    path: str
    json: Any = None
    content: bytes | None = None
    form: Mapping[str, str] | None = None
    files: tuple[File, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    route: str = ""
    official: bool = False

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for `httpx.AsyncClient.build_request`."""
        arguments: dict[str, Any] = {"headers": dict(self.headers)}
        if self.json is not None:
            arguments["content"] = json.dumps(self.json).encode()
            arguments["headers"].setdefault("Content-Type", "application/json")
        elif self.content is not None:
            arguments["content"] = self.content
        elif self.form is not None:
            # httpx sends a form without files as urlencoded; a field with no name of a file keeps it multipart.
            parts = [(name, (None, value)) for name, value in self.form.items()]
            arguments["files"] = [*parts, *((f.field, (f.name, f.content, f.content_type)) for f in self.files)]
        return arguments


@dataclass(frozen=True, slots=True)
class Talk(Call):
    """A conversation over a WebSocket; `method` is `WebSocket`.

    `sent`: each a text, bytes, or an object that is sent as JSON. `packed`: objects are msgpack in both directions.
    `errors`: so many error events are expected; `None`: the session should end by itself.
    """

    sent: tuple[Any, ...] = ()
    packed: bool = False
    errors: int | None = None


def socket(path: str, *sent: Any, packed: bool = False, errors: int | None = None, query: str = "") -> Talk:
    """A conversation that sends these messages."""
    return Talk("WebSocket", path, query=query, sent=sent, packed=packed, errors=errors)


def shown_message(message: Any) -> str:
    """A message of a socket for people, bounded."""
    text = message if isinstance(message, str | bytes) else json.dumps(message, ensure_ascii=False, default=repr)
    return bounded(repr(text) if isinstance(text, bytes) else text, MESSAGE_SHOWN_CHARACTERS)


def shown_body(call: Call) -> str:
    """The body for people, at most `BODY_SHOWN_CHARACTERS` and a note about the rest."""
    if isinstance(call, Talk):
        text = "\n".join(shown_message(message) for message in call.sent)
    elif call.json is not None:
        text = json.dumps(call.json, ensure_ascii=False)
    elif call.content is not None:
        text = call.content.decode("utf-8", "backslashreplace")
    elif call.form is not None:
        fields = [f"{name}={value}" for name, value in call.form.items()]
        uploads = [f"{f.field}=@{f.name} ({f.content_type}, {len(f.content)} bytes)" for f in call.files]
        text = "\n".join([*fields, *uploads])
    else:
        text = ""
    return bounded(text, BODY_SHOWN_CHARACTERS)


def bounded(text: str, characters: int) -> str:
    """`text`, or its first `characters` and how many there were."""
    return text if len(text) <= characters else f"{text[:characters]}… ({len(text):,} characters in all)"


def curl(call: Call, base_url: str, hidden_headers: Mapping[str, str] | None = None) -> str:
    """A POSIX shell command that sends `call` again, or a comment where it would be too long.

    The values of `hidden_headers` are left for the reader to fill in.
    """
    if isinstance(call, Talk):
        return f"# python -m websockets {base_url.replace('http', 'ws', 1)}{call.target}, then send the messages above"
    words = [
        "curl",
        "-sS",
        "-i",
        *(["-N"] if _streams(call) else []),
        "-X",
        call.method,
        shlex.quote(base_url + call.target),
    ]
    headers = {**dict.fromkeys(hidden_headers or (), HIDDEN), **call.headers}
    feed = ""
    if call.json is not None:
        headers.setdefault("Content-Type", "application/json")
        literal = json.dumps(call.json)
        if len(literal) > BODY_SHOWN_CHARACTERS:
            program = f"import json; print(json.dumps({_literal(call.json)}), end='')"
            feed, data = f"python3 -c {shlex.quote(program)} | ", "@-"
        else:
            data = shlex.quote(literal)
        words += ["--data-binary", data]
    elif call.content is not None:
        feed = f"printf %s {base64.b64encode(call.content).decode()} | base64 -d | "
        words += ["--data-binary", "@-"]
    elif call.form is not None:
        words += [
            part for name, value in call.form.items() for part in ("--form-string", shlex.quote(f"{name}={value}"))
        ]
        for file in call.files:
            feed = f"printf %s {base64.b64encode(file.content).decode()} | base64 -d | "
            words += ["-F", shlex.quote(f"{file.field}=@-;filename={file.name};type={file.content_type}")]
    words += [part for name, value in headers.items() for part in ("-H", shlex.quote(f"{name}: {value}"))]
    command = feed + " ".join(words)
    return command if len(command) <= COMMAND_CHARACTERS else f"# {call.method} {call.target}: too long for a command"


def _streams(call: Call) -> bool:
    return isinstance(call.json, dict) and bool(call.json.get("stream") or call.json.get("stream_format"))


def _literal(value: Any) -> str:
    """`value` as a Python expression in which repetition is a product."""
    if isinstance(value, str) and len(value) > LITERAL_CHARACTERS:
        for period in range(1, PERIOD_CHARACTERS + 1):
            unit = value[:period]
            count, rest = divmod(len(value), period)
            if value == unit * count + value[len(value) - rest :] and value[:rest] == value[len(value) - rest :]:
                return f"({unit!r} * {count} + {value[len(value) - rest :]!r})" if rest else f"({unit!r} * {count})"
        return repr(value)
    if isinstance(value, list):
        if len(value) > LITERAL_ITEMS and all(item == value[0] for item in value):
            return f"[{_literal(value[0])}] * {len(value)}"
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_literal(item)}" for key, item in value.items()) + "}"
    return repr(value)
