# SPDX-License-Identifier: Apache-2.0
"""The probe of the migrated server with a quarter, half and all of its checks: how its time grows with them."""

import time
from collections.abc import Iterator

from vllm_omni_errors.probe import CHECKS
from vllm_omni_errors.probe import run as probe

from .measure import Result, exponent
from .servers import MIGRATED, both, say

SHARES = (4, 2, 1)
"""Every so many-th check: those that take long are in each part."""


def run() -> Iterator[Result]:
    """Yield every line of the subject."""
    url = both()[MIGRATED].url
    wall: dict[int, float] = {}
    cpu: dict[int, float] = {}
    for share in SHARES:
        checks = CHECKS[::share]
        began, cpu_began = time.perf_counter(), time.process_time()
        report = probe(url, checks=checks)
        count = len(checks)
        wall[count], cpu[count] = time.perf_counter() - began, time.process_time() - cpu_began
        say(f"probe: {count} checks, {report.failed} broken, {report.skipped} skipped, {wall[count]:.0f} s")
    yield Result("probe", f"all {count} checks, wall", wall[count], "s")
    yield Result("probe", f"all {count} checks", cpu[count], "s")
    yield Result("probe", "growth with checks, exponent, wall", exponent(wall), "", 1.1)
    yield Result("probe", "growth with checks, exponent", exponent(cpu), "", 1.1)
