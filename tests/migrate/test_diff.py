# SPDX-License-Identifier: Apache-2.0
"""The diff of a file, to the byte, as `git apply` and `patch` take it."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_omni_errors.migrate.diff import unified

LINES = st.lists(
    st.sampled_from([b"a", b"b", b"", b"\r", b"c\r", b"\x0c", b"\xe2\x80\xa8", b"\xff\x00z", b"+x", b"--- x"])
)
CONTENT = st.builds(lambda lines, end: b"\n".join(lines) + (b"\n" if end and lines else b""), LINES, st.booleans())


@given(before=CONTENT | st.none(), after=CONTENT)
def test_patch_makes_the_new_file_of_the_old_one(tmp_path_factory, before, after):
    if before is None and not after:
        return
    directory = tmp_path_factory.mktemp("patched")
    file = directory / "d/file.py"
    file.parent.mkdir()
    if before is not None:
        file.write_bytes(before)
    diff, added, removed = unified("d/file.py", before, after)
    if before == after:
        assert (diff, added, removed) == (b"", 0, 0)
        return
    command = ["git", "apply", "-p1", "--whitespace=nowarn", "--unidiff-zero", "-"]
    subprocess.run(command, cwd=directory, input=diff, check=True, capture_output=True, timeout=60)
    assert (file.read_bytes() if file.exists() else b"") == after


@pytest.mark.parametrize("command", [["git", "apply", "-"], ["patch", "-s", "-p1", "--binary"]])
def test_both_tools_apply_it(tmp_path, command):
    cases = {
        "a.py": (b"1\n2\n3\n", b"1\nzwei\n3\n"),
        "b.py": (b"\xef\xbb\xbf1\r\n2\r\n", b"\xef\xbb\xbf1\r\n2\r\n3\r\n"),
        "c.py": (b"no newline", b"none either"),
        "d.py": (b"1\n", b"1"),
        "e/new.py": (None, b"new\n"),
    }
    for name, (before, _) in cases.items():
        if before is not None:
            (tmp_path / name).write_bytes(before)
    diff = b"".join(unified(name, *case)[0] for name, case in cases.items())
    subprocess.run(command, cwd=tmp_path, input=diff, check=True, timeout=60)
    assert {name: (tmp_path / name).read_bytes() for name in cases} == {
        name: after for name, (_, after) in cases.items()
    }


def test_lines_are_counted():
    assert unified("x", b"1\n2\n3\n", b"1\n--\n++\n3\n")[1:] == (2, 1)
    assert unified("x", None, b"1\n2")[1:] == (2, 0)
