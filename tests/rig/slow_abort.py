# SPDX-License-Identifier: Apache-2.0
"""``python slow_abort.py KIND [arguments]``: the rig's scripted server, whose engine takes long to give a request up.

A deletion waits for half a second: what it adds to the engine's own limit, two seconds, is less than nothing here.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from vllm_omni.entrypoints.openai import api_server

from vllm_omni_rig.scripted.__main__ import run
from vllm_omni_rig.scripted.engine import ScriptedEngine

if __name__ == "__main__":
    abort = ScriptedEngine.abort_async

    async def abort_late(engine: ScriptedEngine, request_ids: Sequence[str], timeout: float | None = None) -> list[Any]:
        await asyncio.sleep(10)
        return await abort(engine, request_ids, timeout)

    ScriptedEngine.abort_async = abort_late  # type: ignore[method-assign]
    api_server.VIDEO_ABORT_TIMEOUT_S = -1.5
    run(sys.argv[1], sys.argv[2:])
