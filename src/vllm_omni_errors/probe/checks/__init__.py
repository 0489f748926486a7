# SPDX-License-Identifier: Apache-2.0
"""The catalogue of checks, in the order in which they run."""

from vllm_omni_errors.probe.check import Check
from vllm_omni_errors.probe.checks import (
    bodies,
    faults,
    fields,
    jobs,
    last,
    media,
    official,
    routing,
    sockets,
    streams,
    success,
)

_ROOMS = (success, routing, bodies, fields, media, streams, sockets, jobs, official, last, faults)
_ALL = [check for room in _ROOMS for check in room.CHECKS]

CHECKS: tuple[Check, ...] = tuple(sorted(_ALL, key=lambda check: check.danger))
