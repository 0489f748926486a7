# SPDX-License-Identifier: Apache-2.0
"""One end of the socket between the orchestrator and a diffusion stage, with vLLM-Omni's own code; the engine is ours.

python mixed_program.py stage REQUESTS RESPONSES               # raises what the prompt names
python mixed_program.py client REQUESTS RESPONSES NAME…        # prints what it makes of each, as a line of JSON

The name `UNREADABLE` is for a request that no stage can decode.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec

UNREADABLE = "UNREADABLE"
STAGE = 1
POLLS = 1_000
POLL_S = 0.01


class Engine:
    """Fails every request with the exception that its prompt names."""

    async def step_streaming(self, request: Any) -> AsyncIterator[Any]:
        from vllm_omni_rig.failures import make

        raise make(request.prompt, f"stage{STAGE}")
        yield


async def be_the_stage(requests: str, responses: str) -> None:
    from vllm_omni.diffusion.stage_diffusion_proc import StageDiffusionProc

    stage = StageDiffusionProc("none", SimpleNamespace(streaming_output=False, stage_id=STAGE))
    stage._engine = Engine()
    await stage.run_loop(requests, responses)


async def be_the_client(requests: str, responses: str, names: list[str]) -> None:
    from vllm_omni.diffusion.stage_diffusion_client import StageDiffusionClient
    from vllm_omni.inputs.data import OmniDiffusionSamplingParams

    metadata = SimpleNamespace(
        stage_id=STAGE,
        replica_id=0,
        final_output=True,
        final_output_type="image",
        model_stage=None,
        default_sampling_params=None,
        prompt_transform_func=None,
        prompt_expand_func=None,
    )
    client = StageDiffusionClient.from_addresses(metadata, request_address=requests, response_address=responses)
    for name in names:
        if name == UNREADABLE:
            message = {"type": "add_request", "request_id": f"request-{name}", "prompt": msgspec.Raw(b"\xc1")}
            client._request_socket.send(msgspec.msgpack.encode(message))
        else:
            await client.add_request_async(f"request-{name}", name, OmniDiffusionSamplingParams())
        for _ in range(POLLS):
            if (output := client.get_diffusion_output_nowait()) is not None:
                break
            await asyncio.sleep(POLL_S)
        print("RESULT " + json.dumps(described(output)), flush=True)
    os._exit(0)  # closing the socket would wait for the stage


def described(output: Any) -> dict[str, Any]:
    """What the output says in the flat fields of 0.30.0, and the exception that a migrated API process makes of it."""
    flat = {"status": output.error_status_code, "type": output.error_type, "text": output.error}
    found: dict[str, Any] = {"request_id": output.request_id, "flat": flat}
    if hasattr(output, "error_details"):
        from vllm_omni_errors import to_exception
        from vllm_omni_errors.stage_messages import received

        exc = to_exception(received(output))
        details = exc.details  # type: ignore[attr-defined]
        found["exception"] = type(exc).__name__
        found["details"] = [details.status_code, details.error_type, details.parameter, details.stage_id]
    return found


if __name__ == "__main__":
    role, first, second, *rest = sys.argv[1:]
    asyncio.run(be_the_stage(first, second) if role == "stage" else be_the_client(first, second, rest))
