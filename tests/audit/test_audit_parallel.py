# SPDX-License-Identifier: Apache-2.0
"""Work in two processes gives what it gives in one."""

import os
import signal

from vllm_omni_errors.audit.parallel import PARALLEL_FROM_ITEMS, each


def test_both_processes_do_half_and_the_order_stays() -> None:
    items = range(PARALLEL_FROM_ITEMS)
    found = each(lambda item: (item, os.getpid()), items, tuple[int, int])
    assert [item for item, _ in found] == [*items]
    processes = [process for _, process in found]
    assert {*processes[: len(items) // 2]} == {os.getpid()}
    assert len({*processes[len(items) // 2 :]} - {os.getpid()}) == 1


def test_few_items_need_no_process() -> None:
    assert {*each(lambda _: os.getpid(), range(PARALLEL_FROM_ITEMS - 1), int)} == {os.getpid()}


def test_a_process_that_is_killed_loses_nothing() -> None:
    here = os.getpid()

    def work(item: int) -> int:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    assert each(work, range(PARALLEL_FROM_ITEMS), int) == [*range(PARALLEL_FROM_ITEMS)]
