# SPDX-License-Identifier: Apache-2.0
"""What is audited: a checkout, a package, a wheel, a requirement that pip downloads, or any folder of Python files."""

import contextlib
import os
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

PACKAGES = ("vllm_omni", "vllm")
SKIPPED = frozenset({".git", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".ruff_cache", "build", "dist"})
FILE_LIMIT_BYTES = 16 << 20
_VERSION = re.compile(rb"^(?:__version__ = version|__version__|version) = ['\"]([^'\"]+)['\"]", re.MULTILINE)


class AuditError(Exception):
    """The audit could not run: what it was given cannot be read. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Files to audit.

    Attributes:
        source: what was given.
        package: name of the package; paths in the audit are relative to it.
        prefix: from the top of the checkout or wheel to the package, such as ``vllm_omni/``.
        version: the package's version, or ``unknown``.
        files: paths below the package, sorted.
        reads: where the files are: the package's folder, or a wheel.
    """

    source: Path
    package: str
    prefix: str
    version: str
    files: tuple[str, ...]
    reads: Path
    is_wheel: bool = False

    def texts(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Path and text of some files. Raises AuditError if one cannot be read."""
        try:
            if self.is_wheel:
                with zipfile.ZipFile(self.reads) as wheel:
                    for path in paths:
                        yield path, wheel.read(self.prefix + path)
            else:
                for path in paths:
                    yield path, (self.reads / path).read_bytes()
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise AuditError(f"{self.source}: a file cannot be read: {error}.") from None

    def text(self, path: str) -> bytes:
        """One file's text."""
        return next(text for _, text in self.texts([path]))


@contextlib.contextmanager
def open_tree(given: str) -> Iterator[Tree]:
    """The tree that a path means, or a requirement such as ``vllm-omni==0.30.0``, which pip downloads for the while.

    Raises AuditError if there is none.
    """
    if os.path.exists(given):
        yield find(Path(given))
        return
    from vllm_omni_errors.audit.download import DownloadError, download  # a path needs nothing of the extra

    with tempfile.TemporaryDirectory(prefix="omni-errors-") as directory:
        try:
            wheel = download(given, Path(directory))
        except DownloadError as error:
            raise AuditError(str(error)) from None
        yield replace(find(wheel), source=Path(given))


def find(source: Path) -> Tree:
    """The tree that a path means. Raises AuditError if there is none."""
    if source.suffix == ".whl" or zipfile.is_zipfile(source):
        return _wheel(source)
    if source.is_file():
        raise AuditError(f"{source} is no folder and no wheel. Give a checkout, a package's folder or a wheel.")
    if not source.is_dir():
        raise AuditError(f"{source} does not exist. Give a checkout, a package's folder or a wheel.")
    top, package = source, source.resolve().name
    for name in PACKAGES:
        for place in (source / name, source / "src" / name):
            if package not in PACKAGES and (place / "__init__.py").is_file():
                top, package = place, name
                break
        if top is not source:
            break
    files = tuple(sorted(_python_files(top)))
    if not files:
        raise AuditError(f"{source} holds no Python file. Give a checkout, a package's folder or a wheel.")
    prefix = "" if top is source and package not in PACKAGES else f"{package}/"
    if top is not source:
        prefix = top.relative_to(source).as_posix() + "/"
    return Tree(source, package, prefix, _version(top, package), files, top)


def _python_files(top: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".py") and os.path.getsize(path) <= FILE_LIMIT_BYTES:
                yield os.path.relpath(path, top).replace(os.sep, "/")


def _version(top: Path, package: str) -> str:
    for info in sorted(top.parent.glob(f"{package}*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        if name == package:
            return version
    for name in ("_version.py", "version.py", "__init__.py"):
        if (top / name).is_file():
            found = _VERSION.search((top / name).read_bytes())
            if found:
                return found.group(1).decode()
    return "unknown"


def _wheel(source: Path) -> Tree:
    try:
        with zipfile.ZipFile(source) as wheel:
            entries = [entry for entry in wheel.infolist() if entry.filename.endswith(".py")]
    except (OSError, zipfile.BadZipFile) as error:
        raise AuditError(f"{source} cannot be read as a wheel: {error}.") from None
    tops = [PurePosixPath(entry.filename).parts[0] for entry in entries]
    package = next((name for name in PACKAGES if name in tops), max(tops, key=tops.count, default=""))
    prefix = f"{package}/"
    files = tuple(
        sorted(
            entry.filename.removeprefix(prefix)
            for entry in entries
            if entry.filename.startswith(prefix) and entry.file_size <= FILE_LIMIT_BYTES
        )
    )
    if not files:
        raise AuditError(f"{source} holds no Python package.")
    parts = source.name.split("-")
    version = parts[1] if len(parts) > 2 else "unknown"
    return Tree(source, package, prefix, version, files, source, is_wheel=True)
