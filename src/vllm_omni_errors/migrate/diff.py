# SPDX-License-Identifier: Apache-2.0
"""Unified diffs that `git apply` and `patch -p1` accept, exact to the byte: CRLF, byte order marks, no last newline."""

import difflib

NO_NEWLINE = b"\n\\ No newline at end of file\n"


def _lines(content: bytes) -> list[bytes]:
    return [line + b"\n" for line in content.split(b"\n")[:-1]] + ([content.split(b"\n")[-1]] if content else [])


def _split(content: bytes) -> list[str]:
    # latin-1 keeps every byte; splitting by hand keeps form feeds and lone carriage returns inside their lines
    return [line.decode("latin-1") for line in _lines(content) if line]


def unified(path: str, before: bytes | None, after: bytes, mode: int = 0o644) -> tuple[bytes, int, int]:
    """Diff of one file, with ``a/`` and ``b/`` prefixes, and its numbers of added and removed lines.

    `before` is None for a new file. Without a difference the diff is empty.
    """
    if before == after:
        return b"", 0, 0
    old = "/dev/null" if before is None else f"a/{path}"
    lines = list(difflib.unified_diff(_split(before or b""), _split(after), old, f"b/{path}", lineterm="\n"))
    head = f"diff --git a/{path} b/{path}\n"
    if before is None:
        head += f"new file mode 100{'755' if mode & 0o111 else '644'}\n"
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    # only the file names may hold characters outside of latin-1
    body = b"".join(line.encode("utf-8") for line in lines[:2])
    for line in lines[2:]:
        raw = line.encode("latin-1")
        body += raw if raw.endswith(b"\n") else raw + NO_NEWLINE
    return head.encode("utf-8") + body, added, removed
