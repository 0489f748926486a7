# SPDX-License-Identifier: Apache-2.0
"""Work in two processes: this one and a fork of it, which sees all that this one has."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import msgspec

PARALLEL_FROM_ITEMS = 1_000
"""Fewer are done sooner than a process is forked."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(work: Callable[[Item], Result], items: Sequence[Item], kind: type[Result]) -> list[Result]:
    """``[work(item) for item in items]``, half of it in a fork; `kind` is the result's type, for msgspec."""
    if len(items) < PARALLEL_FROM_ITEMS or len(os.sched_getaffinity(0)) < 2:
        return [work(item) for item in items]
    middle = len(items) // 2
    receiver, sender = multiprocessing.Pipe(duplex=False)
    fork = multiprocessing.get_context("fork").Process(target=_send, args=(sender, work, items[middle:]))
    fork.start()
    sender.close()
    try:
        found = [work(item) for item in items[:middle]]
        found += msgspec.msgpack.decode(receiver.recv_bytes(), type=list[kind])  # type: ignore[valid-type]
    except EOFError:  # somebody killed it
        found += [work(item) for item in items[middle:]]
    finally:
        receiver.close()
        fork.kill()
        fork.join()
    return found


def _send(sender: Connection, work: Callable[[Any], object], items: Sequence[Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who waits for it ends it
    sender.send_bytes(msgspec.msgpack.encode([work(item) for item in items]))
