# SPDX-License-Identifier: Apache-2.0
"""A tree → its inventory: from the cache, else from the records of its files, which are read on all cores."""

import gc
import hashlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec

from vllm_omni_errors.audit.cache import Cache, tool_version
from vllm_omni_errors.audit.extract import extract
from vllm_omni_errors.audit.facts import File
from vllm_omni_errors.audit.inventory import Inventory, take
from vllm_omni_errors.audit.tree import Tree

PARALLEL_FROM_FILES = 100
CHUNK_FILES = 16
MOST_WORKERS = 8

_decode = msgspec.msgpack.Decoder(File).decode
_decode_inventory = msgspec.msgpack.Decoder(Inventory).decode


def inventory_of(tree: Tree, cache: Cache) -> Inventory:
    """The inventory of a tree. Raises AuditError if a file of it cannot be read."""
    version = tool_version()
    version += tree.package.encode()
    keys = {path: _key(path, text, version) for path, text in tree.texts(tree.files)}
    whole = hashlib.blake2b(version + b"\0" + tree.version.encode(), digest_size=20)
    for key in keys.values():
        whole.update(key)
    key = whole.digest()
    kept = cache.get([key]).get(key)
    if kept is not None:
        return _decode_inventory(kept)
    with without_collector():
        found = take(tree.package, tree.version, _records(tree, keys, version, cache))
    cache.put({key: msgspec.msgpack.encode(found)})
    return found


def _key(path: str, text: bytes, version: bytes) -> bytes:
    return hashlib.blake2b(version + b"\0" + path.encode() + b"\0" + text, digest_size=20).digest()


def _records(tree: Tree, keys: dict[str, bytes], version: bytes, cache: Cache) -> list[File]:
    kept = cache.get(keys.values())
    missing = [path for path, key in keys.items() if key not in kept]
    made = dict(_extract_all(tree, missing, version))
    cache.put(dict(made.values()))
    return [_decode(made[path][1] if path in made else kept[key]) for path, key in keys.items()]


def _extract_all(tree: Tree, paths: Sequence[str], version: bytes) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    """Path, and its key and record."""
    number = -(-len(paths) // CHUNK_FILES)
    chunks = [paths[start::number] for start in range(number)]  # large files stand together: each chunk gets its share
    some = partial(_extract_some, tree, version)
    workers = min(len(os.sched_getaffinity(0)), MOST_WORKERS)
    if workers > 1 and len(paths) >= PARALLEL_FROM_FILES:
        ignored = (signal.SIGINT, signal.SIG_IGN)  # who waits for the workers ends them
        with multiprocessing.get_context("fork").Pool(workers, signal.signal, ignored) as pool:
            for found in pool.imap(some, chunks):
                yield from found
    else:
        for chunk in chunks:
            yield from some(chunk)


def _extract_some(tree: Tree, version: bytes, paths: Sequence[str]) -> list[tuple[str, tuple[bytes, bytes]]]:
    with without_collector():
        return [
            (path, (_key(path, text, version), msgspec.msgpack.encode(extract(path, text, tree.package))))
            for path, text in tree.texts(paths)
        ]


@contextmanager
def without_collector() -> Iterator[None]:
    """Without the garbage collector: what is made of texts here holds no cycles, and it walks that again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
