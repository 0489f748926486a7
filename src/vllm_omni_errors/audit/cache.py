# SPDX-License-Identifier: Apache-2.0
"""Results by content: a file that was read once is not parsed again. Several audits may use it at once."""

import contextlib
import hashlib
import os
import sqlite3
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

KEPT_DAYS = 30
LOCK_S = 5.0
_TOOL = ("facts.py", "extract.py", "messages.py", "graph.py", "reach.py", "vocabulary.py", "inventory.py")


def tool_version() -> bytes:
    """A hash of the code that makes what is kept, and of the parser's version."""
    digest = hashlib.blake2b(repr(sys.version_info[:2]).encode(), digest_size=16)
    for name in _TOOL:
        digest.update(files("vllm_omni_errors.audit").joinpath(name).read_bytes())
    return digest.digest()


def default_path() -> Path:
    """Where results are kept: ``$XDG_CACHE_HOME/vllm-omni-errors/audit.sqlite``, else below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "vllm-omni-errors" / "audit.sqlite"


class Cache:
    """Bytes by key. Whatever goes wrong with it costs time, never the audit."""

    def __init__(self, path: Path | None) -> None:
        self._connection: sqlite3.Connection | None = None
        if path is None:
            return
        with contextlib.suppress(OSError, sqlite3.Error):
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=LOCK_S, isolation_level=None)
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = off")
            connection.execute("create table if not exists kept (key blob primary key, value blob, day integer)")
            self._connection = connection

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """What is kept under some keys."""
        found: dict[bytes, bytes] = {}
        if self._connection is None:
            return found
        open_keys = list(keys)
        with contextlib.suppress(sqlite3.Error):
            for start in range(0, len(open_keys), 500):
                some = open_keys[start : start + 500]
                marks = ",".join("?" * len(some))
                found.update(self._connection.execute(f"select key, value from kept where key in ({marks})", some))
        return found

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Keep values; forget what is older than `KEPT_DAYS`."""
        if self._connection is None or not values:
            return
        today = int(time.time() // 86_400)
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("begin immediate")
            self._connection.execute("delete from kept where day < ?", (today - KEPT_DAYS,))
            rows = ((key, value, today) for key, value in values.items())
            self._connection.executemany("insert or replace into kept values (?, ?, ?)", rows)
            self._connection.execute("commit")

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
