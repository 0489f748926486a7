# SPDX-License-Identifier: Apache-2.0
"""Counters, exported where ``prometheus_client`` is installed. Imports no vLLM.

Counting is never the reason why something fails. A name starts with ``omni_``: vLLM unregisters, when an engine
starts, whatever has "vllm" in its name.
"""

import contextlib
import functools
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from prometheus_client import Counter

BROKEN_RECORDS = "omni_error_broken_records_total"
LABELS = ("where",)

Where = Literal["exception", "encode", "decode", "legacy"]
"""An exception whose class and status contradict each other; a record that does not fit on the wire; bytes or a map
that are no record; flat fields, or a ``RequestError`` of vLLM, that are no error."""


def count_broken_record(where: Where) -> None:
    """Count an error that became a lesser record, because it could not be written or read as it was."""
    counter = _broken_records()
    if counter is not None:
        with contextlib.suppress(Exception):  # PROMETHEUS_MULTIPROC_DIR may not be writable, or full
            counter.labels(where).inc()


@functools.cache
def _broken_records() -> "Counter | None":
    """The counter, made when it is first needed; None where there cannot be one."""
    try:
        from prometheus_client import REGISTRY, Counter
    except ImportError:
        return None
    try:
        return Counter(BROKEN_RECORDS, "Errors that became a lesser record on their way between processes", LABELS)
    except ValueError:  # the name is taken: by another copy of this module, if it is a counter like ours
        found = getattr(REGISTRY, "_names_to_collectors", {}).get(BROKEN_RECORDS)
        same = isinstance(found, Counter) and getattr(found, "_labelnames", None) == LABELS
        return found if same else None
