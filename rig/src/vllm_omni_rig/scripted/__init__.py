# SPDX-License-Identifier: Apache-2.0
"""vLLM-Omni's own API server, ``AsyncOmni`` and serving classes, over an engine that does what the prompt says.

For fast cases: it starts in half a minute, and it can say to the API process whatever an orchestrator could
(``FAULT:error=504``, ``FAULT:deadstage``; see ``vllm_omni_rig.faults``, place ``message``).
"""

from collections.abc import Mapping
from types import MappingProxyType

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "diffusion": "one diffusion stage, images",
        "video": "one diffusion stage, videos",
        "multi": "an AR stage that gives text, and a diffusion stage that gives images",
    }
)
