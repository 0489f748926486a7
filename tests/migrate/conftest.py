# SPDX-License-Identifier: Apache-2.0
"""A small vLLM-Omni to migrate, as a folder and as a wheel (synthetic_tree.py)."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from synthetic_tree import ALL, DIST_INFO, FILES, WHEEL_FILES, WHEEL_NAME, record

from vllm_omni_errors.migrate import rewrites


@pytest.fixture
def own_rewrites(monkeypatch: pytest.MonkeyPatch) -> None:
    """The three rewrites of this file instead of the real ones."""
    monkeypatch.setattr(rewrites, "ALL", ALL)


@pytest.fixture
def make_tree(tmp_path: Path) -> Callable[..., Path]:
    def make(files: Mapping[str, bytes] = FILES, name: str = "source") -> Path:
        for path, content in files.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return tmp_path / name

    return make


@pytest.fixture
def make_wheel(tmp_path: Path) -> Callable[..., Path]:
    def make(files: Mapping[str, bytes] = WHEEL_FILES, name: str = WHEEL_NAME, **changes: bytes | None) -> Path:
        path = tmp_path / "wheels" / name
        path.parent.mkdir(exist_ok=True)
        members = dict(files)
        recorded = f"{DIST_INFO}/RECORD"
        members.setdefault(recorded, record(files))
        members.update({key: value for key, value in changes.items() if value is not None})
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in members.items():
                info = zipfile.ZipInfo(member, (2024, 5, 6, 7, 8, 10))
                info.external_attr = (0o100755 if member.endswith("odd.bin") else 0o100644) << 16
                archive.writestr(info, content)
        return path

    return make
