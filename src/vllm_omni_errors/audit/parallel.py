# SPDX-License-Identifier: Apache-2.0
"""The same work on many items, in as many processes as there are CPUs."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_work: Callable[[Any], Any]


@contextlib.contextmanager
def in_processes(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Iterator[Result]]:
    """The results of `work`, in the order of `items`; both have to be picklable, `work` itself need not.

    Whatever ends the block, the processes have ended after it; they do not outlive this process either. Raises what
    `work` raises, and concurrent.futures.process.BrokenProcessPool if one of them is killed.
    """
    executor = ProcessPoolExecutor(
        max(1, min(len(items), len(os.sched_getaffinity(0)))),
        mp_context=multiprocessing.get_context("fork"),
        initializer=_begin,
        initargs=(work,),
    )
    try:
        yield executor.map(_do, items)
    finally:
        executor.shutdown(cancel_futures=True)


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # a terminal sends Ctrl-C to all: end at once, and without a word
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(item: Any) -> Any:
    return _work(item)
