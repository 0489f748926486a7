# SPDX-License-Identifier: Apache-2.0
"""vLLM-Omni's platform for a machine that has only a CPU: vLLM's own CPU platform, and what vLLM-Omni asks besides."""

from typing import Any

import psutil
import torch
from vllm.platforms.cpu import CpuPlatform
from vllm_omni.diffusion.attention.backends.registry import DiffusionAttentionBackendEnum
from vllm_omni.platforms.interface import OmniPlatform, OmniPlatformEnum

DEVICES = 2
"""One for each stage."""


class NoGraph:
    """There is no graph to wrap on a CPU."""


class CpuOmniPlatform(OmniPlatform, CpuPlatform):  # type: ignore[misc]
    _omni_enum = OmniPlatformEnum.OOT

    def is_cpu(self) -> bool:
        return True

    @classmethod
    def get_omni_ar_worker_cls(cls) -> str:
        return "vllm_omni_rig.worker.CPUARWorker"

    @classmethod
    def get_omni_generation_worker_cls(cls) -> str:
        return "vllm_omni_rig.worker.CPUGenerationWorker"

    @classmethod
    def get_default_stage_config_path(cls) -> str:
        return "vllm_omni/deploy"

    @classmethod
    def get_diffusion_attn_backend_cls(cls, selected_backend: Any, head_size: int, *_: Any, **__: Any) -> str:
        return str(DiffusionAttentionBackendEnum.TORCH_SDPA.get_path())

    @classmethod
    def supports_torch_inductor(cls) -> bool:
        return False

    @classmethod
    def get_torch_device(cls, local_rank: int | None = None) -> torch.device:
        return torch.device("cpu")

    @classmethod
    def get_device_count(cls) -> int:
        return DEVICES

    @classmethod
    def device_count(cls) -> int:
        return DEVICES

    @classmethod
    def current_device(cls) -> int:
        return 0

    @classmethod
    def is_available(cls) -> bool:
        return True

    @classmethod
    def get_device_version(cls) -> str | None:
        return None

    @classmethod
    def get_free_memory(cls, device: torch.device | None = None) -> int:
        return int(psutil.virtual_memory().available)

    @classmethod
    def get_device_memory(cls, device: torch.device | None = None) -> tuple[int, int]:
        memory = psutil.virtual_memory()
        return memory.available, memory.total

    @classmethod
    def memory_allocated(cls, device: torch.device | None = None) -> int:
        return 0

    @classmethod
    def max_memory_allocated(cls, device: torch.device | None = None) -> int:
        return 0

    @classmethod
    def max_memory_reserved(cls, device: torch.device | None = None) -> int:
        return 0

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        pass

    @classmethod
    def synchronize(cls) -> None:
        pass

    @classmethod
    def empty_cache(cls) -> None:
        pass

    @classmethod
    def reset_peak_memory_stats(cls, device: torch.device | None = None) -> None:
        pass

    @classmethod
    def get_graph_wrapper_cls(cls) -> type:
        return NoGraph
