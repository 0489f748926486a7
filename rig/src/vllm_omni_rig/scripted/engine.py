# SPDX-License-Identifier: Apache-2.0
"""The scripted engine: what ``AsyncOmni`` drives, without an orchestrator and without stages."""

import asyncio
import contextlib
import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image
from vllm import SamplingParams
from vllm.outputs import CompletionOutput
from vllm_omni.diffusion.data import OmniACK
from vllm_omni.diffusion.stage_diffusion_client import StageDiffusionClient
from vllm_omni.distributed.omni_connectors.utils.serialization import OmniMsgpackDecoder, OmniMsgpackEncoder
from vllm_omni.engine.messages import ErrorMessage, OutputMessage
from vllm_omni.engine.stage_runtime import StageRuntimeInfo
from vllm_omni.errors import client_error_metadata
from vllm_omni.inputs.data import OmniDiffusionSamplingParams
from vllm_omni.outputs import OmniRequestOutput
from zmq.error import Again

from vllm_omni_rig import faults
from vllm_omni_rig.diffusion import REPLACEMENTS
from vllm_omni_rig.failures import text
from vllm_omni_rig.prompts import text_of_prompt


@dataclass
class Stage:
    """What the serving classes ask of a stage's configuration."""

    stage_id: int
    stage_type: str
    final_output_type: str
    is_comprehension: bool = False
    final_output: bool = True
    model_stage: str | None = None
    engine_args: Any = field(
        default_factory=lambda: SimpleNamespace(model_arch=None, model_stage=None, worker_type=None)
    )
    sampling_constraints: dict[str, Any] = field(default_factory=dict)
    engine_input_source: list[int] = field(default_factory=list)
    runtime: dict[str, Any] = field(default_factory=dict)
    default_sampling_params: dict[str, Any] = field(default_factory=dict)

    def sampling_params(self) -> Any:
        return OmniDiffusionSamplingParams() if self.stage_type == "diffusion" else SamplingParams()


class _Receiver:
    """A client of a stage, of which one message has come. Source: ``diffusion/stage_diffusion_client.py:229``."""

    def __init__(self, message: bytes, stage_id: int) -> None:
        self._response_socket = self
        self._decoder = OmniMsgpackDecoder()
        self._output_queue: queue.Queue[Any] = queue.Queue()
        self.stage_id = stage_id
        self._messages = [message]

    def recv(self, _: int) -> bytes:
        if not self._messages:
            raise Again
        return self._messages.pop()


class ScriptedEngine:
    """Answers each request with an output or an error, as its prompt asks.

    Args:
        stages: the stages that it claims to have.
        vllm_config: that of the first stage, if it is an AR stage.
        input_processor: the first stage's, likewise.
    """

    def __init__(self, stages: Sequence[Stage], vllm_config: Any = None, input_processor: Any = None) -> None:
        self.stage_configs = list(stages)
        self.num_stages = len(stages)
        self.stage_metadata = [
            StageRuntimeInfo(stage.final_output, stage.final_output_type, stage.stage_type) for stage in stages
        ]
        self.stage_vllm_configs = [vllm_config, *[None] * (len(stages) - 1)]
        self.default_sampling_params_list = [stage.sampling_params() for stage in stages]
        self.stage_clients: list[Any] = []
        self.stage_pools = None
        self.config_path = None
        self.input_processor = input_processor
        self.endpoint_restrictions = ()
        self.async_chunk = False
        self.supported_tasks = ("generate",) if vllm_config is not None else ()
        self._alive = True
        self._messages: queue.Queue[Any] = queue.Queue()
        self._working: set[asyncio.Task[None]] = set()

    # What AsyncOmni calls

    def get_stage_metadata(self, stage_id: int) -> StageRuntimeInfo:
        return self.stage_metadata[stage_id]

    def is_alive(self) -> bool:
        return self._alive

    def shutdown(self) -> None:
        self._alive = False

    def get_diffusion_od_config(self) -> Any:
        return SimpleNamespace(
            model_class_name="ScriptedPipeline",
            supports_multimodal_inputs=True,
            supports_multimodal_input=True,
            max_multimodal_image_inputs=4,
            model=None,
            model_config={"policy_server_config": {"action_dim": 8}},
        )

    async def try_get_output_async(self) -> Any:
        with contextlib.suppress(queue.Empty):
            return self._messages.get_nowait()
        if not self._alive:
            raise RuntimeError("The scripted engine is dead.")
        return None

    async def abort_async(self, request_ids: Sequence[str], timeout: float | None = None) -> list[Any]:
        return []

    async def add_streaming_update_async(self, **_: Any) -> None:
        pass

    async def collective_rpc_async(self, *, method: str = "", args: Sequence[Any] = (), **_: Any) -> Any:
        """Answer a sleep of level 0 and the wake-up after it, and nothing else."""
        if method == "handle_wake_task" or [getattr(task, "level", None) for task in args] == [0]:
            return [OmniACK(task_id=args[0].task_id, status="SUCCESS", stage_id=0, rank=0)]
        raise TimeoutError(text(f"TimeoutError of {method}", faults.MESSAGE))

    def collective_rpc(self, method: str = "", **_: Any) -> Any:
        raise ValueError(text(f"ValueError of {method}", faults.MESSAGE))

    async def add_request_async(self, *, request_id: str, prompt: Any, final_stage_id: int = 0, **_: Any) -> None:
        """Raise what is asked ``@front``, here and now; answer later."""
        script = text_of_prompt(prompt)
        faults.perform(script, faults.FRONT)
        task = asyncio.create_task(self._answer(request_id, script, final_stage_id))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    # What the stages and the orchestrator would do

    async def _answer(self, request_id: str, script: str, stage_id: int) -> None:
        messages = faults.asked(script, faults.MESSAGE)
        for fault in messages:
            self._report(fault, request_id, stage_id)
        if any(fault.action != "part" for fault in messages):
            return
        try:
            replaced = await asyncio.to_thread(faults.perform, script, faults.LAST)
        except Exception as error:
            self._fail(error, request_id, stage_id)
            return
        images = [REPLACEMENTS[fault.action, fault.argument] for fault in replaced]
        self._give(self._output(request_id, stage_id, images[0] if images else None), stage_id)

    def _output(
        self, request_id: str, stage_id: int, images: Any = None, *, finished: bool = True
    ) -> OmniRequestOutput:
        kind = self.stage_configs[stage_id].final_output_type
        if kind == "text":
            reason = "stop" if finished else None
            completion = CompletionOutput(
                index=0, text="scripted", token_ids=[1], cumulative_logprob=None, logprobs=None, finish_reason=reason
            )
            return OmniRequestOutput(
                request_id=request_id,
                final_output_type=kind,
                outputs=[completion],
                prompt_token_ids=[1],
                finished=finished,
            )
        if images is None:
            frames: Any = np.zeros((2, 8, 8, 3), dtype=np.uint8)
            images = [frames] if kind == "video" else [Image.fromarray(frames[0])]
        output = OmniRequestOutput.from_diffusion(request_id, images, final_output_type=kind)
        output.finished = finished
        return output

    def _part(self, request_id: str, stage_id: int) -> None:
        """A part of the output of the first stage, if that gives text, else of the last."""
        first = 0 if self.stage_configs[0].final_output_type == "text" else stage_id
        self._give(self._output(request_id, first, finished=False), first)

    def _give(self, output: OmniRequestOutput, stage_id: int) -> None:
        """An output crosses the stage's wire, and the tree's own client reads it; what that raises kills the engine."""
        client = _Receiver(OmniMsgpackEncoder().encode({"type": "result", "output": output}), stage_id)
        try:
            StageDiffusionClient._drain_responses(client)
        except Exception as error:
            self._die(str(error))
            return
        received = client._output_queue.get_nowait()
        received.stage_id = stage_id
        self._messages.put(
            OutputMessage(
                request_id=received.request_id, stage_id=stage_id, engine_outputs=received, finished=received.finished
            )
        )

    def _fail(self, error: Exception, request_id: str, stage_id: int) -> None:
        """An exception crosses the wire whole, where the tree can do that; else as 0.30.0 sends it.

        Source: ``diffusion/stage_diffusion_proc.py:414``.
        """
        if hasattr(ErrorMessage, "from_exception"):
            self._messages.put(ErrorMessage.from_exception(error, request_id=request_id, stage_id=stage_id))
            return
        status, error_type = client_error_metadata(error)
        sent = {"error": str(error), "status_code": status, "error_type": error_type}
        received: Mapping[str, Any] = OmniMsgpackDecoder().decode(OmniMsgpackEncoder().encode(sent))
        self._messages.put(ErrorMessage(request_id=request_id, stage_id=stage_id, **received))

    def _die(self, reason: str) -> None:
        self._messages.put(ErrorMessage(error=reason, fatal=True))
        self._alive = False

    def _report(self, fault: faults.Fault, request_id: str, stage_id: int) -> None:
        reason = text(fault.action, fault.place)
        status, _, error_type = fault.argument.partition(".")
        failure = {
            "status_code": int(status) if status.isdecimal() else None,
            "error_type": error_type or None,
        }
        match fault.action:
            case "error":
                self._messages.put(ErrorMessage(error=reason, request_id=request_id, stage_id=stage_id, **failure))
            case "outputerror":
                output = OmniRequestOutput.from_error(request_id, reason, **failure)
                output.stage_id = stage_id
                self._messages.put(
                    OutputMessage(request_id=request_id, stage_id=stage_id, engine_outputs=output, finished=True)
                )
            case "part":
                self._part(request_id, stage_id)
            case "wire":
                self._give(self._output(request_id, stage_id, REPLACEMENTS["wire", fault.argument]), stage_id)
            case "deadstage":
                self._messages.put(ErrorMessage(error=reason, fatal=True, request_id=request_id, stage_id=stage_id))
            case "deadengine":
                self._die(reason)
