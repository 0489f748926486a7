# SPDX-License-Identifier: Apache-2.0
"""The pipelines that the rig serves.

One diffusion stage inside the API process; an AR stage and a diffusion stage, each a process; an AR stage alone, which
several API processes can share.
"""

from typing import Any

from vllm_omni.config.stage_config import PipelineConfig, StageExecutionType, StagePipelineConfig
from vllm_omni.model_executor.stage_input_processors.bagel import ExpandedPrompt

from vllm_omni_rig import faults
from vllm_omni_rig.prompts import text_of_prompt

LANGUAGE_MODEL = "RigQwen2ForCausalLM"
DIFFUSION_MODEL = "RigPipeline"
ONLY_DIFFUSION_MODEL = "RigOnlyPipeline"

TEXT_FIELDS = ("prompt", "prompt_token_ids")


def front(prompt: Any, sampling_params_list: Any = None) -> Any:
    """The first stage's view of a prompt, made in the API process: its text only. Faults ``@front`` happen here.

    The tiny model has no multimodal processor. The second stage gets the whole prompt.
    """
    faults.perform(text_of_prompt(prompt), faults.FRONT)
    if isinstance(prompt, dict):
        return {name: value for name, value in prompt.items() if name in TEXT_FIELDS}
    return prompt


def guidance(prompt: Any, sampling_params: Any) -> list[ExpandedPrompt]:
    """The first stage also gets the negative prompt, where there is one, as a request that accompanies the other."""
    negative = prompt.get("negative_prompt") if isinstance(prompt, dict) else None
    return [ExpandedPrompt({"prompt": negative}, "cfg_text", "__cfg_text")] if negative else []


def second_stage_prompts(source_outputs: Any, prompt: Any = None, requires_multimodal_data: bool = False) -> Any:
    """The stage input processor: the original text again. What accompanies it (`guidance`) ends in the first stage."""
    text = text_of_prompt(prompt)
    if faults.perform(text, faults.INPUT):
        return None  # the one fault that is not done yet: no input
    return [{"prompt": text, "additional_information": {"ar_tokens": list(source_outputs[0].outputs[0].token_ids)}}]


def _diffusion(stage_id: int, model: str, **more: Any) -> StagePipelineConfig:
    return StagePipelineConfig(
        stage_id=stage_id,
        model_stage="dit",
        execution_type=StageExecutionType.DIFFUSION,
        final_output=True,
        final_output_type="image",
        model_arch=model,
        omni_kv_config={"need_recv_cache": False},
        **more,
    )


def _language(**more: Any) -> StagePipelineConfig:
    return StagePipelineConfig(
        stage_id=0,
        model_stage="ar",
        execution_type=StageExecutionType.LLM_AR,
        input_sources=(),
        owns_tokenizer=True,
        model_arch=LANGUAGE_MODEL,
        prompt_transform_func=f"{__name__}.front",
        **more,
    )


ONE_STAGE = PipelineConfig(
    model_type="rig_one",
    model_arch=ONLY_DIFFUSION_MODEL,
    diffusers_class_name=ONLY_DIFFUSION_MODEL,
    stages=(_diffusion(0, ONLY_DIFFUSION_MODEL, input_sources=()),),
)

TWO_STAGES = PipelineConfig(
    model_type="rig_two",
    model_arch=LANGUAGE_MODEL,
    diffusers_class_name=DIFFUSION_MODEL,
    stages=(
        _language(prompt_expand_func=f"{__name__}.guidance", final_output=False, engine_output_type="token_ids"),
        _diffusion(
            1, DIFFUSION_MODEL, input_sources=(0,), custom_process_input_func=f"{__name__}.second_stage_prompts"
        ),
    ),
)

ONLY_LANGUAGE = PipelineConfig(
    model_type="rig_text",
    model_arch=LANGUAGE_MODEL,
    stages=(_language(final_output=True, final_output_type="text"),),
)
