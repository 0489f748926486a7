# SPDX-License-Identifier: Apache-2.0
"""sdist and wheel hold what they should, and what needs no vLLM works without one. `make dist` also installs them."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from script_module import load

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return load("release")


@pytest.fixture(scope="module")
def dist(release: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = (sys.executable, "-m", "hatchling", "build", "--directory", str(folder))
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder / f"{release.NAME}-py3-none-any.whl", folder / f"{release.NAME}.tar.gz"


def test_they_hold_what_belongs_there_and_nothing_else(release: ModuleType, dist: tuple[Path, Path]) -> None:
    release.check_contents(*dist)


def test_without_vllm_the_record_works_and_the_rest_says_what_it_needs(
    release: ModuleType, dist: tuple[Path, Path], tmp_path: Path
) -> None:
    with zipfile.ZipFile(dist[0]) as wheel:
        wheel.extractall(tmp_path)
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    code = f"import sys; sys.path.append({str(tmp_path)!r})\n{release.BARE}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_requirement_is_pinned_in_the_lock_within_its_bounds() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = dict(line.partition(" ;")[0].split("==") for line in lines if not line.startswith("#"))
    locked = {canonicalize_name(name): version.strip() for name, version in pins.items()}
    project = PROJECT["project"]
    wanted = [
        *project["dependencies"],
        *project["optional-dependencies"]["tools"],
        *PROJECT["dependency-groups"]["dev"],
    ]
    for each in map(Requirement, wanted):
        assert each.specifier.contains(locked[canonicalize_name(each.name)]), each


def test_the_version_is_a_release() -> None:
    assert PROJECT["project"]["version"].replace(".", "").isdigit()
