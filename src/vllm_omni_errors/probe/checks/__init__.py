# SPDX-License-Identifier: Apache-2.0
"""The catalogue of checks, in the order in which they run."""

from vllm_omni_errors.probe.check import Check
from vllm_omni_errors.probe.checks import bodies, faults, fields, last, media, routing, success

_ALL = (*success.CHECKS, *routing.CHECKS, *bodies.CHECKS, *fields.CHECKS, *media.CHECKS, *faults.CHECKS, *last.CHECKS)

CHECKS: tuple[Check, ...] = tuple(sorted(_ALL, key=lambda check: check.danger))
