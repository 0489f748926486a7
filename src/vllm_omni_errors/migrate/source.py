# SPDX-License-Identifier: Apache-2.0
"""What is migrated: a checkout, an installed or unpacked distribution, a wheel, or a requirement that pip downloads."""

import ast
import base64
import contextlib
import csv
import functools
import hashlib
import lzma
import os
import re
import stat
import struct
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email import message_from_bytes
from enum import StrEnum
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from vllm_omni_errors.audit.download import DISTRIBUTION, EXAMPLE, DownloadError, download

PACKAGE = "vllm_omni"
DIST_INFO_PATTERN = re.compile(r"vllm_omni-[^/]+\.dist-info")
UNPACKED_LIMIT_BYTES = 1 << 30
SKIPPED_NAMES = frozenset({".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
# what zipfile and its decompressors raise for hostile bytes
DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, ValueError, LookupError)
SIGNATURES = frozenset({"RECORD.jws", "RECORD.p7s"})


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A rewrite that did not find its place: `expected` and `found` count places, `reason` has no full stop.

    `sites` names what it did not find, where a rewrite has several and the file is there.
    """

    rewrite: str
    phase: str
    path: str
    function: str | None
    expected: int
    found: int
    reason: str
    sites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Matched:
    """A rewrite that found all its places, and was not applied because another did not."""

    rewrite: str
    phase: str
    path: str
    function: str | None
    places: int


class MigrationError(Exception):
    """A migration that could not be done; nothing was written.

    Args:
        subject: the file, directory or requirement that is concerned.
        reason: what is wrong, without a full stop.
        next_step: what the user can do, one or more sentences.
        unmatched: every rewrite that did not find its place, if that is the reason.
        matched: then, the others.
    """

    def __init__(
        self,
        subject: str,
        reason: str,
        next_step: str,
        unmatched: tuple[Unmatched, ...] = (),
        matched: tuple[Matched, ...] = (),
    ) -> None:
        super().__init__(f"{subject}: {reason}. {next_step}")
        self.subject = subject
        self.reason = reason
        self.next_step = next_step
        self.unmatched = unmatched
        self.matched = matched


class Kind(StrEnum):
    """What a source is; a wheel can be built from the first two only, the others have no metadata."""

    WHEEL = "wheel"
    DISTRIBUTION = "distribution"
    CHECKOUT = "checkout"
    PACKAGE = "package"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the source: `path` is relative with forward slashes, `mode` its permission bits.

    `link` is the text of a symbolic link, None for a regular file.
    """

    path: str
    mode: int
    link: str | None = None


@dataclass(frozen=True)
class Source:
    """Files that belong to one vLLM-Omni, with a way to read them.

    Attributes:
        label: what the user named, for messages.
        location: the file or directory on disk, None if it was downloaded.
        version: version of vLLM-Omni, None if nothing in a checkout tells it.
        dist_info: name of the metadata directory, None for checkouts.
        wheel_name: file name of the wheel, None for directories.
        read: bytes of a regular file by its path; raises MigrationError.
    """

    kind: Kind
    label: str
    location: Path | None
    version: str | None
    entries: tuple[Entry, ...]
    read: Callable[[str], bytes]
    dist_info: str | None = None
    wheel_name: str | None = None

    @functools.cached_property
    def _by_path(self) -> dict[str, Entry]:
        return {entry.path: entry for entry in self.entries}

    def entry(self, path: str) -> Entry | None:
        """The entry with this path, or the symbolic link that stands in its way."""
        steps = [*reversed(PurePosixPath(path).parents), PurePosixPath(path)][1:]
        return next((found for step in steps if (found := self._by_path.get(str(step)))), None)


@contextlib.contextmanager
def open_source(specification: str) -> Iterator[Source]:
    """Find out what `specification` names, download it if need be, and open it.

    Raises MigrationError if it is not vLLM-Omni, not readable, or cannot be downloaded.
    """
    path = Path(specification)
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if exists:
        yield open_directory(path, specification) if path.is_dir() else open_wheel(path, specification)
        return
    with tempfile.TemporaryDirectory(prefix="omni-errors-") as directory:
        try:
            wheel = download(specification, Path(directory))
        except DownloadError as error:
            raise MigrationError(error.subject, error.reason, error.next_step) from None
        yield open_wheel(wheel, specification, downloaded=True)


# Directories


def open_directory(path: Path, label: str) -> Source:
    """Open a checkout, an installed or unpacked distribution, or the package directory itself.

    Of a directory with vLLM-Omni's metadata in it (site-packages, an unpacked wheel) only the package and the metadata
    are taken, whatever else lies there; of a checkout all but version control, caches and virtual environments.
    """
    root = path.resolve()
    only_package = False
    if not _is_package(root / PACKAGE) and root.name == PACKAGE and _is_package(root):
        root, only_package = root.parent, True
    if not _is_package(root / PACKAGE):
        raise MigrationError(label, f"this directory is not vLLM-Omni: it holds no {PACKAGE}/__init__.py", EXAMPLE)
    if (root / PACKAGE).is_symlink():
        target = (root / PACKAGE).resolve()
        raise MigrationError(label, f"its {PACKAGE} is a symbolic link to {target}", f"Give {target} itself.")
    metadata = sorted(child.name for child in root.iterdir() if DIST_INFO_PATTERN.fullmatch(child.name))
    if len(metadata) > 1:
        raise MigrationError(
            label,
            f"it holds more than one vLLM-Omni: {', '.join(metadata)}",
            "Remove what is left of the other one, or give a wheel.",
        )
    dist_info = metadata[0] if metadata else None
    tops: tuple[str, ...]
    if dist_info is not None:
        kind, tops = Kind.DISTRIBUTION, (PACKAGE, dist_info)
    elif only_package:
        kind, tops = Kind.PACKAGE, (PACKAGE,)
    else:
        kind, tops = Kind.CHECKOUT, tuple(sorted(child.name for child in root.iterdir()))

    def read(name: str) -> bytes:
        try:
            return (root / name).read_bytes()
        except OSError as error:
            raise unreadable(label, name, error) from None

    try:
        entries = tuple(entry for top in tops for entry in walk(root, top))
    except OSError as error:
        raise unreadable(label, str(error.filename), error) from None
    location = root / PACKAGE if kind is Kind.PACKAGE else root
    return Source(kind, label, location, _directory_version(root, dist_info), entries, read, dist_info)


def unreadable(label: str, name: str, error: OSError) -> MigrationError:
    """The error for a file of a directory that cannot be read."""
    gone = isinstance(error, FileNotFoundError)
    reason = f"{name} disappeared while it was read" if gone else f"cannot read {name}: {error.strerror or error}"
    return MigrationError(label, reason, "Make sure that nothing else changes the directory, and run it again.")


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").is_file()


def walk(root: Path, name: str, skipped: frozenset[str] = SKIPPED_NAMES) -> Iterator[Entry]:
    """Files and symbolic links at and below ``root / name``; links are not followed.

    Left out are the names in `skipped` and virtual environments. Raises OSError.
    """
    path = root / name
    if path.name in skipped:
        return
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        yield Entry(name, 0o777, os.readlink(path))
    elif stat.S_ISREG(status.st_mode):
        yield Entry(name, stat.S_IMODE(status.st_mode) & 0o777)
    elif stat.S_ISDIR(status.st_mode):
        children = sorted(os.listdir(path))
        if "pyvenv.cfg" not in children:
            for child in children:
                yield from walk(root, f"{name}/{child}", skipped)


def _directory_version(root: Path, dist_info: str | None) -> str | None:
    metadata = [root / dist_info / "METADATA"] if dist_info else []
    for file in (*metadata, root / "vllm_omni.egg-info" / "PKG-INFO", root / "PKG-INFO"):
        with contextlib.suppress(OSError):
            version = message_from_bytes(file.read_bytes())["Version"]
            if version:
                return str(version)
    with contextlib.suppress(OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
        if isinstance(version := project.get("version"), str):
            return version
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        return _assigned_version((root / PACKAGE / "_version.py").read_bytes())
    return None


def _assigned_version(source: bytes) -> str | None:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if names & {"version", "__version__"}:
                return node.value.value
    return None


# Wheels


def open_wheel(path: Path, label: str, *, downloaded: bool = False) -> Source:
    """Open a wheel: every file is read once, its CRC and its line in RECORD are checked.

    Raises MigrationError if the file is no wheel, is damaged, is unsafe to unpack, or is another project's.
    """
    again = "Run it again." if downloaded else "Download it again, or give a requirement such as vllm-omni==0.30.0."
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            _refuse_unsafe(label, members)
            contents = {member.filename: archive.read(member) for member in members}
    except DAMAGE as error:
        raise MigrationError(label, f"this file is damaged or not a wheel ({error})", again) from None
    except OSError as error:
        raise MigrationError(label, f"cannot read it: {error.strerror or error}", again) from None
    directories = sorted({name.split("/")[0] for name in contents if name.split("/")[0].endswith(".dist-info")})
    if len(directories) != 1 or f"{directories[0]}/METADATA" not in contents:
        raise MigrationError(label, "this zip file is not a wheel: it has no metadata of one project", again)
    dist_info = directories[0]
    metadata = message_from_bytes(contents[f"{dist_info}/METADATA"])
    name, version = str(metadata["Name"]), metadata["Version"]
    if canonicalize_name(name) != DISTRIBUTION or f"{PACKAGE}/__init__.py" not in contents:
        raise MigrationError(label, f"this wheel is not vLLM-Omni but {name} {version}", EXAMPLE)
    if wrong := record_faults(contents, dist_info):
        shown = ", ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        raise MigrationError(label, f"this wheel does not agree with its own RECORD: {shown}", again)
    entries = tuple(
        Entry(member.filename, (member.external_attr >> 16) & 0o777 or 0o644)
        for member in sorted(members, key=lambda member: member.filename)
    )
    location = None if downloaded else path.resolve()
    return Source(
        Kind.WHEEL, label, location, str(version), entries, contents.__getitem__, dist_info, wheel_name=path.name
    )


def _refuse_unsafe(label: str, members: list[zipfile.ZipInfo]) -> None:
    do_not = "Do not install this file; get the wheel from a source that you trust."
    seen: set[str] = set()
    for member in members:
        name = member.filename
        parts = name.split("/")
        if name.startswith("/") or "\\" in name or re.match(r"[A-Za-z]:", name) or {"", ".", ".."} & set(parts):
            raise MigrationError(label, f"its entry {name!r} would be unpacked outside of the target directory", do_not)
        if stat.S_ISLNK(member.external_attr >> 16):
            raise MigrationError(label, f"its entry {name!r} is a symbolic link, which wheels cannot hold", do_not)
        if name in seen:
            raise MigrationError(label, f"its entry {name!r} is there twice", do_not)
        seen.add(name)
    for name in seen:
        if clash := next((parent for parent in PurePosixPath(name).parents if str(parent) in seen), None):
            raise MigrationError(label, f"its entry {str(clash)!r} is both a file and a directory", do_not)
    if (size := sum(member.file_size for member in members)) > UNPACKED_LIMIT_BYTES:
        raise MigrationError(label, f"it would unpack to {size >> 20} MiB", do_not)


def record_hash(content: bytes) -> str:
    """Hash of a file as RECORD has it: ``sha256=`` and unpadded URL-safe base64."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode("ascii")


def record_faults(contents: dict[str, bytes], dist_info: str) -> list[str]:
    """Files of a wheel that RECORD does not list, lists but are missing, or lists with another hash or size."""
    record = f"{dist_info}/RECORD"
    if record not in contents:
        return ["RECORD is missing"]
    unlisted = {record, *(f"{dist_info}/{name}" for name in SIGNATURES)}
    try:
        rows = [row for row in csv.reader(contents[record].decode("utf-8").splitlines()) if row]
        listed = {name: (digest, size) for name, digest, size in rows if name not in unlisted}
    except (UnicodeDecodeError, ValueError, csv.Error):
        return ["RECORD cannot be read"]
    faults = []
    for name in sorted({*listed, *contents} - unlisted):
        if name not in listed:
            faults.append(f"{name} is not listed")
        elif name not in contents:
            faults.append(f"{name} is missing")
        elif not _agrees(contents[name], *listed[name]):
            faults.append(f"{name} differs")
    return faults


def _agrees(content: bytes, digest: str, size: str) -> bool:
    algorithm, _, _ = digest.partition("=")
    if size and size != str(len(content)):
        return False
    if algorithm == "sha256":
        return digest.rstrip("=") == record_hash(content)
    return algorithm in hashlib.algorithms_available and bool(
        digest.partition("=")[2].rstrip("=")
        == base64.urlsafe_b64encode(hashlib.new(algorithm, content).digest()).rstrip(b"=").decode("ascii")
    )
