# SPDX-License-Identifier: Apache-2.0
"""The manifest: what a migrated tree says about itself, so that running again changes nothing."""

import hashlib
import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from vllm_omni_errors.migrate.source import PACKAGE, Entry, MigrationError

PATH = f"{PACKAGE}/_errors_migration.json"
FORMAT = 1
LIBRARY = "vllm-omni-errors"
NOT_HELD = "the stock tree was not held against the ledgers"
"""What is open for a tree that was migrated before they were asked."""


def library_version() -> str:
    """Version of this library, as installed."""
    return importlib.metadata.version(LIBRARY)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """Hashes (hexadecimal SHA-256) of a changed file, now and in the stock tree, and the phases that changed it."""

    path: str
    sha256: str
    original_sha256: str
    phases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AppliedRewrite:
    """A rewrite that was applied, and in how many places."""

    rewrite: str
    phase: str
    path: str
    function: str | None
    places: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was done to a tree, by what.

    Attributes:
        source_version: version of the stock vLLM-Omni, None if unknown.
        library_version: version of vllm-omni-errors that ran last.
        phases: phases that are applied, in order.
        tree_sha256: `tree_digest` of everything that was written but this manifest.
        undecided: entries of the ledgers that were open for the stock tree; phase `finalize` needs that there are none.
    """

    source_version: str | None
    library_version: str
    phases: tuple[str, ...]
    files: tuple[ChangedFile, ...]
    rewrites: tuple[AppliedRewrite, ...]
    tree_sha256: str
    undecided: tuple[str, ...] = ()

    def dump(self) -> bytes:
        """JSON text, the same bytes for the same manifest."""
        document = {
            "format": FORMAT,
            "source": {"name": "vllm-omni", "version": self.source_version},
            "library": {"name": LIBRARY, "version": self.library_version},
            "phases": self.phases,
            "files": [asdict(file) for file in self.files],
            "rewrites": [asdict(rewrite) for rewrite in self.rewrites],
            "tree_sha256": self.tree_sha256,
            "undecided": self.undecided,
        }
        return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode("utf-8")


def load(content: bytes, label: str) -> Manifest:
    """Read a manifest. Raises MigrationError if it is damaged or of a later format."""
    again = "Begin again from the stock vLLM-Omni."
    try:
        document: dict[str, Any] = json.loads(content)
        if document["format"] != FORMAT:
            raise MigrationError(
                label, f"its {PATH} has format {document['format']!r}, this version reads {FORMAT}", again
            )
        return Manifest(
            document["source"]["version"],
            document["library"]["version"],
            tuple(document["phases"]),
            tuple(ChangedFile(**{**row, "phases": tuple(row["phases"])}) for row in document["files"]),
            tuple(AppliedRewrite(**row) for row in document["rewrites"]),
            document["tree_sha256"],
            tuple(document.get("undecided", [NOT_HELD])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MigrationError(label, f"its {PATH} is damaged ({type(error).__name__}: {error})", again) from None


def sha256(content: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(content).hexdigest()


def tree_digest(entries: tuple[Entry, ...], read: Callable[[str], bytes]) -> str:
    """One hash over the paths and contents of a tree, in any order of `entries`; the manifest itself does not count."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: entry.path):
        if entry.path != PATH:
            content = f"link {entry.link}" if entry.link is not None else sha256(read(entry.path))
            digest.update(f"{entry.path}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
