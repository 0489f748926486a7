# SPDX-License-Identifier: Apache-2.0
"""`Omni` and `AsyncOmni` in a process of their own (offline_program.py), and the batches that they are given."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_omni_rig import checkpoint, faults, notes
from vllm_omni_rig.environment import variables
from vllm_omni_rig.preloaded import python
from vllm_omni_rig.server import DEPLOYMENTS, SETTINGS

PROGRAM = Path(__file__).with_name("offline_program.py")
DEADLINE_S = 240

Result = dict[str, Any]

LATE = (
    "VLLMValidationError",
    "GuardrailViolationError",
    "RuntimeError",
    "OmniServiceUnavailableError",
    "OmniStageTimeoutError",
)
"""What fails after another prompt of the same batch was answered."""

BATCHES: Mapping[str, list[str]] = {
    "refused": ["FAULT:guard"],
    "one of three": ["a", "FAULT:guard", "b"],
    "raw": ["FAULT:runtime"],
    "parameter": ["FAULT:raise=VLLMValidationError"],
    "two of three": ["FAULT:raise=OmniServiceUnavailableError", "c", "FAULT:raise=VLLMNotFoundError"],
    "conflict": ["FAULT:raise=OmniConflictError"],
    "timeout": ["FAULT:raise=OmniStageTimeoutError"],
    "unavailable": ["FAULT:raise=OmniServiceUnavailableError"],
    "unprocessable": ["FAULT:raise=VLLMUnprocessableEntityError"],
    "not implemented": ["FAULT:raise=OmniNotImplementedError"],
    "client": ["FAULT:raise=OmniClientError404"],
    **{f"late {name}": ["a", f"FAULT:raise={name}"] for name in LATE},
    "after all": ["d", "e"],
}
CONCURRENT = [
    "a",
    "FAULT:raise=GuardrailViolationError",
    "b",
    "FAULT:raise=VLLMValidationError",
    "c",
    "FAULT:raise=RuntimeError",
    "FAULT:raise=OmniServiceUnavailableError",
    "FAULT:raise=OmniStageTimeoutError",
    "FAULT:raise=OmniEngineDeadError",
]
"""For `AsyncOmni`: all at once."""

FATAL = {"dead": ["FAULT:raise=OmniEngineDeadError"], "after the end": ["f"]}


def run(tmp_path: Path, form: str, batches: Mapping[str, Sequence[str]], tree: Path | None) -> dict[str, Result]:
    """What came of each batch; a batch that is missing was not run."""
    deployment, results, log = (tmp_path / name for name in ("deployment.json", "results", "log"))
    deployment.write_text(json.dumps(DEPLOYMENTS[1]))
    environment = {
        **os.environ,
        **SETTINGS,
        **variables(tree=tree),
        notes.RUN: str(tmp_path),
        faults.SWITCH: ",".join(faults.PLACES_OF["1"]),
    }
    command = python(environment, ["-P", str(PROGRAM), form, str(checkpoint.write(tmp_path / "model"))])
    with log.open("w") as output:
        subprocess.run(
            [*command, str(deployment), str(results)],
            input="".join(json.dumps(prompts) + "\n" for prompts in batches.values()),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert results.is_file(), log.read_text()[-3000:]
    return dict(zip(batches, map(json.loads, results.read_text().splitlines()), strict=False))


class Offline:
    """What came of the batches, by form; each form is run once, when it is first asked for."""

    def __init__(self, folder: Path, tree: Path) -> None:
        self._folder, self._tree = folder, tree
        self._found: dict[str, dict[str, Result]] = {}

    def __call__(self, form: str) -> dict[str, Result]:
        if form not in self._found:
            batches = {"concurrent": CONCURRENT} if form == "async" else {**BATCHES, **FATAL}
            folder = self._folder / form
            folder.mkdir()
            self._found[form] = run(folder, form, batches, self._tree)
        return self._found[form]
