# SPDX-License-Identifier: Apache-2.0
"""The probe on real servers: nothing to find on a migrated one, and on stock what is known to be wrong there."""

import re
from collections.abc import Callable, Collection

import pytest

from vllm_omni_errors.probe import CHECKS, Report, run
from vllm_omni_errors.probe.check import Danger
from vllm_omni_rig.server import Server

Start = Callable[..., Server]

ABSENT = re.compile(
    r"the server has no |not served here|may not be served here|there is no such session here"
    r"|the server takes prompts of this length|the server does not read |no model here samples tokens"
    r"|/v1/models does not say how long|this server of the rig has no fault there|the engine is scripted"
    r"|the server does not stream this|the server takes it, and it costs nobody anything|it ends a part of the server"
)
"""Why a check may be skipped here: the server does not offer what it needs."""


def skipped(report: Report) -> dict[str, str]:
    return {check.id: check.why for check in report.checks if check.verdict == "skip"}


def has_nothing_to_find(server: Server) -> Report:
    report = run(server.url)
    assert {check.id: check.why for check in report.checks if check.verdict == "fail"} == {}
    assert {name: why for name, why in skipped(report).items() if not ABSENT.match(why)} == {}
    return report


def passed(report: Report, transports: Collection[str]) -> set[str]:
    return {check.transport for check in report.checks if check.verdict == "pass"} & set(transports)


def test_two_stages(migrated: Server) -> None:
    report = has_nothing_to_find(migrated)
    assert passed(report, ("http", "sse", "websocket", "openai")) == {"http", "sse", "websocket", "openai"}
    assert report.passed > 100


def test_one_stage(migrated_inline: Server) -> None:
    assert has_nothing_to_find(migrated_inline).passed > 60


@pytest.mark.parametrize("kind", ["diffusion", "video", "multi"])
def test_scripted(scripted: Start, kind: str) -> None:
    report = has_nothing_to_find(scripted(kind, "migrated"))
    if kind == "video":
        assert {"job.failed", "job.rejected", "job.running", "rollout.step"} <= {
            c.id for c in report.checks if c.verdict == "pass"
        }


WRONG_ON_STOCK = {
    # HTTP
    "ok.completions", "route.unknown", "images.unknown-model", "edits.unknown-model", "chat.no-messages",
    "chat.temperature", "chat.long-prompt", "edits.undecodable", "edits.url-503", "fault.bad-output", "fault.no-images",
    "fault.client-503", "fault.chat-guardrail", "fault.speech-value", "fault.speech-batch", "fault.audio-runtime",
    "fault.guardrail", "tokenize.chat-template",
    # streams
    "stream.chat-value", "stream.chat-guardrail", "stream.edits-value", "stream.speech-guardrail", "stream.audio-value",
    "stream.chat-no-image", "stream.responses",
    # sockets
    "socket.speech-frames", "socket.speech-value", "socket.realtime-frames", "socket.video", "socket.duplex",
    # the official client
    "client.long-prompt", "client.guardrail",
}  # fmt: skip
WRONG_IN_STOCK_JOBS = {
    "job.failed",
    "job.rejected",
    "job.running",
    "rollout.step",
    "fault.video-timeout",
    "socket.video-value",
    "socket.robot-value",
}
"""Checks that find what the list of known faults of vLLM-Omni 0.30.0 says of the running server."""


def test_stock_is_found_wrong_where_it_is(stock: Server) -> None:
    harmless = [check for check in CHECKS if check.danger is Danger.HARMLESS]
    report = run(stock.url, checks=harmless)
    assert WRONG_ON_STOCK - {check.id for check in report.checks if check.verdict == "fail"} == set()


def test_jobs_of_stock_are_found_wrong(scripted: Start) -> None:
    report = run(scripted("video", "stock").url, checks=[check for check in CHECKS if check.id in WRONG_IN_STOCK_JOBS])
    assert {check.id for check in report.checks if check.verdict == "fail"} == WRONG_IN_STOCK_JOBS
