# SPDX-License-Identifier: Apache-2.0
"""What importing the package costs beyond vLLM, in fresh processes."""

import statistics
import subprocess
import sys
from collections.abc import Iterator

from .measure import Result

REPETITIONS = 3
LIGHT = "from vllm_omni_errors import OmniErrorDetails, encode, decode, sanitize"
WHOLE = "from vllm_omni_errors import *"
PROGRAM = """
import time
{before}
start = time.process_time()
{what}
print(time.process_time() - start)
"""
# What vLLM's API server has loaded anyway; the first touch of starlette and pydantic is not ours.
UPSTREAM = """
from vllm_omni_rig import environment
environment.activate()
import vllm.exceptions, vllm.v1.engine.exceptions, vllm.entrypoints.serve.exception_handling.error_response
import fastapi, fastapi.exceptions, fastapi.responses, msgspec, prometheus_client
"""


def run() -> Iterator[Result]:
    """Yield every line of the subject."""
    yield Result("import", "the record, wire and sanitizer, without vLLM", _milliseconds("", LIGHT), "ms", 50)
    yield Result("import", "all public names, beyond vLLM", _milliseconds(UPSTREAM, WHOLE), "ms", 50)


def _milliseconds(before: str, what: str) -> float:
    times = []
    for _ in range(REPETITIONS):
        program = PROGRAM.format(before=before, what=what)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
        times.append(float(done.stdout.splitlines()[-1]))
    return statistics.median(times) * 1_000
