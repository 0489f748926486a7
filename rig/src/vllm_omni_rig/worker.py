# SPDX-License-Identifier: Apache-2.0
"""The workers of the AR stage: vLLM-Omni's model runners, with the parts that vLLM's CPU runner replaces."""

from typing import Any

import torch
from vllm.v1.worker.cpu_model_runner import CPUModelRunner, _set_torch_accelerator_to_noop, _torch_cuda_wrapper
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm_omni.worker.gpu_ar_model_runner import GPUARModelRunner
from vllm_omni.worker.gpu_generation_model_runner import GPUGenerationModelRunner
from vllm_omni.worker.mixins import OmniWorkerMixin


class _OnCPU:
    def __init__(self, vllm_config: Any, device: torch.device) -> None:
        _set_torch_accelerator_to_noop()
        with _torch_cuda_wrapper():
            super().__init__(vllm_config, device)  # type: ignore[call-arg]
        self.use_cuda_graph = False
        self.cascade_attn_enabled = False
        self._postprocess_tensors()
        self._postprocess_triton()

    _postprocess_tensors = CPUModelRunner._postprocess_tensors
    _postprocess_triton = CPUModelRunner._postprocess_triton
    warming_up_model = CPUModelRunner.warming_up_model
    _init_device_properties = CPUModelRunner._init_device_properties
    _sync_device = CPUModelRunner._sync_device
    _zero_block_ids = CPUModelRunner._zero_block_ids
    _to_list = CPUModelRunner._to_list
    get_model = CPUModelRunner.get_model


class CPUARModelRunner(_OnCPU, GPUARModelRunner):  # type: ignore[misc]
    pass


class CPUGenerationModelRunner(_OnCPU, GPUGenerationModelRunner):  # type: ignore[misc]
    pass


class CPUARWorker(OmniWorkerMixin, CPUWorker):  # type: ignore[misc]
    model_runner_cls: type = CPUARModelRunner

    def init_device(self) -> None:
        super().init_device()
        self.use_v2_model_runner = False
        self.model_runner = self.model_runner_cls(self.vllm_config, torch.device("cpu"))


class CPUGenerationWorker(CPUARWorker):
    model_runner_cls = CPUGenerationModelRunner
