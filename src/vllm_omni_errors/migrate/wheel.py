# SPDX-License-Identifier: Apache-2.0
"""Build the wheel of a migrated vLLM-Omni: the stock wheel's files, a local version, and one more dependency."""

import csv
import io
import re
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import PurePosixPath

from packaging.version import InvalidVersion, Version

from vllm_omni_errors.migrate.manifest import LIBRARY, library_version
from vllm_omni_errors.migrate.plan import Plan
from vllm_omni_errors.migrate.source import PACKAGE, SIGNATURES, Kind, MigrationError, Source, record_hash

LOCAL_VERSION = "errors.1"
FIXED_TIME = (1980, 1, 1, 0, 0, 0)
REGULAR_FILE = 0o100000
WRITTEN_BY_INSTALLERS = frozenset({"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"})
STOCK_WHEEL = (
    "Build a wheel of it first (`pip wheel --no-deps`) and give that, or give a requirement such as vllm-omni==0.30.0."
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel in memory."""

    name: str
    content: bytes


def check_source(source: Source) -> None:
    """Raise MigrationError if no wheel can be built from this source."""
    if source.kind in (Kind.CHECKOUT, Kind.PACKAGE):
        raise MigrationError(
            source.label,
            "--wheel needs the metadata of a built distribution, which a checkout does not have",
            STOCK_WHEEL,
        )
    names = {entry.path for entry in source.entries}
    for name in ("METADATA", "WHEEL"):
        if f"{source.dist_info}/{name}" not in names:
            raise MigrationError(
                source.label, f"--wheel needs {source.dist_info}/{name}, which is missing", STOCK_WHEEL
            )
    if link := next((entry.path for entry in source.entries if entry.link is not None), None):
        raise MigrationError(source.label, f"{link} is a symbolic link, which wheels cannot hold", STOCK_WHEEL)
    if source.kind is Kind.DISTRIBUTION and (elsewhere := _installed_elsewhere(source)):
        raise MigrationError(
            source.label, f"its RECORD lists files outside of the package, such as {elsewhere[0]}", STOCK_WHEEL
        )


def _installed_elsewhere(source: Source) -> list[str]:
    if source.entry(f"{source.dist_info}/RECORD") is None:
        return []
    rows = csv.reader(source.read(f"{source.dist_info}/RECORD").decode("utf-8", "replace").splitlines())
    scripts = _console_scripts(source)
    own = (PACKAGE, source.dist_info)
    paths = [PurePosixPath(row[0]) for row in rows if row]
    return [
        str(path)
        for path in paths
        if path.parts[0] not in own and not (path.parts[0] in ("..", "/") and path.stem in scripts)
    ]


def _console_scripts(source: Source) -> set[str]:
    path = f"{source.dist_info}/entry_points.txt"
    if source.entry(path) is None:
        return set()
    return set(re.findall(r"^\s*([^\s\[=]+)\s*=", source.read(path).decode("utf-8", "replace"), re.MULTILINE))


def migrated_version(version: str) -> str:
    """Local version of the migrated distribution: ``0.30.0`` becomes ``0.30.0+errors.1``; applied twice, the same.

    Raises packaging.version.InvalidVersion.
    """
    parsed = Version(version)
    local = [part for part in (parsed.local or "").split(".") if part]
    if local[-2:-1] == ["errors"]:
        local = local[:-2]
    return f"{parsed.public}+{'.'.join([*local, LOCAL_VERSION])}"


def build_wheel(source: Source, plan: Plan) -> Wheel:
    """The wheel of the migrated tree; the same source and plan give the same bytes.

    RECORD is made anew, the version gets its local part in METADATA and in the directories' names, and METADATA gets a
    dependency on this library, in this version or later. Everything else, permissions too, is kept.
    Raises MigrationError if the metadata cannot be read.
    """
    dist_info = source.dist_info or ""
    metadata = source.read(f"{dist_info}/METADATA")
    version = str(message_from_bytes(metadata)["Version"])
    try:
        new_version = migrated_version(version)
    except InvalidVersion:
        raise MigrationError(source.label, f"its version {version!r} is not a version", STOCK_WHEEL) from None
    stem = f"{PACKAGE}-{new_version}"
    renamed = {dist_info: f"{stem}.dist-info", dist_info.removesuffix(".dist-info") + ".data": f"{stem}.data"}
    changed = plan.changed
    dropped = {f"{dist_info}/{name}" for name in ("RECORD", *SIGNATURES, *WRITTEN_BY_INSTALLERS)}
    files: dict[str, tuple[bytes, int]] = {}
    for entry in source.entries:
        if entry.path in dropped:
            continue
        top, _, rest = entry.path.partition("/")
        content = changed[entry.path].after if entry.path in changed else source.read(entry.path)
        if entry.path == f"{dist_info}/METADATA":
            content = migrated_metadata(content, new_version)
        files[f"{renamed.get(top, top)}/{rest}" if rest else top] = content, entry.mode
    for change in plan.changes:
        if change.before is None:
            files[change.path] = change.after, change.mode
    name = f"{stem}-{_tags(source)}.whl"
    return Wheel(name, _zip(files, f"{stem}.dist-info"))


def migrated_metadata(metadata: bytes, version: str) -> bytes:
    """METADATA with another version and a dependency on this library; every other line stays as it is."""
    head, separator, body = _split_head(metadata)
    newline = b"\r\n" if b"\r\n" in head else b"\n"
    dependency = f"Requires-Dist: {LIBRARY}>={Version(library_version()).public}".encode()
    ours = re.compile(rb"requires-dist:\s*vllm[-_.]omni[-_.]errors(?![-_.\w])", re.IGNORECASE)
    lines = []
    for line in head.split(newline):
        if re.match(rb"version:", line, re.IGNORECASE):
            line = f"Version: {version}".encode()
        if not ours.match(line):
            lines.append(line)
    places = [i for i, line in enumerate(lines) if line.lower().startswith(b"requires-dist:")]
    lines.insert(places[0] if places else len(lines), dependency)
    return newline.join(lines) + separator + body


def _split_head(metadata: bytes) -> tuple[bytes, bytes, bytes]:
    end = re.search(rb"\r?\n\r?\n", metadata)
    if end is not None:
        return metadata[: end.start()], metadata[end.start() : end.end()], metadata[end.end() :]
    head = metadata.rstrip(b"\r\n")
    return head, metadata[len(head) :], b""


def _tags(source: Source) -> str:
    if source.wheel_name is not None:
        return "-".join(source.wheel_name.removesuffix(".whl").split("-")[2:])
    wheel = message_from_bytes(source.read(f"{source.dist_info}/WHEEL"))
    tags = [str(tag).split("-") for tag in wheel.get_all("Tag", [])]
    if not tags or any(len(tag) != 3 for tag in tags):
        raise MigrationError(source.label, f"its {source.dist_info}/WHEEL has no tags", STOCK_WHEEL)
    build = [str(wheel["Build"])] if wheel["Build"] else []
    return "-".join([*build, *(".".join(sorted(set(column))) for column in zip(*tags, strict=True))])


def _zip(files: dict[str, tuple[bytes, int]], dist_info: str) -> bytes:
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    # metadata last, as the wheel specification recommends
    names = sorted(files, key=lambda name: (name.startswith(f"{dist_info}/"), name))
    rows.writerows((name, record_hash(files[name][0]), len(files[name][0])) for name in names)
    rows.writerow((f"{dist_info}/RECORD", "", ""))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            _add(archive, name, *files[name])
        _add(archive, f"{dist_info}/RECORD", record.getvalue().encode("utf-8"), 0o644)
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes, mode: int) -> None:
    member = zipfile.ZipInfo(name, FIXED_TIME)
    member.create_system = 3  # Unix, whose permissions the external attributes hold
    member.external_attr = (REGULAR_FILE | mode) << 16
    member.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(member, content)
