# SPDX-License-Identifier: Apache-2.0
"""What the processes of a run tell the rig: each leaves a note, in the run's directory, of who it is.

The run's directory stands in the environment of every process that the rig starts, and in no other.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

RUN = "VLLM_OMNI_RIG_RUN"
_DIRECTORY = "notes"


@dataclass(frozen=True, slots=True)
class Note:
    """A process: its number, the directory of the ``vllm_omni`` that it imported, the stage that it runs, if any."""

    pid: int
    vllm_omni: str
    stage: int | None = None


def run_directory() -> Path | None:
    """The run that this process belongs to."""
    run = os.environ.get(RUN)
    return Path(run) if run else None


def leave(stage: int | None = None) -> None:
    """Leave this process's note, in place of an earlier one; nothing happens outside a run."""
    run = run_directory()
    if run is None:
        return
    directory = run / _DIRECTORY
    directory.mkdir(exist_ok=True)
    imported = Path(str(sys.modules["vllm_omni"].__file__)).resolve().parent
    draft = directory / f"{os.getpid()}.draft"
    draft.write_text(json.dumps(asdict(Note(os.getpid(), str(imported), stage))), encoding="utf-8")
    draft.replace(directory / f"{os.getpid()}.json")


def read(run: Path) -> list[Note]:
    """All notes of a run, oldest process first; a process may have ended since."""
    files = sorted((run / _DIRECTORY).glob("*.json"), key=lambda file: int(file.stem))
    return [Note(**json.loads(file.read_text(encoding="utf-8"))) for file in files]
