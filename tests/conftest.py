# SPDX-License-Identifier: Apache-2.0
"""Tests that import vLLM run beside a CPU torch too; nothing is imported here for those that do not.

Properties have no deadline: how fast something is, the benchmarks say.
"""

import signal

from hypothesis import HealthCheck, settings

from vllm_omni_rig import environment

environment.activate()
settings.register_profile("without-deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without-deadline")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so starts what a shell runs in the background, and its children
    signal.signal(signal.SIGINT, signal.default_int_handler)
