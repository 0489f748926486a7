# SPDX-License-Identifier: Apache-2.0
"""``Omni`` and ``AsyncOmni`` in Python: a batch in which some requests fail (contract, section 7).

The other requests are finished and their outputs given first, by the list form and the generator alike; then the
exception of the first request that failed is raised. It has ``.details``, its own record; ``.failures``, the exception
of every request that failed, by its place in the batch; and from the list form ``.outputs``, what the others gave.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from . import convert, stage, stage_messages, upstream

__all__ = ["BatchFailures", "carry_details", "collect", "is_fatal"]

_T = TypeVar("_T")


class BatchFailures(dict[str, Exception]):
    """The requests of a batch that failed, with their exceptions."""

    def note(self, message: object) -> str | None:
        """Take a message about a request that failed, and say which; None for any other, and for a fatal failure."""
        output = getattr(message, "engine_outputs", message)
        request_id = getattr(message, "request_id", None)
        if request_id is None or getattr(output, "error", None) is None or getattr(message, "fatal", False):
            return None
        details = stage_messages.received(output, request_id=request_id, stage_id=getattr(message, "stage_id", None))
        if details.fatal:
            return None
        self[request_id] = convert.to_exception(details)
        return str(request_id)

    def note_exception(self, request_id: str, exc: Exception) -> None:
        """Take an exception that kept a request from being handed to the engine."""
        exc.details = stage.normalize(exc, request_id=request_id)  # type: ignore[attr-defined]
        self[request_id] = exc

    def raise_first(self, request_ids: Sequence[str]) -> None:
        """Raise the exception of the first request that failed; ``request_ids`` are those of the batch, in order."""
        failures = {place: self[request_id] for place, request_id in enumerate(request_ids) if request_id in self}
        for exc in failures.values():
            exc.failures = failures  # type: ignore[attr-defined]
            raise exc


def collect(outputs: Iterable[_T]) -> list[_T]:
    """The outputs of a batch; the exception that ends it carries those that were there, as ``.outputs``."""
    done: list[_T] = []
    try:
        done.extend(outputs)
    except Exception as exc:
        exc.outputs = done  # type: ignore[attr-defined]
        raise
    return done


def is_fatal(exc: BaseException) -> bool:
    """Whether the engine that served the request is gone."""
    return convert.to_details(exc).fatal


def carry_details(exc: Exception, *, request_id: str | None) -> None:
    """Give a typed exception of this process its record, as one from another process has it."""
    if isinstance(exc, upstream.VLLMError):
        exc.details = convert.to_details(exc, request_id=request_id)  # type: ignore[attr-defined]
