# SPDX-License-Identifier: Apache-2.0
"""Work in several processes, of which none outlives the block."""

import multiprocessing
import os
import subprocess
import sys

import pytest

from vllm_omni_errors.audit.parallel import in_processes

DEADLINE_S = 60.0


def test_results_come_in_order_from_work_that_cannot_be_pickled():
    offset = 7
    with in_processes(lambda item: (item + offset, os.getpid()), range(50)) as results:
        values, processes = zip(*results, strict=True)
    assert values == tuple(range(7, 57))
    assert os.getpid() not in processes


def test_nothing_to_do_is_no_result():
    with in_processes(str, []) as results:
        assert list(results) == []


def test_what_the_work_raises_is_raised():
    with pytest.raises(ZeroDivisionError), in_processes(lambda item: 1 // item, [1, 0, 2]) as results:
        list(results)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_however_the_block_ends_the_processes_have_ended(error):
    with pytest.raises(error), in_processes(str, range(1_000)) as results:
        raise error(next(results))
    assert multiprocessing.active_children() == []


def test_the_processes_do_not_outlive_the_one_that_is_killed():
    program = (
        "import os, time; from vllm_omni_errors.audit.parallel import in_processes\n"
        "os.sched_getaffinity = lambda _: {0, 1}\n"
        "def work(_):\n    os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)\n"
        "with in_processes(work, [1, 2]) as results:\n    list(results)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            workers = {process.stdout.readline() for _ in range(2)}
        finally:
            process.kill()
        assert process.communicate(timeout=DEADLINE_S) == ("", None)  # the pipe is closed by all who held it
    assert len(workers) == 2
