# SPDX-License-Identifier: Apache-2.0
"""The migrated wheel, installed over the stock one as the README says, serves with vLLM-Omni's own command.

The environment is a new one above the tests' own: vLLM-Omni, the library and the rig are installed in it as wheels;
everything else (torch, vLLM, their requirements) is that of the environment below; a really clean one has its own.
Nothing is on PYTHONPATH; what the rig works around on a CPU is activated by a file of the environment.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from calls import images
from cases import now
from contract import verify
from support import send
from test_migrate_real import stock_wheel  # noqa: F401

from vllm_omni_rig import server as rig
from vllm_omni_rig.server import Server, start

ROOT = Path(__file__).parents[2]
COMMAND_S = 300
WORKAROUNDS = "import vllm_omni_rig.environment; vllm_omni_rig.environment.activate()"
CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def pip(*arguments: object, check: bool = True) -> list[str]:
    """What pip prints; raises CalledProcessError if it fails, unless that is what is asked about."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, check=check, capture_output=True, text=True, timeout=COMMAND_S, env=CLEAN)
    return done.stdout.splitlines()


class Environment:
    """A virtual environment that sees the packages of the tests' own below its own, or does not."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        (self.site,) = folder.glob("lib/*/site-packages")
        self.program = folder / "bin" / "vllm-omni"
        self._python = folder / "bin" / "python"
        self._below = self.site / "below.pth"

    def install(self, *wheels: Path) -> None:
        """Out of sight of the environment below, whose packages pip must neither count nor remove."""
        self._below.unlink(missing_ok=True)
        pip("--python", self._python, "install", "--no-deps", "--no-index", "--no-compile", *wheels)

    def complaints(self) -> set[str]:
        """What `pip check` says, without the part of a version that says that it is migrated."""
        self._below.write_text(sysconfig.get_path("purelib"))
        return {line.replace("+errors.1", "") for line in pip("--python", self._python, "check", check=False)}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("installed") / "environment")


@pytest.fixture(scope="module")
def complaints(environment: Environment, stock_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[set[str]]:  # noqa: F811
    """With the stock wheel, and with the migrated one and the library in its place."""
    wheels = tmp_path_factory.mktemp("wheels")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, ROOT, ROOT / "rig")
    (migrated,) = (ROOT / "build" / "migration").glob("*.whl")
    environment.install(stock_wheel)
    before = environment.complaints()
    environment.install(migrated, *wheels.glob("*.whl"))
    return [before, environment.complaints()]


@pytest.fixture(scope="module")
def server(
    environment: Environment, complaints: list[set[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    (environment.site / "workarounds.pth").write_text(WORKAROUNDS)
    command = rig._command

    def installed(*arguments: object) -> list[str]:
        words = command(*arguments)  # type: ignore[arg-type]
        return [str(environment.program), *words[words.index("serve") :]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig, "_command", installed)
        log = tmp_path_factory.mktemp("log") / "server.log"
        server = start(1, log=log, environment={"PYTHONPATH": ""})
    with server:
        yield server


def test_pip_finds_no_more_to_complain_about_than_before(complaints: list[set[str]]) -> None:
    before, after = complaints
    assert after == before


def test_what_is_installed_is_what_serves(environment: Environment, server: Server) -> None:
    assert set(server.code_paths().values()) == {environment.site / "vllm_omni"}
    verify(send(server.url, images("FAULT:badoutput")), now(500, "InternalServerError"))
    assert send(server.url, images("hi")).status == 200
