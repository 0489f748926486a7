# SPDX-License-Identifier: Apache-2.0
"""What a release consists of, made and tried in environments of its own.

    python scripts/release.py dist      sdist, wheel and list of dependencies in dist/, checked, and installed alone
    python scripts/release.py floors    the unit tests that need no vLLM, with the lowest versions that are allowed

Exit code 0, or 1 with one sentence on stderr; the environments are kept in build/release, with what pip said.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "release"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION: str = PROJECT["project"]["version"]
NAME = f"vllm_omni_errors-{VERSION}"

SOURCE = (
    "src/",
    "ledgers/",
    "newsfragments/",
    "tests/",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "PKG-INFO",
    ".gitignore",
)
"""What an sdist may hold."""

BARE = """
import sys
from vllm_omni_errors import OmniErrorDetails, decode, encode, sanitize
record = OmniErrorDetails("size is wrong", "client", 400, "BadRequestError", "size")
assert decode(encode(record)) == record and sanitize("/home/someone/x") == "<path>"
assert not {"vllm", "torch", "fastapi"} & set(sys.modules)
try:
    from vllm_omni_errors import install
except ImportError as error:
    assert "needs vLLM 0.27.0 or later" in str(error), error
else:
    raise AssertionError("install came without vLLM")
"""
"""What works where only the package and its one dependency are."""

WITHOUT_VLLM = (
    "audit",
    "migrate",
    "probe",
    "report/test_report.py",
    "report/test_sarif.py",
    "test_catalogue.py",
    "test_cli.py",
    "test_details.py",
    "test_explain.py",
    "test_field_errors.py",
    "test_metrics.py",
    "test_ops.py",
    "test_public_text.py",
    "test_public_text_corpus.py",
    "test_wire.py",
    "test_wire_processes.py",
)
"""Tests that need no vLLM, below tests/."""
NEEDS_VLLM_OMNI = "test_every_site_of_the_entrypoints_has_the_hash_of_the_rewrites"
TEST_TOOLS = (
    "hypothesis",
    "inline-snapshot",
    "jsonschema",
    "pip",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
)
TEST_LIBRARIES = (
    "fastapi",
    "opentelemetry-sdk",
    "psutil",
    "python-multipart",
    "pyyaml",
    "pyzmq",
    "schemastore",
    "starlette",
    "uvicorn",
    "websockets",
)


class ReleaseError(Exception):
    """A sentence for the user."""


def run(*command: object) -> str:
    """What a command prints. Raises ReleaseError with the end of it if it fails."""
    done = subprocess.run([str(each) for each in command], text=True, capture_output=True, check=False, cwd=ROOT)
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise ReleaseError(f"{' '.join(str(each) for each in command[:4])} … failed:\n{end}")
    return done.stdout


def environment(name: str, *requirements: object) -> Path:
    """A fresh environment with some packages and no pip; returns its interpreter."""
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--no-input", "install")
    run(*pip, "--quiet", *requirements)
    return python


def require(true: bool, sentence: str) -> None:
    if not true:
        raise ReleaseError(sentence)


# --- dist -----------------------------------------------------------------------------------------------------------


def dist() -> None:
    """Make dist/ and try what is in it. Raises ReleaseError."""
    shutil.rmtree(DIST, ignore_errors=True)
    tools = environment("tools", "--group", "release")
    run(tools, "-m", "build", "--outdir", DIST, ROOT)
    wheel, sdist = DIST / f"{NAME}-py3-none-any.whl", DIST / f"{NAME}.tar.gz"
    print(run(tools, "-m", "twine", "--no-color", "check", "--strict", wheel, sdist).strip())
    check_contents(wheel, sdist)
    for archive in (wheel, sdist):
        install_alone(archive)
    bill_of_materials(tools, wheel)


def check_contents(wheel: Path, sdist: Path) -> None:
    """Everything that belongs into the two is there, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    strange = [name for name in inside if not name.startswith(("vllm_omni_errors/", f"{NAME}.dist-info/"))]
    require(not strange, f"{wheel.name} holds {strange[:3]}.")
    for name in ("py.typed", "ledgers/vllm-omni-0.30.0/ledger.toml", "ledgers/upstream-0.30.0/ledger.toml"):
        require(f"vllm_omni_errors/{name}" in inside, f"{wheel.name} has no {name}.")
    metadata = inside[f"{NAME}.dist-info/METADATA"].decode()
    for extra, wanted in PROJECT["project"]["optional-dependencies"].items():
        for each in wanted:
            line = f"Requires-Dist: {Requirement(each)}; extra == '{extra}'"
            require(line in metadata.replace('"', "'"), f"{wheel.name} does not say: {line}.")
    with tarfile.open(sdist) as archive:
        files = {each.name.removeprefix(f"{NAME}/"): archive.extractfile(each) for each in archive if each.isfile()}
        source = {name: file.read() for name, file in files.items() if file is not None}
    strange = [name for name in source if not name.startswith(SOURCE) or "__pycache__" in name]
    require(not strange, f"{sdist.name} holds {strange[:3]}.")
    for name, content in (inside | source).items():
        require(str(ROOT).encode() not in content, f"{name} names a path of this machine.")
    print(f"{wheel.name}: {len(inside)} files, {sdist.name}: {len(source)} files, nothing that does not belong there.")


def install_alone(archive: Path) -> None:
    began = time.monotonic()
    python = environment("alone", archive)
    took = time.monotonic() - began
    run(python, "-I", "-c", BARE)
    names = [each["name"] for each in installed(python)]
    require(sorted(names) == ["msgspec", "vllm-omni-errors"], f"{archive.name} brings {', '.join(names)}.")
    command = subprocess.run([python.with_name("omni-errors")], text=True, capture_output=True, check=False)
    require(command.returncode == 2 and "[tools]" in command.stderr, f"omni-errors without tools says {command.stderr}")
    print(f"{archive.name} is installed alone in {took:.0f} s, with msgspec and nothing else.")


def bill_of_materials(tools: Path, wheel: Path) -> None:
    """A CycloneDX list of what the package and its extra bring, beside the two."""
    python = environment("full", f"{wheel}[tools]")
    run(python.with_name("omni-errors"), "explain", "503")
    out = DIST / f"{NAME}.cdx.json"
    run(
        *(tools, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON", "-o", out),
        *("--pyproject", ROOT / "pyproject.toml", python),
    )
    components = json.loads(out.read_text())["components"]
    require(str(ROOT) not in out.read_text(), f"{out.name} names a path of this machine.")
    print(f"{out.name}: {len(components)} components.")


def installed(python: Path) -> list[dict[str, str]]:
    listing = run(sys.executable, "-m", "pip", "--python", python, "list", "--format", "json")
    found: list[dict[str, str]] = json.loads(listing)
    return found


# --- floors ---------------------------------------------------------------------------------------------------------


def lowest(requirements: Iterable[str]) -> list[str]:
    """`click>=8.1` → `click==8.1`."""
    return [str(Requirement(each)).replace(">=", "==") for each in requirements]


def floors() -> None:
    """Run the tests. Raises ReleaseError."""
    project = PROJECT["project"]
    wanted = lowest([*project["dependencies"], *project["optional-dependencies"]["tools"]])
    print(f"{', '.join(wanted)} …", flush=True)
    python = environment("floors", ROOT, *wanted, *TEST_TOOLS, *TEST_LIBRARIES)
    paths = (ROOT / "tests" / name for name in WITHOUT_VLLM)
    code = subprocess.run(
        [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--deselect",
            f"tests/audit/test_messages.py::{NEEDS_VLLM_OMNI}",
            *paths,
        ],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'rig' / 'src'}", "PATH": f"{python.parent}:/usr/bin:/bin"},
        cwd=ROOT,
        check=False,
    ).returncode
    require(code == 0, "the tests fail with the lowest versions; raise a floor in pyproject.toml, or mend the code.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("dist", "floors"))
    try:
        {"dist": dist, "floors": floors}[parser.parse_args().what]()
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
