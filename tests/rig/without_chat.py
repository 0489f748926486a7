# SPDX-License-Identifier: Apache-2.0
"""``python without_chat.py KIND [arguments]``: the rig's scripted server, without handlers for chat, speech and audio.

It has no diffusion stage either, and an engine that cannot sleep. No pipeline of the rig leaves these out, but
vLLM-Omni's routes expect that there may be none.
"""

import sys
from types import SimpleNamespace
from typing import Any

from vllm_omni.entrypoints.async_omni import AsyncOmni
from vllm_omni.entrypoints.openai import api_server

from vllm_omni_rig.scripted.__main__ import run

MISSING = ("chat", "chat_batch", "speech", "audio_generate")

if __name__ == "__main__":
    init_app_state = api_server.omni_init_app_state

    async def init_without_chat(engine: Any, state: Any, arguments: Any) -> None:
        await init_app_state(engine, state, arguments)
        for name in MISSING:
            assert hasattr(state, f"openai_serving_{name}"), name
            setattr(state, f"openai_serving_{name}", None)
        state.stage_configs = [SimpleNamespace(stage_type="llm")]
        state.sleeping_stages.add(0)

    del AsyncOmni.sleep, AsyncOmni.wake_up
    api_server.omni_init_app_state = init_without_chat
    run(sys.argv[1], sys.argv[2:])
