# SPDX-License-Identifier: Apache-2.0
"""Counters, exported where ``prometheus_client`` is installed. Imports no vLLM.

Counting is never the reason why something fails. A name starts with ``omni_``: vLLM unregisters, when an engine
starts, whatever has "vllm" in its name.
"""

import contextlib
import functools
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

from vllm_omni_errors import catalogue
from vllm_omni_errors.details import OmniErrorDetails

if TYPE_CHECKING:
    from prometheus_client import Counter

ERRORS = "omni_errors_total"
ERROR_LABELS = ("transport", "category", "error_type", "status", "stage_id", "fatal")
BROKEN_RECORDS = "omni_error_broken_records_total"
BROKEN_RECORD_LABELS = ("where",)

MOST_STAGES = 64
OTHER = "other"
CANCELLED = "cancelled"
_TYPES = {row.error_type for row in catalogue.CATALOGUE} | {status.phrase for status in HTTPStatus}

Transport = Literal["http", "item", "sse", "raw", "websocket", "job", "offline"]
"""An HTTP answer; an item of a batch that has others; an event of a stream; a stream of raw bytes that was broken off;
a socket; a job that failed in the background; an exception raised in the caller's own process."""

Where = Literal["exception", "encode", "decode", "legacy"]
"""An exception whose class and status contradict each other; a record that does not fit on the wire; bytes or a map
that are no record; flat fields, or a ``RequestError`` of vLLM, that are no error."""


def count_error(details: OmniErrorDetails, transport: Transport) -> None:
    """Count an error where it leaves the server, once, as the client sees it (contract, section 4).

    Labels are bounded: a type that is not in the catalogue is ``other``, and so is a stage from 64 on.
    """
    error_type = details.error_type if details.error_type in _TYPES else OTHER
    stage = "" if details.stage_id is None else str(details.stage_id) if 0 <= details.stage_id < MOST_STAGES else OTHER
    fatal = "true" if details.fatal else "false"
    _count(ERRORS, transport, details.category, error_type, str(details.status_code), stage, fatal)


def count_cancelled(transport: Transport) -> None:
    """Count a request whose client went away before its answer was whole: neither a success nor an error."""
    _count(ERRORS, transport, CANCELLED, "", "", "", "false")


def count_broken_record(where: Where) -> None:
    """Count an error that became a lesser record, because it could not be written or read as it was."""
    _count(BROKEN_RECORDS, where)


_COUNTERS = {
    ERRORS: ("Errors as clients saw them, and requests that clients gave up", ERROR_LABELS),
    BROKEN_RECORDS: ("Errors that became a lesser record on their way between processes", BROKEN_RECORD_LABELS),
}


def _count(name: str, *values: str) -> None:
    counter = _counter(name)
    if counter is not None:
        with contextlib.suppress(Exception):  # PROMETHEUS_MULTIPROC_DIR may not be writable, or full
            counter.labels(*values).inc()


@functools.cache
def _counter(name: str) -> "Counter | None":
    """A counter, made when it is first needed; None where there cannot be one."""
    try:
        from prometheus_client import REGISTRY, Counter
    except ImportError:
        return None
    meaning, labels = _COUNTERS[name]
    try:
        return Counter(name, meaning, labels)
    except ValueError:  # the name is taken: by another copy of this module, if it is a counter like ours
        found = getattr(REGISTRY, "_names_to_collectors", {}).get(name)
        same = isinstance(found, Counter) and getattr(found, "_labelnames", None) == labels
        return found if same else None
