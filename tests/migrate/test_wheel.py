# SPDX-License-Identifier: Apache-2.0
"""The wheel of a migrated tree: its files, its metadata, and the same bytes each time."""

import base64
import csv
import hashlib
import importlib.metadata
import io
import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from packaging.version import Version
from synthetic_tree import DIST_INFO, FILES, METADATA, WHEEL_FILES, contents

from vllm_omni_errors.migrate import manifest, migrate
from vllm_omni_errors.migrate import wheel as wheels
from vllm_omni_errors.migrate.source import MigrationError
from vllm_omni_errors.migrate.wheel import migrated_metadata, migrated_version

pytestmark = pytest.mark.usefixtures("own_rewrites")

NEW_INFO = "vllm_omni-0.30.0+errors.1.dist-info"


def built(source: Path, out: Path, **options: object) -> Path:
    result = migrate(str(source), out, wheel=True, **options)  # type: ignore[arg-type]
    assert result.wheel is not None
    return result.wheel


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def test_wheel_lies_in_the_output_under_its_own_name(make_wheel, tmp_path):
    wheel = built(make_wheel(), tmp_path / "out")
    assert wheel == tmp_path / "out" / "vllm_omni-0.30.0+errors.1-py3-none-any.whl"
    name, version, build, tags = parse_wheel_filename(wheel.name)
    assert (name, version, build, {str(tag) for tag in tags}) == (
        "vllm-omni",
        Version("0.30.0+errors.1"),
        (),
        {"py3-none-any"},
    )


def test_files_are_those_of_the_migrated_tree(make_wheel, tmp_path):
    got = members(built(make_wheel(), tmp_path / "out"))
    tree = contents(tmp_path / "out" / "vllm_omni")
    assert {name.removeprefix("vllm_omni/"): got[name] for name in got if name.startswith("vllm_omni/")} == tree
    assert {name for name in got if not name.startswith("vllm_omni/")} == {
        f"{NEW_INFO}/{name}" for name in ("METADATA", "WHEEL", "entry_points.txt", "RECORD")
    }
    for name in ("WHEEL", "entry_points.txt"):
        assert got[f"{NEW_INFO}/{name}"] == WHEEL_FILES[f"{DIST_INFO}/{name}"]


def test_record_agrees_with_every_file(make_wheel, tmp_path):
    got = members(built(make_wheel({**WHEEL_FILES, 'vllm_omni/a,"b".txt': b"odd name"}), tmp_path / "out"))
    rows = list(csv.reader(io.StringIO(got[f"{NEW_INFO}/RECORD"].decode())))
    assert rows[-1] == [f"{NEW_INFO}/RECORD", "", ""]
    assert sorted(row[0] for row in rows) == sorted(got)
    for name, digest, size in rows[:-1]:
        algorithm, _, value = digest.partition("=")
        assert algorithm == "sha256"
        assert base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)) == hashlib.sha256(got[name]).digest()
        assert "=" not in value
        assert int(size) == len(got[name])


def test_same_source_gives_the_same_bytes(make_wheel, tmp_path):
    first = built(make_wheel(), tmp_path / "first")
    from_tree = built(tmp_path / "first", tmp_path / "second")
    from_own_wheel = built(first, tmp_path / "third")
    assert first.read_bytes() == from_tree.read_bytes() == from_own_wheel.read_bytes()
    assert first.name == from_tree.name == from_own_wheel.name


def test_permissions_are_kept_and_times_fixed(make_wheel, tmp_path):
    with zipfile.ZipFile(built(make_wheel(), tmp_path / "out")) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        assert modes["vllm_omni/house/odd.bin"] == 0o100755
        assert modes["vllm_omni/door.py"] == 0o100644
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert [info.filename for info in archive.infolist()][-1] == f"{NEW_INFO}/RECORD"
        assert archive.testzip() is None


def test_signatures_of_the_stock_wheel_are_dropped(make_wheel, tmp_path):
    wheel = make_wheel(**{f"{DIST_INFO}/RECORD.jws": b"signed"})
    assert f"{NEW_INFO}/RECORD.jws" not in members(built(wheel, tmp_path / "out"))


def test_data_directory_follows_the_version(make_wheel, tmp_path):
    wheel = make_wheel({**WHEEL_FILES, "vllm_omni-0.30.0.data/scripts/x": b"#!python\n"})
    assert "vllm_omni-0.30.0+errors.1.data/scripts/x" in members(built(wheel, tmp_path / "out"))


def test_metadata_has_the_version_and_one_more_dependency(monkeypatch):
    monkeypatch.setattr(wheels, "library_version", lambda: "0.1.0.dev0+g123")
    head, _, body = METADATA.partition("\n\n")
    wanted = head.replace("Version: 0.30.0", "Version: 0.30.0+errors.1").replace(
        "Requires-Dist: first", "Requires-Dist: vllm-omni-errors>=0.1.0.dev0\nRequires-Dist: first"
    )
    for newline in ("\n", "\r\n"):
        got = migrated_metadata(METADATA.replace("\n", newline).encode(), "0.30.0+errors.1")
        assert got.decode() == f"{wanted}\n\n{body}".replace("\n", newline)
        assert migrated_metadata(got, "0.30.0+errors.1") == got


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n\nSome text.\n"])
def test_metadata_without_dependencies_or_description(end):
    got = migrated_metadata(f"Metadata-Version: 2.4\nName: vllm-omni\nVersion: 1{end}".encode(), "1+errors.1").decode()
    assert "Version: 1+errors.1\nRequires-Dist: vllm-omni-errors>=" in got
    assert got.endswith(end)


def test_dependency_accepts_the_version_that_migrated(make_wheel, tmp_path):
    text = members(built(make_wheel(), tmp_path / "out"))[f"{NEW_INFO}/METADATA"].decode()
    (line,) = [line for line in text.splitlines() if line.startswith("Requires-Dist: vllm-omni-errors")]
    requirement = Requirement(line.removeprefix("Requires-Dist: "))
    assert requirement.specifier.contains(manifest.library_version())
    assert requirement.specifier.prereleases or not Version(manifest.library_version()).is_prerelease


def test_other_dependencies_with_a_similar_name_are_kept():
    metadata = b"Version: 1\nRequires-Dist: vllm-omni-errors-extra\nRequires-Dist: vllm_omni.errors<1\n\n"
    lines = migrated_metadata(metadata, "1+errors.1").decode().split("\n")
    assert lines[1].startswith("Requires-Dist: vllm-omni-errors>=")
    assert lines[2:] == ["Requires-Dist: vllm-omni-errors-extra", "", ""]


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("0.30.0", "0.30.0+errors.1"),
        ("0.30.0rc1", "0.30.0rc1+errors.1"),
        ("0.30.0+cu128", "0.30.0+cu128.errors.1"),
        ("0.30.0+errors.1", "0.30.0+errors.1"),
        ("0.30.0+cu128.errors.1", "0.30.0+cu128.errors.1"),
        ("1!2.0.post1.dev3", "1!2.0.post1.dev3+errors.1"),
    ],
)
def test_local_version(version, wanted):
    assert migrated_version(version) == wanted
    assert Version(wanted) >= Version(version)


def test_tags_and_build_number_are_kept(make_wheel, tmp_path):
    wheel = make_wheel(name="vllm_omni-0.30.0-1-py2.py3-none-any.whl")
    assert built(wheel, tmp_path / "out").name == "vllm_omni-0.30.0+errors.1-1-py2.py3-none-any.whl"


# Installed and unpacked distributions


def test_installed_distribution_gives_a_wheel_without_what_pip_added(make_tree, tmp_path):
    record = f"vllm_omni/door.py,,\n../../../bin/omni-door,,\n{DIST_INFO}/RECORD,,\n"
    extra = {f"{DIST_INFO}/{name}": b"x" for name in ("INSTALLER", "REQUESTED", "direct_url.json")}
    tree = make_tree({**WHEEL_FILES, **extra, f"{DIST_INFO}/RECORD": record.encode(), "other.py": b""})
    got = members(built(tree, tmp_path / "out"))
    assert set(got) == {
        *FILES,
        manifest.PATH,
        *(f"{NEW_INFO}/{name}" for name in ("METADATA", "WHEEL", "entry_points.txt", "RECORD")),
    }


def refusal(source: Path, out: Path) -> MigrationError:
    with pytest.raises(MigrationError) as caught:
        migrate(str(source), out, wheel=True)
    assert not out.exists()
    assert caught.value.next_step.startswith("Build a wheel of it first")
    return caught.value


def test_checkout_gives_no_wheel(make_tree, tmp_path):
    tree = make_tree()
    for source in (tree, tree / "vllm_omni"):
        assert "which a checkout does not have" in refusal(source, tmp_path / "out").reason


@pytest.mark.parametrize("name", ["METADATA", "WHEEL"])
def test_distribution_without_its_metadata_gives_no_wheel(make_tree, tmp_path, name):
    files = {path: content for path, content in WHEEL_FILES.items() if path != f"{DIST_INFO}/{name}"}
    assert f"needs {DIST_INFO}/{name}" in refusal(make_tree(files), tmp_path / "out").reason


@pytest.mark.parametrize("path", ["vllm_omni_extras/__init__.py", "../../../share/data.txt", "/etc/vllm_omni.conf"])
def test_distribution_that_is_installed_in_other_places_too_gives_no_wheel(make_tree, tmp_path, path):
    tree = make_tree({**WHEEL_FILES, f"{DIST_INFO}/RECORD": f"{path},,\n".encode()})
    assert path in refusal(tree, tmp_path / "out").reason


def test_distribution_without_tags_or_with_a_strange_version_gives_no_wheel(make_tree, tmp_path):
    tree = make_tree({**WHEEL_FILES, f"{DIST_INFO}/WHEEL": b"Wheel-Version: 1.0\n"})
    assert "has no tags" in refusal(tree, tmp_path / "out").reason
    make_tree({**WHEEL_FILES, f"{DIST_INFO}/METADATA": b"Name: vllm-omni\nVersion: new\n"})
    assert "'new' is not a version" in refusal(tree, tmp_path / "out").reason


def test_symbolic_link_gives_no_wheel(make_tree, tmp_path):
    tree = make_tree(WHEEL_FILES)
    (tree / "vllm_omni/link").symlink_to("door.py")
    assert "vllm_omni/link is a symbolic link" in refusal(tree, tmp_path / "out").reason


# With pip


def test_pip_installs_and_uninstalls_it(make_wheel, tmp_path):
    wheel = built(make_wheel(), tmp_path / "out")
    subprocess.run([sys.executable, "-m", "zipfile", "-t", str(wheel)], check=True, capture_output=True, timeout=60)
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True, timeout=120
    )
    program = (
        "import importlib.metadata as m, json, vllm_omni.door\n"
        "d = m.distribution('vllm-omni')\n"
        "print(json.dumps([d.version, d.requires, [e.value for e in d.entry_points], vllm_omni.door.__doc__]))"
    )
    shown = subprocess.run([str(python), "-c", program], check=True, capture_output=True, text=True, timeout=60).stdout
    version, requires, entry_points, documentation = json.loads(shown)
    assert version == "0.30.0+errors.1"
    assert requires[0].startswith("vllm-omni-errors>=")
    assert requires[1:] == importlib.metadata.PathDistribution(_stock(tmp_path)).requires
    assert entry_points == ["vllm_omni.door:enter"]
    assert documentation == "A door."
    assert (tmp_path / "venv/bin/omni-door").exists()
    checked = subprocess.run([*pip, "check"], check=False, capture_output=True, text=True, timeout=60).stdout
    assert "vllm-omni 0.30.0+errors.1 requires vllm-omni-errors, which is not installed" in checked
    subprocess.run([*pip, "uninstall", "-y", "vllm-omni"], check=True, capture_output=True, timeout=60)
    assert not list((tmp_path / "venv").rglob("*vllm_omni*"))


def _stock(tmp_path: Path) -> Path:
    directory = tmp_path / "stock.dist-info"
    directory.mkdir()
    (directory / "METADATA").write_text(METADATA)
    return directory
