# SPDX-License-Identifier: Apache-2.0
"""The migration of the real vLLM-Omni 0.30.0: no server, but its wheel, downloaded once."""

import ast
import email
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from vllm_omni_errors.migrate import Result, manifest, migrate, rewrites
from vllm_omni_errors.migrate.rewrite import PHASES
from vllm_omni_errors.migrate.series import Series, write_series
from vllm_omni_rig.server import Server, start

ROOT = Path(__file__).parents[2]


def wheel(version: str) -> Path:
    """A wheel of vLLM-Omni, downloaded if need be."""
    path = ROOT / "build" / "wheels" / f"vllm_omni-{version}-py3-none-any.whl"
    if not path.is_file():
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest"]
        subprocess.run([*command, str(path.parent), f"vllm-omni=={version}"], check=True, timeout=600)
    return path


@pytest.fixture(scope="session")
def stock_wheel() -> Path:
    return wheel("0.30.0")


@pytest.fixture(scope="session")
def stock(stock_wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(stock_wheel) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("migrated")


@pytest.fixture(scope="session")
def migrated(stock_wheel: Path, results: Path) -> Result:
    return migrate(str(stock_wheel), results / "all", diff=results / "all.diff", wheel=True)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.suffix not in (".whl", ".pyc")
    }


def test_without_rewrites_the_tree_is_byte_identical(stock_wheel, stock, tmp_path, monkeypatch):
    monkeypatch.setattr(rewrites, "ALL", ())
    migrate(str(stock_wheel), tmp_path / "out")
    got = contents(tmp_path / "out")
    assert got.pop(manifest.PATH)
    assert got == stock


def test_what_no_rewrite_names_is_byte_identical(migrated, stock):
    named = {row.path for row in migrated.rewrites}
    got = contents(migrated.out)
    assert set(got) == {*stock, manifest.PATH}
    assert {path for path in stock if got[path] != stock[path]} == named
    for path in named:
        assert b"# This file was changed by vllm-omni-errors " in got[path][:1_000], path  # below a licence


def test_phases_one_by_one_give_the_same_as_all_at_once(migrated, stock_wheel, tmp_path):
    migrate(str(stock_wheel), tmp_path / "bridge", phase="bridge")
    result = migrate(str(tmp_path / "bridge"), tmp_path / "all")
    assert result.new_phases == PHASES[1:]
    assert contents(tmp_path / "all") == contents(migrated.out)


def test_own_output_is_left_alone(migrated, tmp_path):
    for source in (migrated.out, migrated.wheel):
        assert migrate(str(source), tmp_path / "again").new_phases == ()
    assert contents(tmp_path / "again").keys() - contents(migrated.out).keys() == {
        f"vllm_omni-0.30.0+errors.1.dist-info/{name}"
        for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
    }


@pytest.mark.parametrize("command", [["git", "apply"], ["patch", "-s", "-p1", "-i"]])
def test_diff_makes_the_migrated_tree_of_the_stock_one(migrated, stock_wheel, tmp_path, command):
    with zipfile.ZipFile(stock_wheel) as archive:
        archive.extractall(tmp_path)
    subprocess.run([*command, str(migrated.diff)], cwd=tmp_path, check=True, timeout=120)
    assert contents(tmp_path) == contents(migrated.out)


def test_installed_vllm_omni_gives_the_same_as_its_wheel(migrated, tmp_path):
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--no-compile",
        "--target",
        str(tmp_path / "site"),
    ]
    subprocess.run([*pip, str(wheel("0.30.0"))], check=True, capture_output=True, timeout=300)
    result = migrate(str(tmp_path / "site"), tmp_path / "out", wheel=True)
    assert result.wheel is not None
    assert migrated.wheel is not None
    with zipfile.ZipFile(result.wheel) as got, zipfile.ZipFile(migrated.wheel) as wanted:
        different = {name for name in wanted.namelist() if got.read(name) != wanted.read(name)}
        assert got.namelist() == wanted.namelist()
    # the digest of the tree counts what pip added beside RECORD
    assert different <= {manifest.PATH, "vllm_omni-0.30.0+errors.1.dist-info/RECORD"}


def test_wheel_installs_and_uninstalls(migrated, stock, tmp_path):
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "venv/bin/python"), "--disable-pip-version-check"]
    install = [*pip, "install", "--no-deps", "--no-index", "--no-compile", str(migrated.wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    (site,) = (tmp_path / "venv").glob("lib/*/site-packages")
    assert contents(site / "vllm_omni") == contents(migrated.out / "vllm_omni")
    metadata = email.message_from_bytes((site / "vllm_omni-0.30.0+errors.1.dist-info/METADATA").read_bytes())
    wanted = email.message_from_bytes(stock["vllm_omni-0.30.0.dist-info/METADATA"])
    assert metadata["Version"] == "0.30.0+errors.1"
    ours, *others = metadata.get_all("Requires-Dist") or []
    assert ours == f"vllm-omni-errors>={manifest.library_version()}"
    assert others == wanted.get_all("Requires-Dist")
    assert metadata.get_payload() == wanted.get_payload()
    assert (tmp_path / "venv/bin/vllm-omni").exists()
    subprocess.run([*pip, "uninstall", "-y", "vllm-omni"], check=True, capture_output=True, timeout=300)
    assert not list((tmp_path / "venv").rglob("*vllm_omni*"))
    assert not (tmp_path / "venv/bin/vllm-omni").exists()


# ---- trees that the rewrites are not written for ---------------------------------------------------------------------

API_SERVER = "vllm_omni/entrypoints/openai/api_server.py"
NEW_ROUTE = b"""

@router.post("/v1/doors")
async def open_door(size: int):
    raise ValueError(f"no door is {size} wide")
"""


def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON and what a terminal shows."""
    done = subprocess.run(
        [sys.executable, "-m", "vllm_omni_errors.cli", "migrate", *arguments, "--json", "-"],
        capture_output=True, text=True, timeout=550, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)["error"], done.stderr


@pytest.fixture(scope="module")
def of_0_28_0(results: Path) -> tuple[int, dict[str, Any], str]:
    return run(str(wheel("0.28.0")), "--out", str(results / "0.28.0"))


def test_nothing_is_applied_to_0_28_0(of_0_28_0, results):
    code, error, shown = of_0_28_0
    assert code == 2
    assert not (results / "0.28.0").exists()
    assert "do not match vLLM-Omni 0.28.0" in error["reason"]
    assert "Nothing was written." in shown


def test_what_matches_in_0_28_0_and_what_does_not_is_listed_by_rewrite(of_0_28_0):
    _, error, shown = of_0_28_0
    listed = [(row["rewrite"], row["path"]) for row in (*error["matched"], *error["unmatched"])]
    assert sorted(listed) == sorted((each.__name__, f"vllm_omni/{each.module}") for each in rewrites.ALL)
    assert len(error["matched"]) > 300
    assert len(error["unmatched"]) > 100
    assert {row["phase"]: row["matched"] + row["unmatched"] for row in error["phases"]} == Counter(
        each.phase for each in rewrites.ALL
    )
    assert all(row["rewrite"] in shown and row["path"] in shown for row in error["unmatched"])


def test_sites_of_0_28_0_that_are_gone_are_named(of_0_28_0):
    _, error, shown = of_0_28_0
    some = [row for row in error["unmatched"] if row["rewrite"] == "DecidedSites" and row["found"]]
    assert some
    for row in some:
        assert len(row["sites"]) == row["expected"] - row["found"]
        assert all(site in shown for site in row["sites"])


@pytest.fixture(scope="module")
def patched(stock, results) -> Path:
    """0.30.0 with a line changed where the second phase rewrites, and a route that nobody reviewed."""
    tree = results / "patched"
    for path, content in stock.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
    return tree


def change(tree: Path, path: str, stock: bytes, old: bytes, new: bytes) -> None:
    assert stock.count(old) >= 1
    (tree / path).write_bytes(stock.replace(old, new, 1))


def test_a_patched_0_30_0_is_limited_to_the_phases_that_match(patched, stock, tmp_path):
    path = "vllm_omni/entrypoints/openai/image_api_utils.py"
    change(patched, path, stock[path], b"def parse_size(", b"def read_size(")
    code, error, shown = run(str(patched), "--out", str(tmp_path / "out"))
    assert code == 2
    assert {row["path"] for row in error["unmatched"]} == {path}
    assert "All of --phase bridge matches here." in shown
    assert not (tmp_path / "out").exists()
    assert migrate(str(patched), tmp_path / "out", phase="bridge").new_phases == ("bridge",)
    (patched / path).write_bytes(stock[path])


def test_a_patched_0_30_0_with_an_unreviewed_route_is_not_finalized(patched, stock, tmp_path):
    (patched / API_SERVER).write_bytes(stock[API_SERVER] + NEW_ROUTE)
    code, error, shown = run(str(patched), "--out", str(tmp_path / "out"))
    assert code == 2
    assert "open_door: raise of ValueError is not decided" in error["reason"]
    assert "give --phase transports" in shown
    (patched / API_SERVER).write_bytes(stock[API_SERVER])


# ---- the patch series ------------------------------------------------------------------------------------------------

PATIENCE_S = 1200  # making the series and importing after each patch take minutes on a busy machine
patient = pytest.mark.timeout(PATIENCE_S)


@pytest.fixture(scope="session")
def series(stock_wheel: Path, results: Path) -> Series:
    with pytest.MonkeyPatch.context() as patch:
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "Ann Author")
            patch.setenv(f"GIT_{role}_EMAIL", "ann@example.org")
        return write_series(str(stock_wheel), results / "series")


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture(scope="session")
def repository(series: Series, stock_wheel: Path, results: Path) -> Path:
    """The stock wheel's files, committed, and every patch of the series on top."""
    directory = results / "repository"
    with zipfile.ZipFile(stock_wheel) as archive:
        archive.extractall(directory)
    git(directory, "init", "--quiet")
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--message=vLLM-Omni 0.30.0")
    assert git(directory, "rev-parse", "HEAD:vllm_omni").strip() == series.base
    git(directory, "am", "--quiet", *(str(series.directory / patch.name) for patch in series.patches))
    return directory


NOTICE = re.compile(rb"# This file was changed by .*\n# Phases: .*\n")
LIBRARY_IMPORT = re.compile(r"(vllm_omni_errors|vllm_omni\.errors)(\.|$)")


def without_library(text: str) -> tuple[list[str], set[str]]:
    """The lines of a module but blank ones and the library's imports, and the names that those import."""
    lines = dict(enumerate(text.splitlines(), 1))
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and LIBRARY_IMPORT.match(node.module or ""):
            names |= {alias.name for alias in node.names}
            for number in range(node.lineno, (node.end_lineno or 0) + 1):
                lines[number] = ""
    return [line for line in lines.values() if line.strip()], names


@patient
def test_series_makes_the_migrated_tree(migrated, series, repository, stock):
    """Byte for byte, but for our notices and manifest, and for where the library is imported from."""
    documented = (ROOT / "docs" / "series.md").read_text()
    assert series.base in documented
    assert f"\n{len(series.patches)} patches" in documented
    assert git(repository, "rev-parse", "HEAD:vllm_omni").strip() == series.result
    for path in stock:
        moved = path.replace("vllm_omni/errors.py", "vllm_omni/errors/__init__.py")
        ours = re.sub(
            rb"# This file was changed by .*\n# Phases: .*\n", b"", (migrated.out / path).read_bytes(), count=1
        )
        if b"vllm_omni_errors" not in ours:
            assert (repository / moved).read_bytes() == ours, path
        else:
            assert without_library((repository / moved).read_text()) == without_library(ours.decode()), path


@patient
def test_after_each_patch_every_file_compiles_and_what_changed_can_be_imported(series, repository):
    commits = git(repository, "rev-list", "--reverse", f"HEAD~{len(series.patches)}..HEAD").split()
    program = [sys.executable, str(Path(__file__).with_name("series_program.py")), str(repository), *commits]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {commit: {} for commit in commits}


@patient
def test_the_librarys_own_tests_pass_in_the_patched_tree(repository):
    program = (
        "import sys; from vllm_omni_rig import environment; environment.activate(); import pytest, vllm_omni.errors\n"
        "assert vllm_omni.errors.__file__.startswith(sys.argv[1])\n"
        "sys.exit(pytest.main(['tests/errors', '-q', '-p', 'no:cacheprovider']))"
    )
    path = os.pathsep.join([str(repository), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program, str(repository)],
        cwd=repository,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert re.search(r"[1-9]\d\d passed", done.stdout)


@pytest.fixture
def vendored_server(repository: Path, results: Path) -> Iterator[Server]:
    server = start(1, tree=repository, log=results / "vendored.log")
    yield server
    server.stop()


WRONG = (
    {"prompt": "a cat", "model": "another"},
    {"prompt": "a cat", "size": "large"},
    {"prompt": "FAULT:badoutput"},
    {"prompt": "FAULT:raise=ValueError"},
    {"prompt": 3},
)


@patient
def test_server_with_the_vendored_library_answers_as_the_migrated_one(vendored_server, migrated_inline):
    def answers(server: Server) -> list[tuple[int, object]]:
        found = []
        for body in WRONG:
            answer = httpx.post(f"{server.url}/v1/images/generations", json=body, timeout=60)
            error = answer.json()["error"]
            assert error.pop("request_id")
            found.append((answer.status_code, error))
        return found

    got = answers(vendored_server)
    assert got == answers(migrated_inline)
    assert [status for status, _ in got] == [404, 400, 500, 500, 400]
    assert "vllm_omni_errors" not in vendored_server.log.read_text()
