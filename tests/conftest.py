# SPDX-License-Identifier: Apache-2.0
"""Tests that import vLLM run beside a CPU torch too; nothing is imported here for those that do not.

Properties have no deadline: how fast something is, the benchmarks say.
"""

from hypothesis import HealthCheck, settings

from vllm_omni_rig import environment

environment.activate()
settings.register_profile("without-deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without-deadline")
