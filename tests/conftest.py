# SPDX-License-Identifier: Apache-2.0
"""Tests that import vLLM run beside a CPU torch too; nothing is imported here for those that do not."""

from vllm_omni_rig import environment

environment.activate()
