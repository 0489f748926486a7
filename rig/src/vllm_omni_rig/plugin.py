# SPDX-License-Identifier: Apache-2.0
"""The entry points. They do nothing in a process that the rig did not start: the rig may be installed anywhere."""

from vllm_omni_rig import census, notes


def platform() -> str | None:
    """Entry point ``vllm_omni.platform_plugins``."""
    return "vllm_omni_rig.platform.CpuOmniPlatform" if notes.run_directory() else None


def register() -> None:
    """Entry points ``vllm.general_plugins`` and ``vllm_omni.general_plugins``; may be called more than once.

    vLLM-Omni's own group is loaded too late for pipelines in the API process, vLLM's is not loaded everywhere.
    """
    run = notes.run_directory()
    if run is None:
        return
    from vllm import ModelRegistry
    from vllm_omni.diffusion.registry import _DIFFUSION_MODELS, register_diffusion_model
    from vllm_omni.model_executor.models.registry import OmniModelRegistry

    from vllm_omni_rig import language, topology

    for registry in (ModelRegistry, OmniModelRegistry):  # stage model configs resolve in the second
        # The class, not its name: a name is inspected in a process of its own, which takes 12 s.
        registry.register_model(topology.LANGUAGE_MODEL, language.RigQwen2ForCausalLM)
    for name in (topology.DIFFUSION_MODEL, topology.ONLY_DIFFUSION_MODEL):
        if name not in _DIFFUSION_MODELS:
            register_diffusion_model(
                name, "vllm_omni_rig.diffusion", name, post_process_func_name="get_post_process_func"
            )
    register_pipelines()
    notes.leave()
    census.attend(run)


def register_pipelines() -> None:
    """Make the rig's pipelines known to this process, which may know them already."""
    from vllm_omni.config.pipeline_registry import OMNI_PIPELINES, register_pipeline

    from vllm_omni_rig import topology

    for pipeline in (topology.ONE_STAGE, topology.TWO_STAGES, topology.ONLY_LANGUAGE):
        if pipeline.model_type not in OMNI_PIPELINES:
            register_pipeline(pipeline)
