# SPDX-License-Identifier: Apache-2.0
"""The first stage of two: a random Qwen2 in a real vLLM engine core, and the faults that happen in its step."""

from collections.abc import AsyncIterator
from typing import Any

import torch
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from vllm_omni_rig import faults, notes
from vllm_omni_rig.checkpoint import text_of


class RigQwen2ForCausalLM(Qwen2ForCausalLM):  # type: ignore[misc]
    """Qwen2, tolerant of the keyword arguments that vLLM-Omni's runner passes besides."""

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: Any,
    ) -> torch.Tensor:
        return super().forward(input_ids, positions, intermediate_tensors, inputs_embeds)

    @classmethod
    async def buffer_realtime_audio(cls, audio: AsyncIterator[Any], *_: Any) -> AsyncIterator[str]:
        """A turn of ``/v1/realtime``: the samples of its audio, 16 bits each, are the bytes of the prompt's text."""
        async for samples in audio:
            yield bytes(int(sample) for sample in samples * 32768).decode()


class FaultLogitsProcessor(LogitsProcessor):  # type: ignore[misc]
    """Performs the faults ``@stage0`` of each request in the batch, once, in the step that makes its first token.

    It knows a request by its prompt's token ids, which are bytes. An exception from here leaves the engine core's step,
    so it is fatal to the stage, like any other in a step.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._prompts: dict[int, str] = {}
        notes.leave(stage=0)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._prompts.pop(index, None)
        for index, _, prompt_token_ids, _ in batch_update.added:
            self._prompts[index] = text_of(prompt_token_ids or [])
        for source, target, direction in batch_update.moved:
            moved, replaced = self._prompts.pop(source, None), self._prompts.pop(target, None)
            if moved is not None:
                self._prompts[target] = moved
            if replaced is not None and direction is MoveDirectionality.SWAP:
                self._prompts[source] = replaced

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        prompts, self._prompts = self._prompts, {}
        for prompt in prompts.values():
            faults.perform(prompt, faults.FIRST)
        return logits
