# SPDX-License-Identifier: Apache-2.0
"""The diffusion stage: a pipeline without weights that gives random images, or what a fault asks for."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import torch
from PIL import Image
from torch import nn
from vllm_omni.diffusion.data import DiffusionOutput, OmniDiffusionConfig

from vllm_omni_rig import faults, notes
from vllm_omni_rig.prompts import text_of_prompt

LARGEST_SIDE = 64
"""Pixels: a larger image is cut to this, so that a wrong size costs nothing."""


def get_post_process_func(od_config: OmniDiffusionConfig) -> Callable[[Any], Any]:
    return lambda output: output


_MISSHAPEN = {"__ndarray__": True, "dtype": "|u1", "shape": [8, 4, 3], "data": bytes(48)}
"""How an array travels (``distributed/omni_connectors/utils/serialization.py:117``): this one lacks half its data."""

REPLACEMENTS: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        ("output", "none"): [],
        ("output", "blank"): [Image.new("RGB", (0, 0))],
        ("output", "dtype"): [np.zeros((4, 4, 3), dtype=np.complex64)],
        ("output", "type"): ["not an image"],
        ("wire", "bytes"): [msgspec.Raw(b"\xc1")],  # the one byte that msgpack never uses
        ("wire", "shape"): [_MISSHAPEN],
    }
)
"""The images that the faults ``output`` and ``wire`` put in place of the real ones."""


class RigPipeline(nn.Module):  # type: ignore[misc]
    """The last stage of two."""

    support_image_input = True
    stage = 1

    def __init__(self, *, od_config: OmniDiffusionConfig, prefix: str = "") -> None:
        super().__init__()
        self.od_config = od_config
        self.parameter_for_the_loader = nn.Linear(4, 4)
        notes.leave(self.stage)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        return {name for name, _ in self.named_parameters()}

    def forward(self, request: Any, *_: Any, **__: Any) -> DiffusionOutput:
        request = (getattr(request, "requests", None) or [request])[0]
        for fault in faults.perform(text_of_prompt(request.prompt), faults.LAST, f"stage{self.stage}"):
            return DiffusionOutput(output=REPLACEMENTS[fault.action, fault.argument])
        size = request.sampling_params
        rows, columns = (min(int(side or LARGEST_SIDE), LARGEST_SIDE) for side in (size.height, size.width))
        count = int(getattr(size, "num_outputs_per_prompt", None) or 1)
        pixels = np.random.default_rng().integers(0, 256, (count, rows, columns, 3), dtype=np.uint8)
        return DiffusionOutput(output=[Image.fromarray(each) for each in pixels])


class RigOnlyPipeline(RigPipeline):
    """The only stage."""

    stage = 0
