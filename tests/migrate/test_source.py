# SPDX-License-Identifier: Apache-2.0
"""What can be migrated, and the sentence that refuses everything else."""

import contextlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_tree import DIST_INFO, FILES, WHEEL_FILES, WHEEL_NAME, record

from vllm_omni_errors.audit import download
from vllm_omni_errors.migrate import source as sources
from vllm_omni_errors.migrate.source import Kind, MigrationError, open_source, record_faults


def refusal(specification: object) -> MigrationError:
    with pytest.raises(MigrationError) as caught, open_source(str(specification)):
        pass
    assert caught.value.next_step
    return caught.value


# Directories


def test_checkout_is_taken_whole_but_for_version_control_and_caches(make_tree):
    extra = {
        "README.md": b"hello",
        ".git/HEAD": b"x",
        ".gitignore": b"build",
        "vllm_omni/__pycache__/door.pyc": b"x",
        "env/pyvenv.cfg": b"",
        "env/bin/python": b"",
    }
    with open_source(str(make_tree({**FILES, **extra}))) as source:
        assert {entry.path for entry in source.entries} == {*FILES, "README.md", ".gitignore"}
        assert source.kind is Kind.CHECKOUT
        assert source.version is None
        assert source.read("README.md") == b"hello"


def test_package_directory_itself_is_a_source(make_tree):
    tree = make_tree({**FILES, "README.md": b"hello"})
    with open_source(str(tree / "vllm_omni")) as source:
        assert {entry.path for entry in source.entries} == set(FILES)
        assert source.kind is Kind.PACKAGE


def test_of_site_packages_only_vllm_omni_is_taken(make_tree):
    tree = make_tree({**WHEEL_FILES, "torch/__init__.py": b"", "torch-2.dist-info/METADATA": b"Name: torch"})
    for path in (tree, tree / "vllm_omni"):
        with open_source(str(path)) as source:
            assert {entry.path for entry in source.entries} == set(WHEEL_FILES)
            assert (source.kind, source.version) == (Kind.DISTRIBUTION, "0.30.0")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pyproject.toml", b'[project]\nname = "vllm-omni"\nversion = "0.30.1"\n'),
        ("vllm_omni/_version.py", b"__version__: str\n__version__ = version = '0.30.1'\n"),
        ("vllm_omni.egg-info/PKG-INFO", b"Name: vllm-omni\nVersion: 0.30.1\n"),
        ("PKG-INFO", b"Name: vllm-omni\nVersion: 0.30.1\n"),
    ],
)
def test_version_of_a_checkout(make_tree, name, content):
    with open_source(str(make_tree({**FILES, name: content}))) as source:
        assert source.version == "0.30.1"


@pytest.mark.parametrize("name", ["pyproject.toml", "vllm_omni/_version.py"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"[project", b"(", b"", b"version = 3"])
def test_version_is_unknown_if_the_file_that_has_it_is_broken(make_tree, name, content):
    with open_source(str(make_tree({**FILES, name: content}))) as source:
        assert source.version is None


def test_directory_without_the_package_is_refused(tmp_path):
    assert "holds no vllm_omni/__init__.py" in refusal(tmp_path).reason
    (tmp_path / "other").mkdir()
    (tmp_path / "other/__init__.py").touch()
    assert "holds no vllm_omni/__init__.py" in refusal(tmp_path / "other").reason


def test_directory_with_two_versions_is_refused(make_tree):
    tree = make_tree({**WHEEL_FILES, "vllm_omni-0.29.0.dist-info/METADATA": b""})
    assert "more than one vLLM-Omni" in refusal(tree).reason


def test_package_that_is_a_symbolic_link_is_refused(make_tree, tmp_path):
    tree = make_tree()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "vllm_omni").symlink_to(tree / "vllm_omni")
    error = refusal(tmp_path / "linked")
    assert "symbolic link" in error.reason
    assert str(tree / "vllm_omni") in error.next_step


def test_symbolic_links_are_entries_that_are_not_followed(make_tree):
    tree = make_tree()
    (tree / "docs").symlink_to("vllm_omni")
    (tree / "gone").symlink_to("nowhere")
    with open_source(str(tree)) as source:
        assert {entry.path: entry.link for entry in source.entries if entry.link} == {
            "docs": "vllm_omni",
            "gone": "nowhere",
        }
        found = source.entry("docs/door.py")
        assert found is not None
        assert found.path == "docs"
        assert source.entry("vllm_omni/nothing.py") is None


def test_file_that_disappears_is_named(make_tree):
    tree = make_tree()
    with open_source(str(tree)) as source:
        (tree / "vllm_omni/door.py").unlink()
        with pytest.raises(MigrationError, match=r"vllm_omni/door\.py disappeared"):
            source.read("vllm_omni/door.py")


# Wheels


def test_wheel_has_its_version_and_permissions(make_wheel):
    with open_source(str(make_wheel())) as source:
        assert {entry.path for entry in source.entries} == {*WHEEL_FILES, f"{DIST_INFO}/RECORD"}
        assert (source.kind, source.version, source.wheel_name) == (Kind.WHEEL, "0.30.0", WHEEL_NAME)
        modes = {entry.path: entry.mode for entry in source.entries}
        assert modes["vllm_omni/house/odd.bin"] == 0o755
        assert modes["vllm_omni/door.py"] == 0o644
        assert all(source.read(path) == content for path, content in WHEEL_FILES.items())


@pytest.mark.parametrize("keep", [0, 10, 200, 0.5, 0.99])
def test_truncated_wheel_is_refused(make_wheel, keep):
    path = make_wheel()
    content = path.read_bytes()
    path.write_bytes(content[: keep if isinstance(keep, int) else int(len(content) * keep)])
    assert "damaged or not a wheel" in refusal(path).reason


def test_flipped_byte_is_found_by_the_checksum(make_wheel):
    path = make_wheel({**WHEEL_FILES, "vllm_omni/noise.bin": bytes(i * 7919 % 251 for i in range(5000))})
    content = bytearray(path.read_bytes())
    place = content.index(b"vllm_omni/noise.bin") + 500
    content[place] ^= 0xFF
    path.write_bytes(content)
    assert "damaged" in refusal(path).reason


def test_names_that_are_no_text_are_refused(make_wheel):
    path = make_wheel(**{"vllm_omni/ü.py": b""})
    path.write_bytes(path.read_bytes().replace("ü".encode(), b"\xff\xff"))
    assert "damaged" in refusal(path).reason


def test_empty_names_are_refused(make_wheel):
    path = make_wheel()
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    content[entry + 28 : entry + 30] = b"\0\0"
    path.write_bytes(content)
    assert "damaged" in refusal(path).reason


@given(st.data())
def test_damaged_wheel_is_refused_or_read_but_never_a_crash(tmp_path_factory, data):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in {**WHEEL_FILES, f"{DIST_INFO}/RECORD": record(WHEEL_FILES)}.items():
            archive.writestr(name, content)
    content = bytearray(buffer.getvalue())
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / WHEEL_NAME
    path.write_bytes(content)
    with contextlib.suppress(MigrationError), open_source(str(path)) as source:
        assert source.version == "0.30.0"


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../outside", "vllm_omni/../../outside", "C:/windows", "a\\..\\b", "vllm_omni//x", "./x"]
)
def test_entry_that_would_leave_the_directory_is_refused(make_wheel, name):
    error = refusal(make_wheel(**{name: b"x"}))
    assert "outside of the target directory" in error.reason
    assert repr(name) in error.reason


def test_duplicate_entry_is_refused(make_wheel):
    path = make_wheel()
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("vllm_omni/door.py", b"other")
    assert "is there twice" in refusal(path).reason


def test_entry_below_a_file_is_refused(make_wheel):
    assert "both a file and a directory" in refusal(make_wheel(**{"vllm_omni/door.py/x": b""})).reason


def test_symbolic_link_in_a_wheel_is_refused(make_wheel):
    path = make_wheel()
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("vllm_omni/link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    assert "symbolic link" in refusal(path).reason


def test_wheel_that_unpacks_to_too_much_is_refused(make_wheel, monkeypatch):
    monkeypatch.setattr(sources, "UNPACKED_LIMIT_BYTES", 100)
    assert "would unpack to" in refusal(make_wheel()).reason


def test_directory_entries_are_ignored(make_wheel):
    path = make_wheel()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("vllm_omni/", b"")
    with open_source(str(path)) as source:
        assert "vllm_omni/" not in {entry.path for entry in source.entries}


def test_wheel_of_another_project_is_refused_by_name(make_wheel):
    files = {"other/__init__.py": b"", "other-1.dist-info/METADATA": b"Name: other\nVersion: 1.5\n"}
    error = refusal(make_wheel(files, "other-1-py3-none-any.whl", **{f"{DIST_INFO}/RECORD": None}))
    assert "not a wheel" in error.reason
    path = make_wheel({**WHEEL_FILES, f"{DIST_INFO}/METADATA": b"Name: other\nVersion: 1.5\n"})
    assert refusal(path).reason == "this wheel is not vLLM-Omni but other 1.5"


def test_zip_without_metadata_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr("vllm_omni/__init__.py", b"")
    assert "no metadata" in refusal(tmp_path / "x.whl").reason


def test_record_must_be_there_and_right(make_wheel):
    recorded = f"{DIST_INFO}/RECORD"
    cases = {
        "RECORD is missing": dict(WHEEL_FILES),
        "RECORD cannot be read": {**WHEEL_FILES, recorded: b"a,b\n"},
        "vllm_omni/new.py is not listed": {**WHEEL_FILES, recorded: record(WHEEL_FILES), "vllm_omni/new.py": b""},
        "vllm_omni/gone.py is missing": {**WHEEL_FILES, recorded: record({**WHEEL_FILES, "vllm_omni/gone.py": b""})},
        "vllm_omni/door.py differs": {**WHEEL_FILES, recorded: record(WHEEL_FILES), "vllm_omni/door.py": b"x"},
    }
    for reason, files in cases.items():
        assert record_faults(files, DIST_INFO) == [reason]
    error = refusal(make_wheel(**{"vllm_omni/door.py": b"edited"}))
    assert error.reason == "this wheel does not agree with its own RECORD: vllm_omni/door.py differs"


def test_other_hashes_and_padded_ones_of_record_are_understood():
    files = {"a": b"x"}
    sha512 = "pKvQ8rQ_8dyUXJe8pJHxMDfTGgMFkLZVmxO1KgF7P2Wy7jbXP9t1Jq9nWJBQGnUl9wJ1cOBlXvbQVJ1hTfJ5Dg"
    padded = "LXEWQrcmsEQBYnyp-6wy9chTD7GQPMTbAiWHF5IaSIE="
    assert record_faults({**files, "d/RECORD": f"a,sha256={padded},1\n".encode()}, "d") == []
    assert record_faults({**files, "d/RECORD": b"a,sha256=" + padded.encode() + b",\n"}, "d") == []
    assert record_faults({**files, "d/RECORD": f"a,sha512={sha512},1\n".encode()}, "d") == ["a differs"]
    assert record_faults({**files, "d/RECORD": b"a,md9=abc,1\n"}, "d") == ["a differs"]
    assert record_faults({**files, "d/RECORD": f"a,sha256={padded},2\n".encode()}, "d") == ["a differs"]


def test_file_without_permissions_in_the_zip_is_readable(make_wheel):
    path = make_wheel()
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    content[entry + 38 : entry + 42] = bytes(4)
    path.write_bytes(content)
    with open_source(str(path)) as source:
        assert {entry.mode for entry in source.entries} == {0o644, 0o755}


# Requirements


@pytest.mark.parametrize("text", ["nothing.whl", "some/where", "vllm-omni[", "", "vllm_omni==", "./vllm-omni"])
def test_neither_file_nor_requirement(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    error = refusal(text or "\0")
    assert error.reason == "there is no such file, and it is not a requirement"
    assert "vllm-omni==0.30.0" in error.next_step


def test_requirement_of_another_project_is_refused_without_asking_pip(monkeypatch):
    monkeypatch.setattr(subprocess, "run", None)
    assert "it names vllm, not vLLM-Omni" in refusal("vllm==0.30.0").reason


@pytest.mark.parametrize("name", ["vllm-omni", "vLLM_Omni", "vllm.omni"])
def test_requirement_is_downloaded_by_pip_and_cleaned_up(make_wheel, monkeypatch, name):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(make_wheel().parent))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with open_source(f"{name}==0.30.0") as source:
        assert (source.kind, source.version, source.location) == (Kind.WHEEL, "0.30.0", None)


def test_failed_download_gives_pips_own_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    error = refusal("vllm-omni==0.30.0")
    assert "No matching distribution found for vllm-omni==0.30.0" in error.reason
    assert "pip config list" in error.next_step


def test_environment_without_pip_says_so(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert "No module named pip" in refusal("vllm-omni==0.30.0").reason


def test_download_that_never_ends_is_stopped(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(download, "DOWNLOAD_DEADLINE_S", 0.2)
    assert "did not finish the download" in refusal("vllm-omni==0.30.0").reason


def test_wheel_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "x.whl"
    path.symlink_to(Path("/proc/self/mem"))
    assert refusal(path).subject == str(path)
