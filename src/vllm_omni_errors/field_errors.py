# SPDX-License-Identifier: Apache-2.0
"""What a failed validation of a request body may say: where and what, never the input (contract, section 3)."""

import re
from collections.abc import Callable, Mapping, Sequence

from . import public_text

MAX_ERRORS = 10
MAX_ERROR_CHARACTERS = 300
INVALID = "The request is not valid."

_REWORDED = {
    "json_invalid": "The body is not valid JSON",
    "union_tag_invalid": "The tag is not one of those expected",  # pydantic's own text quotes the tag that came
}
_REQUEST_PARTS = ("body", "cookie", "header", "path", "query")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_SCHEMA_WORDS = public_text.words(
    "any arguments bool bytearray bytes call callable chain complex dataclass date datetime decimal default dict float "
    "frozenset generator int json lax list literal model model-fields none nullable set str strict tuple typed-dict "
    "union url uuid"
)
"""Branches of pydantic's schema that stand in a location beside the fields."""


_OWN_WORDS = ("value_error", "assertion_error")
MAX_VALUES = 50
SHORTEST_VALUE_CHARACTERS = 4
"""A shorter one is a number or a word that the text may have anyway."""


def describe(errors: object) -> tuple[str, str | None]:
    """Message and parameter of ``ValidationError.errors()``: its first 10 entries, and the first field's path.

    Entries may be plain strings: vLLM raises ``RequestValidationError`` with such. Total: anything unexpected gives
    the text :data:`INVALID`.
    """
    if not isinstance(errors, Sequence) or isinstance(errors, str | bytes) or not errors:
        return INVALID, None
    lines = [_line(error) for error in errors[:MAX_ERRORS]]
    if len(errors) > MAX_ERRORS:
        lines.append(f"and {len(errors) - MAX_ERRORS} more")
    return "; ".join(lines), next(filter(None, map(_parameter, errors[:MAX_ERRORS])), None)


def errors_of(exc: BaseException) -> object:
    """``exc.errors()``, without what pydantic can be asked to leave out; None if there is none or it fails."""
    method = getattr(exc, "errors", None)
    if not callable(method):
        return None
    return _first_result(
        lambda: method(include_url=False, include_context=False, include_input=False),
        method,
    )


def _first_result(*attempts: Callable[[], object]) -> object:
    for attempt in attempts:
        try:
            return attempt()
        except Exception:
            continue
    return None


def _line(error: object) -> str:
    if isinstance(error, str):
        return public_text.shorten(error, MAX_ERROR_CHARACTERS).strip() or INVALID
    if not isinstance(error, Mapping):
        return INVALID
    text = _REWORDED.get(str(error.get("type")), error.get("msg"))
    if error.get("type") in _OWN_WORDS and isinstance(text, str):
        text = _without(text, error.get("input"))
    text = public_text.shorten(text, MAX_ERROR_CHARACTERS) if isinstance(text, str) and text.strip() else INVALID
    path = _path(error)
    return f"{path}: {text}" if path else text


def _without(text: str, rejected: object) -> str:
    """A validator's own words without the value that it rejected, or those of the object that it rejected."""
    values = list(rejected.values())[:MAX_VALUES] if isinstance(rejected, Mapping) else [rejected]
    for value in values:
        if isinstance(value, str) and len(value) >= SHORTEST_VALUE_CHARACTERS:
            text = text.replace(value, "…")
    return text


def _path(error: Mapping[str, object]) -> str:
    location = error.get("loc")
    if not isinstance(location, tuple | list):
        return ""
    if error.get("type") == "json_invalid":
        location = location[:1]  # what follows is a position in the text
    fields = 2 if location[:1] and location[0] in _REQUEST_PARTS else 1  # at the start: `body.model`, `query.url`
    return ".".join(str(part) for depth, part in enumerate(location[:20]) if _is_field(part, named=depth < fields))


def _is_field(part: object, *, named: bool) -> bool:
    if isinstance(part, int):
        return True
    if not isinstance(part, str) or not _FIELD.match(part):
        return False
    if named:
        return True
    return part.lower() not in _SCHEMA_WORDS and not part.startswith("function-") and "-or-" not in part


def _parameter(error: object) -> str | None:
    return (_path(error) or None) if isinstance(error, Mapping) else None
