# SPDX-License-Identifier: Apache-2.0
"""``python controlled.py KIND [arguments]``: the rig's scripted server, with what no pipeline of the rig turns on.

It has the routes of the profiler and of LoRA, believes that it is one of two API workers, and waits one second for a
video.
"""

import os
import sys
from typing import Any

os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"

from vllm_omni.entrypoints.openai import api_server

from vllm_omni_rig.scripted.__main__ import run

if __name__ == "__main__":
    init_app_state = api_server.omni_init_app_state

    async def init_as_one_of_two(engine: Any, state: Any, arguments: Any) -> None:
        await init_app_state(engine, state, arguments)
        state.api_server_count = 2

    api_server.VIDEO_SYNC_TIMEOUT_S = 1.0  # VLLM_OMNI_VIDEO_SYNC_TIMEOUT is read at its import, which may be long ago
    api_server.omni_init_app_state = init_as_one_of_two
    api_server._should_enable_profiler_endpoints = lambda _: True
    run(sys.argv[1], sys.argv[2:])
