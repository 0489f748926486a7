# SPDX-License-Identifier: Apache-2.0
"""Trees and ledgers on disk, and audits of them."""

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from small_tree import FILES, LEDGER, TODAY

from vllm_omni_errors.audit import Audit, Site, audit


@pytest.fixture
def make_tree(tmp_path: Path) -> Callable[..., Path]:
    """Writes a checkout whose ``vllm_omni`` has some files; `FILES`, changed by what is given."""

    def make(changed: Mapping[str, str | None] | None = None, *, only: Mapping[str, str] | None = None) -> Path:
        files: dict[str, str | None] = {**(FILES if only is None else only), **(changed or {})}
        top = tmp_path / "checkout"
        for path, text in files.items():
            file = top / "vllm_omni" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                file.unlink()
            else:
                file.write_text(textwrap.dedent(text).lstrip("\n"))
        if only is not None and "__init__.py" not in files:
            (top / "vllm_omni" / "__init__.py").write_text("")
        return top

    return make


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Audit]:
    """Audits a tree, with a cache of the test's own."""

    def run_audit(tree: Path, ledger: Path | None = None) -> Audit:
        return audit(tree, ledger=ledger, cache=tmp_path / "cache.sqlite", today=TODAY)

    return run_audit


@pytest.fixture
def sites_of(make_tree: Callable[..., Path], run: Callable[..., Audit]) -> Callable[..., list[Site]]:
    """The sites of one file's text."""

    def sites(text: str, path: str = "entrypoints/code.py") -> list[Site]:
        return run(make_tree(only={path: text})).inventory.sites

    return sites


@pytest.fixture
def make_ledger(tmp_path: Path) -> Callable[..., Path]:
    """Writes a ledger's folder."""

    def make(manifest: str = LEDGER, rows: Mapping[str, str] | None = None) -> Path:
        folder = tmp_path / "ledger"
        folder.mkdir(exist_ok=True)
        (folder / "ledger.toml").write_text(textwrap.dedent(manifest).lstrip("\n"))
        for path, text in (rows or {}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    return make
