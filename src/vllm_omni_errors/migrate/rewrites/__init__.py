# SPDX-License-Identifier: Apache-2.0
"""Every rewrite, in the order in which they are applied."""

from collections import defaultdict
from collections.abc import Mapping

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

_AREAS: Mapping[Phase, tuple[Mapping[str, tuple[str, ...]], ...]] = {
    "requests": (requests.DECIDED, speech.DECIDED, videos.DECIDED, control.DECIDED),
    "stages": (stages.DECIDED, offline.DECIDED),
    "transports": (streams.DECIDED, sockets.DECIDED),
    "finalize": (finalize.DECIDED,),
}


def _decided(phase: Phase) -> tuple[type[Rewrite], ...]:
    """What the ledger decides about the functions that a phase names."""
    functions: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for places in _AREAS[phase]:
        for path, patterns in places.items():
            functions[path] += patterns
    return decided_sites(load(finalize.LEDGER).rows.values(), functions, phase)


ALL: tuple[type[Rewrite], ...] = (
    *BRIDGE,
    *_decided("requests"),
    ReviewedRoutes,
    *requests.REQUESTS,
    *speech.SPEECH,
    *videos.VIDEOS,
    *control.CONTROL,
    *_decided("stages"),
    *stages.STAGES,
    *offline.OFFLINE,
    *_decided("transports"),
    *streams.STREAMS,
    *sockets.SOCKETS,
    *_decided("finalize"),
    *finalize.FINALIZE,
)
