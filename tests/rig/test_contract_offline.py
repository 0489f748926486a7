# SPDX-License-Identifier: Apache-2.0
"""`Omni` and `AsyncOmni` in Python (contract, section 7): on a real stage, in a process of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import tree_of
from contract import nothing_leaks

from vllm_omni_rig import checkpoint, faults, notes
from vllm_omni_rig.environment import variables
from vllm_omni_rig.server import DEPLOYMENTS, SETTINGS

PROGRAM = Path(__file__).with_name("offline_program.py")
DEADLINE_S = 240

Result = dict[str, Any]
Run = Callable[..., list[Result]]

BATCHES: Mapping[str, list[str]] = {
    "refused": ["FAULT:guard"],
    "one of three": ["a", "FAULT:guard", "b"],
    "raw": ["FAULT:runtime"],
    "parameter": ["FAULT:raise=VLLMValidationError"],
    "two of three": ["FAULT:raise=OmniServiceUnavailableError", "c", "FAULT:raise=VLLMNotFoundError"],
    "conflict": ["FAULT:raise=OmniConflictError"],
    "timeout": ["FAULT:raise=OmniStageTimeoutError"],
    "unprocessable": ["FAULT:raise=VLLMUnprocessableEntityError"],
    "not implemented": ["FAULT:raise=OmniNotImplementedError"],
    "client": ["FAULT:raise=OmniClientError404"],
    "after all": ["d", "e"],
}
FATAL = {"dead": ["FAULT:raise=OmniEngineDeadError"], "after the end": ["f"]}


def run(
    tmp_path: Path, form: str, batches: Mapping[str, Sequence[str]], variant: str = "migrated", stages: int = 1
) -> dict[str, Result]:
    """What came of each batch; a batch that is missing was not run."""
    deployment, results, log = (tmp_path / name for name in ("deployment.json", "results", "log"))
    deployment.write_text(json.dumps(DEPLOYMENTS[stages]))
    environment = {
        **os.environ,
        **SETTINGS,
        **variables(tree=tree_of(variant)),
        notes.RUN: str(tmp_path),
        faults.SWITCH: ",".join(faults.PLACES_OF[str(stages)]),
    }
    command = [sys.executable, "-P", str(PROGRAM), form, str(checkpoint.write(tmp_path / "model"))]
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


@pytest.fixture(scope="module", params=["list", "generator"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """The batches of both forms; the engine must live to the end of each."""
    found = run(tmp_path_factory.mktemp(request.param), request.param, {**BATCHES, **FATAL})
    return found | {"form": {"name": request.param}}


SEMANTIC = [
    ("refused", "GuardrailViolationError", 400, "GuardrailViolationError", None),
    ("parameter", "VLLMValidationError", 400, "BadRequestError", "size"),
    ("conflict", "OmniConflictError", 409, "ConflictError", None),
    ("unprocessable", "VLLMUnprocessableEntityError", 422, "UnprocessableEntityError", "size"),
    ("client", "VLLMNotFoundError", 404, "NotFoundError", None),
    ("not implemented", "OmniNotImplementedError", 501, "NotImplementedError", None),
    ("timeout", "OmniStageTimeoutError", 504, "GatewayTimeoutError", None),
    ("raw", "OmniEngineGenerateError", 500, "InternalServerError", None),
]


@pytest.mark.parametrize(("batch", "name", "status", "error_type", "parameter"), SEMANTIC)
def test_a_failure_in_a_stage_is_the_semantic_exception(
    results: dict[str, Result], batch: str, name: str, status: int, error_type: str, parameter: str | None
) -> None:
    """I13, I15: class, record and stage are those of the failure, not a `RuntimeError`."""
    error = results[batch]["error"]
    details = error["details"]
    assert (error["class"], details["status_code"], details["error_type"]) == (name, status, error_type)
    assert (error["parameter"], details["parameter"]) == (parameter, parameter)
    assert (error["stage_id"], details["stage_id"], details["fatal"]) == (0, 0, False)
    assert "stage 0" in error["notes"][0]
    nothing_leaks(json.dumps({**error, "text": error["text"].replace("(parameter=size)", "")}))


def test_a_guardrail_can_be_caught_by_its_class_and_as_a_client_error(results: dict[str, Result]) -> None:
    bases = results["refused"]["error"]["bases"]
    assert {"GuardrailViolationError", "OmniClientError", "VLLMClientError"} <= set(bases)
    assert "ValueError" not in bases


def test_one_failure_of_a_batch_loses_that_request_only(results: dict[str, Result]) -> None:
    """The others are finished first; the list form hands them over with the exception, the generator before it."""
    found = results["one of three"]
    error = found["error"]
    assert (error["class"], error["failures"]) == ("GuardrailViolationError", {"1": "GuardrailViolationError"})
    assert (error["outputs"] if results["form"]["name"] == "list" else found["outputs"]) == 2


def test_the_first_of_several_failures_is_raised_and_knows_the_others(results: dict[str, Result]) -> None:
    error = results["two of three"]["error"]
    assert error["class"] == "OmniServiceUnavailableError"
    assert error["failures"] == {"0": "OmniServiceUnavailableError", "2": "VLLMNotFoundError"}


def test_the_engine_is_open_after_all_that(results: dict[str, Result]) -> None:
    assert results["after all"]["error"] is None
    assert results["after all"]["outputs"] == 2


def test_a_fatal_failure_closes_the_engine(results: dict[str, Result]) -> None:
    dead = results["dead"]["error"]
    assert (dead["class"], dead["details"]["fatal"], dead["stage_id"]) == ("OmniEngineDeadError", True, 0)
    assert results.get("after the end", {"error": "not run"})["error"] is not None


def test_stock_loses_the_batch_and_the_engine(tmp_path: Path) -> None:
    """What the tests above are about (facts, section 5)."""
    found = run(tmp_path, "list", {"one of three": BATCHES["one of three"], "after all": ["d"]}, "stock")
    assert (found["one of three"]["outputs"], found["one of three"]["error"]["details"]) == (0, None)
    assert found.get("after all", {"error": "not run"})["error"] is not None


def test_async_requests_without_an_id_are_independent(tmp_path: Path) -> None:
    """L13, and the same exceptions as those of `Omni`."""
    prompts = ["a", "FAULT:guard", "b", "FAULT:raise=VLLMValidationError", "c", "FAULT:runtime"]
    (found,) = run(tmp_path, "async", {"concurrent": prompts}).values()
    classes = [each["error"] and each["error"]["class"] for each in found["requests"]]
    assert classes == [None, "GuardrailViolationError", None, "VLLMValidationError", None, "OmniEngineGenerateError"]
    assert [each["outputs"] for each in found["requests"]] == [1, 0, 1, 0, 1, 0]
    assert all(each["error"]["details"]["stage_id"] == 0 for each in found["requests"] if each["error"])
