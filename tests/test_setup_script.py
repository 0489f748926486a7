# SPDX-License-Identifier: Apache-2.0
"""scripts/setup.py says in one sentence what is wrong, and never replaces anything of somebody else's environment."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from script_module import SCRIPTS, load


@pytest.fixture(scope="module")
def setup_script() -> ModuleType:
    return load("setup")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "setup.py"), *arguments], capture_output=True, text=True, check=False
    )


def sentences(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith("setup:")]


def test_a_directory_that_is_no_environment_is_refused(tmp_path: Path) -> None:
    result = run("--venv", str(tmp_path))
    assert result.returncode == 1
    assert sentences(result) == [
        f"setup: {tmp_path} is no virtual environment (no bin/python); make it first, or leave VENV out."
    ]
    assert list(tmp_path.iterdir()) == []


def test_an_environment_without_vllm_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\ncase "$*" in *version_info*) exec {sys.executable} "$@";; esac\nexit 1\n')
    python.chmod(0o755)
    result = run("--venv", str(tmp_path))
    assert result.returncode == 1
    assert sentences(result) == [
        f"setup: {tmp_path} has no torch; install it there first, or leave VENV out to get a fresh environment."
    ]


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (2, 7)])
def test_a_python_out_of_range_is_named(setup_script: ModuleType, version: tuple[int, int]) -> None:
    with pytest.raises(setup_script.SetupError, match=rf"/opt/python is Python {version[0]}\.{version[1]}, and 3\.11"):
        setup_script.check_version(version, "/opt/python")


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_the_supported_pythons_pass(setup_script: ModuleType, version: tuple[int, int]) -> None:
    setup_script.check_version(version, "/opt/python")


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: Could not find a version that satisfies the requirement x", "does not offer a package"),
        ("ConnectionError: Max retries exceeded", "a download failed"),
        ("NewConnectionError: refused\nERROR: No matching distribution found for x", "a download failed"),
        ("ERROR: something else", "ERROR: something else"),
    ],
)
def test_a_failed_step_says_why_and_where_its_log_is(
    setup_script: ModuleType, tmp_path: Path, output: str, cause: str
) -> None:
    log = setup_script.Log(tmp_path / "setup.log", steps=1)
    command = [sys.executable, "-c", f"print({output!r}); raise SystemExit(1)"]
    with pytest.raises(setup_script.SetupError) as caught:
        log.run("A step", command)
    assert cause in str(caught.value)
    assert str(tmp_path / "setup.log") in str(caught.value)


def test_the_cause_of_an_earlier_step_is_not_reported(setup_script: ModuleType, tmp_path: Path) -> None:
    log = setup_script.Log(tmp_path / "setup.log", steps=2)
    log.run("A step", [sys.executable, "-c", "print('No space left on device')"])
    with pytest.raises(setup_script.SetupError, match="the installation failed"):
        log.run("Another", [sys.executable, "-c", "raise SystemExit(1)"])


def test_a_change_of_what_is_installed_runs_the_set_up_again(
    setup_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in setup_script.INPUTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a")
    monkeypatch.setattr(setup_script, "ROOT", tmp_path)
    before = setup_script.fingerprint("own")
    (tmp_path / "requirements.lock").write_text("b")
    assert setup_script.fingerprint("own") != before
