# SPDX-License-Identifier: Apache-2.0
"""Checks any running server's error contract from outside.

    from vllm_omni_errors.probe import run

    report = run("http://127.0.0.1:8000")

Needs the extra `[tools]`; imports neither vLLM nor torch.
"""

from vllm_omni_errors.probe.check import Check
from vllm_omni_errors.probe.checks import CHECKS
from vllm_omni_errors.probe.context import Pace
from vllm_omni_errors.probe.record import Evidence, Finding, ProbeError, Report, Result
from vllm_omni_errors.probe.runner import Progress, run

__all__ = [
    "CHECKS",
    "Check",
    "Evidence",
    "Finding",
    "Pace",
    "ProbeError",
    "Progress",
    "Report",
    "Result",
    "run",
]
