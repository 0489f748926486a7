# SPDX-License-Identifier: Apache-2.0
"""A stage of stock 0.30.0 beside a migrated API process, and the reverse (contract, section 8).

Real processes, real sockets, vLLM-Omni's own code at both ends.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import tree_of
from contract import nothing_leaks

from vllm_omni_rig.environment import variables
from vllm_omni_rig.preloaded import python
from vllm_omni_rig.server import SETTINGS

PROGRAM = Path(__file__).with_name("mixed_program.py")
DEADLINE_S = 180
UNREADABLE = "UNREADABLE"
NAMES = ("GuardrailViolationError", "OmniClientError404", "VLLMValidationError", "RuntimeError", "EngineDeadError")

Results = dict[str, dict[str, Any]]


def process(variant: str, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
    environment = {**os.environ, **SETTINGS, **variables(tree=tree_of(variant))}
    return subprocess.Popen(
        python(environment, ["-P", str(PROGRAM), *arguments]), env=environment, text=True, **options
    )


def exchange(folder: Path, stage: str, client: str, *more: str) -> Results:
    """What a client of one variant makes of the failures of a stage of another."""
    names = (*more, *NAMES)
    addresses = [f"ipc://{folder}/{name}" for name in ("requests", "responses")]
    with (folder / "log").open("w") as log:
        serving = process(stage, "stage", *addresses, stdout=log, stderr=log)
        try:
            asking = process(client, "client", *addresses, *names, stdout=subprocess.PIPE, stderr=log)
            output, _ = asking.communicate(timeout=DEADLINE_S)
        finally:
            serving.kill()
            serving.wait()
    lines = [json.loads(line.partition("RESULT ")[2]) for line in output.splitlines() if "RESULT " in line]
    assert len(lines) == len(names), (folder / "log").read_text()[-3000:]
    return dict(zip(names, lines, strict=True))


@pytest.fixture(scope="module")
def of_an_old_stage(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return exchange(tmp_path_factory.mktemp("old"), "stock", "migrated")


@pytest.fixture(scope="module")
def of_a_new_stage(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return exchange(tmp_path_factory.mktemp("new"), "migrated", "stock", UNREADABLE)


def test_every_request_is_answered(of_an_old_stage: Results, of_a_new_stage: Results) -> None:
    for results in (of_an_old_stage, of_a_new_stage):
        assert {name: found["request_id"] for name, found in results.items()} == {n: f"request-{n}" for n in results}
        assert results.keys() >= set(NAMES)


@pytest.mark.parametrize(
    ("name", "exception", "details"),
    [
        ("GuardrailViolationError", "OmniClientError", [400, "BadRequestError", None, 1]),
        ("OmniClientError404", "VLLMNotFoundError", [404, "NotFoundError", None, 1]),
        ("VLLMValidationError", "OmniEngineGenerateError", [500, "InternalServerError", None, 1]),
        ("RuntimeError", "OmniEngineGenerateError", [500, "InternalServerError", None, 1]),
        ("EngineDeadError", "OmniEngineGenerateError", [500, "InternalServerError", None, 1]),
    ],
)
def test_of_an_old_stage_a_4xx_is_the_clients_and_all_else_the_servers(
    of_an_old_stage: Results, name: str, exception: str, details: list[object]
) -> None:
    """An old stage knows no parameter, and only its own client errors; what it says arrives with the stage."""
    assert (of_an_old_stage[name]["exception"], of_an_old_stage[name]["details"]) == (exception, details)


@pytest.mark.parametrize(
    ("name", "status", "error_type"),
    [
        ("GuardrailViolationError", 400, "GuardrailViolationError"),
        ("OmniClientError404", 404, "NotFoundError"),
        ("VLLMValidationError", 400, "BadRequestError"),
        ("RuntimeError", 500, "InternalServerError"),
        ("EngineDeadError", 500, "InternalServerError"),
    ],
)
def test_of_a_new_stage_an_old_api_process_reads_status_and_a_clean_text(
    of_a_new_stage: Results, name: str, status: int, error_type: str
) -> None:
    flat = of_a_new_stage[name]["flat"]
    assert (flat["status"], flat["type"]) == (status, error_type)
    assert flat["text"]
    nothing_leaks(flat["text"])


def test_a_request_that_a_new_stage_cannot_decode_fails_alone(of_a_new_stage: Results) -> None:
    """I02: it is answered, and so is every request after it."""
    assert of_a_new_stage[UNREADABLE]["flat"] == {
        "status": 500,
        "type": "InternalServerError",
        "text": "Internal server error",
    }
