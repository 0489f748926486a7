# SPDX-License-Identifier: Apache-2.0
"""What must hold for any bytes: one function for each reader of what others wrote. Imports neither vLLM nor a fuzzer.

A target returns nothing, and raises if a promise is broken.
"""

import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path

import msgspec

from vllm_omni_errors import public_text
from vllm_omni_errors import wire as records
from vllm_omni_errors.audit import ledger as ledgers
from vllm_omni_errors.details import OmniErrorDetails

BETWEEN = b"\n---\n"
"""Stands between the manifest and the rows of a ledger."""

SECRETS = (
    ("password=hunter2xyz9", "hunter2xyz9"),
    ("Authorization: Bearer q8w7e6r5t4y3u2", "q8w7e6r5t4y3u2"),
    ("sk-proj-Q8W7E6R5T4Y3U2I1", "Q8W7E6R5T4Y3U2I1"),
    ("/home/somebody/private/notes.txt", "somebody"),
    ("https://user:pa55word@example.org/x", "pa55word"),
    ("<Thing object at 0x7f00deadbeef>", "7f00deadbeef"),
    ("data:image/png;base64,iVBORw0KGgo1234", "iVBORw0KGgo1234"),
)
"""What must not be seen, and the part of it by which it would be known. It stands in place of the first ``|``."""


def wire(data: bytes) -> None:
    """Bytes from another process become a record, whatever they are, and a record that was read is sent unchanged."""
    record = records.decode(data)
    assert records.decode(records.encode(record)) == record
    assert records.read(records.to_fields(record)) == record
    try:
        message = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return
    found = records.read(message)
    assert found is None or isinstance(found, OmniErrorDetails)
    if found is not None:
        again = records.from_request_error(records.to_request_error(found))
        assert (again.category, again.message) == (found.category, found.message)


def sanitizer(data: bytes) -> None:
    """A text is bounded, clean and stays as it is when it is sanitized again; a secret in it is gone, whatever stands
    around it."""
    text = data.decode("utf-8", "surrogateescape")
    _is_public(public_text.sanitize(text))
    name = public_text.identifier(text)
    assert name is None or len(name) <= public_text.MAX_IDENTIFIER_CHARACTERS
    request_id = public_text.request_id(text)
    assert request_id is None or (request_id.isascii() and len(request_id) <= public_text.MAX_REQUEST_ID_CHARACTERS)
    before, mark, after = text.partition("|")
    secret, known_by = SECRETS[len(before) % len(SECRETS)]
    if mark and known_by not in text:
        clean = public_text.sanitize(f"{before} {secret} {after}")
        _is_public(clean)
        assert known_by not in clean, clean


def _is_public(text: str) -> None:
    assert len(text) <= public_text.MAX_CHARACTERS
    assert public_text.sanitize(text) == text
    assert not public_text._UNSAFE.search(text)
    text.encode()


def ledger(data: bytes) -> None:
    """A ledger is read as a whole or refused with a sentence; what was read is written, and read again the same."""
    manifest, _, rows = data.partition(BETWEEN)
    with tempfile.TemporaryDirectory(prefix="ledger-") as name:
        folder = Path(name)
        (folder / "ledger.toml").write_bytes(manifest)
        (folder / "code.jsonl").write_bytes(rows)
        try:
            found = ledgers.load(folder)
        except ledgers.LedgerError:
            return
        for each in (*found.rows.values(), *found.rules):
            assert each.expires is None or each.expires > date.min
            assert each.reviewed >= date.min
        ledgers.write(folder, found.files())
        assert ledgers.load(folder).rows == found.rows


TARGETS: dict[str, Callable[[bytes], None]] = {"ledger": ledger, "public_text": sanitizer, "wire": wire}
