# SPDX-License-Identifier: Apache-2.0
"""``python speaking_server.py KIND [arguments]``: the rig's scripted server, whose second stage gives speech.

``FAULT:part`` gives a part of the speech. ``SILENT`` in a text makes it give an output without speech.

Media in a chat are for the second stage, which is called what a model is that imitates a voice, unless their part has
no type: then for the first, whose model takes any, as far as vLLM reads them, for it has no processor. The tokenizer
counts as a Mistral one, and the model of realtime sessions refuses all audio.
"""

import sys
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from vllm.entrypoints.chat_utils import AsyncMultiModalItemTracker
from vllm.entrypoints.speech_to_text.realtime.serving import OpenAIServingRealtime
from vllm_omni.entrypoints.openai import serving_chat
from vllm_omni.outputs import OmniRequestOutput

from vllm_omni_rig.scripted import __main__ as scripted
from vllm_omni_rig.scripted.engine import ScriptedEngine, Stage

RATE = 24_000
PART_S = 0.05


class SpeakingEngine(ScriptedEngine):
    """Half a sine in each part."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._silent: set[str] = set()

    async def _answer(self, request_id: str, script: str, stage_id: int) -> None:
        if "SILENT" in script:
            self._silent.add(request_id)
        await super()._answer(request_id, script, stage_id)

    def _part(self, request_id: str, stage_id: int) -> None:
        self._give(self._output(request_id, stage_id, finished=False), stage_id)

    def _output(
        self, request_id: str, stage_id: int, images: Any = None, *, finished: bool = True
    ) -> OmniRequestOutput:
        wave = torch.sin(torch.arange(int(RATE * PART_S)) / 20)
        output = OmniRequestOutput(request_id=request_id, final_output_type="audio", finished=finished)
        output._multimodal_output = {} if request_id in self._silent else {"audio": wave, "sr": RATE}
        return output


class Listener:
    """A model that takes no audio."""

    @staticmethod
    async def buffer_realtime_audio(audio: AsyncGenerator[Any, None], *_: Any) -> AsyncGenerator[Any, None]:
        async for _chunk in audio:
            raise ValueError("The audio has more than one channel.")
        yield None


def take(self: AsyncMultiModalItemTracker, modality: str, item: Any) -> None:
    if "FAULT" in str(item.args[0]):
        raise RuntimeError("the model fails at /srv/private")
    self._items_by_modality[modality].append(item)


def speaking(model: str) -> SpeakingEngine:
    reading, giving = Stage(0, "llm", "text", is_comprehension=True), Stage(1, "diffusion", "audio")
    reading.input_modalities = ["text"]  # type: ignore[attr-defined]
    giving.input_modalities = ["audio", "image", "video"]  # type: ignore[attr-defined]
    giving.model_config = SimpleNamespace(model_arch="MiniCPMO45OmniForConditionalGeneration")  # type: ignore[attr-defined]
    return SpeakingEngine([reading, giving], *scripted._input_processor(model))


if __name__ == "__main__":
    serving_chat.MistralTokenizer = PreTrainedTokenizerBase
    OpenAIServingRealtime.model_cls = Listener
    AsyncMultiModalItemTracker.add = take
    scripted.ENGINES = {sys.argv[1]: speaking}
    scripted.run(sys.argv[1], sys.argv[2:])
