# SPDX-License-Identifier: Apache-2.0
"""Every rewrite, in the order in which they are applied, and the areas that they are reviewed by."""

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_omni_errors.audit.ledger import load
from vllm_omni_errors.migrate.rewrite import Phase, Rewrite
from vllm_omni_errors.migrate.rewrites import (
    control,
    finalize,
    offline,
    requests,
    sockets,
    speech,
    stages,
    streams,
    videos,
)
from vllm_omni_errors.migrate.rewrites.bridge import BRIDGE
from vllm_omni_errors.migrate.rewrites.decided import decided_sites
from vllm_omni_errors.migrate.rewrites.reviewed import ReviewedRoutes

_ROWS = tuple(load(finalize.LEDGER).rows.values())


@dataclass(frozen=True)
class Area:
    """Rewrites that belong together: raise sites, and the clauses that translated what they raise."""

    name: str
    phase: Phase
    rewrites: tuple[type[Rewrite], ...]


def _area(name: str, phase: Phase, decided: Mapping[str, tuple[str, ...]], rewrites: tuple[type[Rewrite], ...]) -> Area:
    """What the ledger decides about the functions that an area names comes before the area's own rewrites."""
    return Area(name, phase, (*decided_sites(_ROWS, decided, phase), *rewrites))


AREAS: tuple[Area, ...] = (
    Area("bridge", "bridge", BRIDGE),
    _area("requests", "requests", requests.DECIDED, requests.REQUESTS),
    _area("speech", "requests", speech.DECIDED, speech.SPEECH),
    _area("videos", "requests", videos.DECIDED, videos.VIDEOS),
    _area("control", "requests", control.DECIDED, control.CONTROL),
    Area("reviewed", "requests", (ReviewedRoutes,)),
    _area("stages", "stages", stages.DECIDED, stages.STAGES),
    _area("offline", "stages", offline.DECIDED, offline.OFFLINE),
    _area("streams", "transports", streams.DECIDED, streams.STREAMS),
    _area("sockets", "transports", sockets.DECIDED, sockets.SOCKETS),
    _area("finalize", "finalize", finalize.DECIDED, finalize.FINALIZE),
)

ALL: tuple[type[Rewrite], ...] = tuple(rewrite for area in AREAS for rewrite in area.rewrites)
