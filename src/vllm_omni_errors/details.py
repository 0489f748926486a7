# SPDX-License-Identifier: Apache-2.0
"""The record that an error is, between processes and on every transport (RFC, section 2). Imports no vLLM."""

from dataclasses import dataclass, replace
from typing import Any, Self

from . import public_text
from .catalogue import Category

LOWEST_STATUS: dict[Category, int] = {"client": 400, "server": 500}


@dataclass(frozen=True, slots=True)
class OmniErrorDetails:
    """One error. Every text in it is public and bounded, whoever makes the record: ``message`` is sanitized, at most
    2,000 characters; ``error_type`` and ``parameter`` are names, at most 128; ``request_id`` is at most 128 letters,
    digits and ``._:-``, so that bodies, headers and logs show the same.

    Raises:
        TypeError: a field has another type than the one declared.
        ValueError: the status is not one of the category (4xx client, 5xx server), or a client error is fatal.

    """

    message: str
    category: Category
    status_code: int
    error_type: str
    parameter: str | None = None
    request_id: str | None = None
    stage_id: int | None = None
    fatal: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        lowest = LOWEST_STATUS.get(self.category)
        if lowest is None:
            raise ValueError("category must be 'client' or 'server'")
        if not lowest <= self.status_code < lowest + 100:
            raise ValueError(f"a {self.category} error has a {lowest // 100}xx status, not {int(self.status_code)}")
        if self.fatal and self.category != "server":
            raise ValueError("only a server error can be fatal")
        object.__setattr__(self, "message", public_text.sanitize(self.message))
        object.__setattr__(self, "status_code", int(self.status_code))
        object.__setattr__(self, "error_type", public_text.identifier(self.error_type) or "")
        if self.parameter is not None:
            object.__setattr__(self, "parameter", public_text.identifier(self.parameter))
        if self.request_id is not None:
            object.__setattr__(self, "request_id", public_text.request_id(self.request_id))

    def completed(self, *, request_id: str | None, stage_id: int | None) -> Self:
        """The record with the request and the stage where it does not know them; itself if nothing is to be added."""
        known: dict[str, Any] = {"request_id": request_id, "stage_id": stage_id}
        missing = {name: value for name, value in known.items() if value is not None and getattr(self, name) is None}
        return replace(self, **missing) if missing else self

    def under(self, request_id: str) -> Self:
        """The record with this request id. What is public already is not sanitized a second time."""
        found = object.__new__(type(self))
        for name in OmniErrorDetails.__slots__:
            object.__setattr__(found, name, getattr(self, name))
        object.__setattr__(found, "request_id", public_text.request_id(request_id))
        return found

    def _check_types(self) -> None:
        for name, value in (("message", self.message), ("category", self.category), ("error_type", self.error_type)):
            if not isinstance(value, str):
                raise TypeError(f"{name} must be a str")
        for name, optional in (("parameter", self.parameter), ("request_id", self.request_id)):
            if optional is not None and not isinstance(optional, str):
                raise TypeError(f"{name} must be a str or None")
        if not is_integer(self.status_code):
            raise TypeError("status_code must be an int")
        if self.stage_id is not None and not is_integer(self.stage_id):
            raise TypeError("stage_id must be an int or None")
        if not isinstance(self.fatal, bool):
            raise TypeError("fatal must be a bool")


def is_integer(value: object) -> bool:
    """Whether a value is an int and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)
