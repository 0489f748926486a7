# SPDX-License-Identifier: Apache-2.0
"""The calls of a tree are the same, whether one process resolves them or two, and whether the second one lives."""

import os
import signal

import pytest

from vllm_omni_errors.audit import graph
from vllm_omni_errors.audit.extract import extract
from vllm_omni_errors.audit.graph import Edge, Graph

FILES = [
    extract("a.py", b"from vllm_omni.b import late\ndef first():\n    second()\ndef second():\n    late()\n"),
    extract("b.py", b"from vllm_omni.a import first\ndef late():\n    first()\ndef last():\n    late()\n"),
]


def edges() -> list[list[Edge]]:
    return Graph("vllm_omni", FILES).edges


def test_two_processes_find_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = edges()
    assert sum(map(len, alone)) == 4
    monkeypatch.setattr(graph, "PARALLEL_FROM_FUNCTIONS", 2)
    assert edges() == alone


def test_a_process_that_is_killed_loses_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, here, resolve = edges(), os.getpid(), Graph._edges_of

    def killed_elsewhere(self: Graph, place: int) -> list[Edge]:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return resolve(self, place)

    monkeypatch.setattr(graph, "PARALLEL_FROM_FUNCTIONS", 2)
    monkeypatch.setattr(Graph, "_edges_of", killed_elsewhere)
    assert edges() == alone
