# SPDX-License-Identifier: Apache-2.0
"""A census: what a process of a run holds at this moment, taken when the rig asks for it.

It is for a soak, whose question is what grows. A thread in every process of the run waits for the file that asks; it
costs a look at the file twice a second.
"""

import asyncio
import ctypes
import gc
import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path

SWITCH = "VLLM_OMNI_RIG_CENSUS"
LOOK_EVERY_S = 0.5
_DIRECTORY = "census"

REQUESTS = ("ClientRequestState", "OrchestratorRequestState", "SchedulerRequestState", "RequestState", "Request")
"""Classes whose instances are a request's state: in the API process, the orchestrator, and the stages."""

TASKS = "tasks"
EXCEPTIONS = "exceptions"
BLOCKS = "Python blocks"
"""What Python has allocated for its objects. Unlike the process's memory it does not know of what native code keeps."""


def _counts() -> Counter[str]:
    """Also gives back to the system what is free, so that the process's memory is what it holds."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    counts: Counter[str] = Counter({TASKS: 0, EXCEPTIONS: 0, BLOCKS: sys.getallocatedblocks()})
    for each in gc.get_objects():
        kind = type(each)
        if issubclass(kind, BaseException):
            counts[EXCEPTIONS] += 1
        elif issubclass(kind, asyncio.Task):
            counts[TASKS] += not each.done()
        elif kind.__name__ in REQUESTS and kind.__module__.startswith(("vllm.", "vllm_omni.")):
            counts[kind.__name__] += 1
    return counts


def _attend(directory: Path) -> None:
    asked, done = directory / "asked", ""
    while True:
        time.sleep(LOOK_EVERY_S)
        try:
            number = asked.read_text()
        except OSError:
            continue
        if number != done:
            done = number
            draft = directory / f"{os.getpid()}.draft"
            draft.write_text(json.dumps(_counts()))
            draft.replace(directory / f"{os.getpid()}.{number}.json")


def attend(run: Path) -> None:
    """Let this process take part, once, if the run has :data:`SWITCH` in its environment."""
    name = "vllm-omni-rig-census"
    if os.environ.get(SWITCH) and name not in {thread.name for thread in threading.enumerate()}:
        (run / _DIRECTORY).mkdir(exist_ok=True)
        threading.Thread(target=_attend, args=(run / _DIRECTORY,), name=name, daemon=True).start()


def take(run: Path, pids: list[int], number: int, deadline_s: float = 30.0) -> dict[int, Counter[str]]:
    """Process → what it holds; ``number`` is a new one each time. Raises TimeoutError if a process does not answer."""
    directory = run / _DIRECTORY
    asked = directory / "asked"
    draft = directory / "asked.draft"
    draft.write_text(str(number))
    draft.replace(asked)
    files = {pid: directory / f"{pid}.{number}.json" for pid in pids}
    end = time.monotonic() + deadline_s
    while missing := [pid for pid, file in files.items() if not file.exists()]:
        if time.monotonic() > end:
            raise TimeoutError(f"The processes {missing} took no part in the census.")
        time.sleep(0.05)
    return {pid: Counter(json.loads(file.read_text())) for pid, file in files.items()}
