# SPDX-License-Identifier: Apache-2.0
"""`omni_errors_total` is what clients saw, and agrees with `http_requests_total`."""

import re
import time
from collections import Counter

import httpx
import pytest
from calls import chat, images
from cases import TWO_STAGES
from support import Answer, Call, answers_of, post, send, send_all

from vllm_omni_rig.server import Server

LABELS = ("transport", "category", "error_type", "status", "stage_id", "fatal")
SAMPLE = re.compile(r"^omni_errors_total\{(.*)\} (\S+)$", re.MULTILINE)
SETTLING_S = 10.0

Counts = Counter[tuple[str, ...]]


def errors(url: str) -> Counts:
    text = httpx.get(f"{url}/metrics", timeout=20).text
    counts: Counts = Counter()
    for labels, value in SAMPLE.findall(text):
        values = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        counts[tuple(values[name] for name in LABELS)] += int(float(value))
    return counts


UPSTREAMS_OWN = "invalid_request_error"
"""A type that is in no catalogue, on an error that vLLM's own route makes: counted as ``other``."""


def as_counted(answer: Answer) -> tuple[str, ...]:
    error = answer.error
    kind = "other" if error["type"] == UPSTREAMS_OWN else error["type"]
    stage = error.get("error_stage_id")
    category = "client" if answer.status < 500 else "server"
    return ("http", category, kind, str(answer.status), "" if stage is None else str(stage), "false")


def test_every_error_is_counted_as_the_client_saw_it(migrated: Server) -> None:
    calls = {case.title: case.call for case in TWO_STAGES if case.now.shape == "six"}
    before = errors(migrated.url)
    answers = send_all(migrated.url, {**calls, "a success": chat("hi"), "another": images("hi")})
    growth = errors(migrated.url) - before
    failed = [answer for answer in answers.by_name.values() if answer.status >= 400]
    assert len(failed) == len(calls)
    assert growth == Counter(map(as_counted, failed))
    by_class = Counter(f"{status[0]}xx" for _, _, _, status, *_ in growth.elements())
    assert by_class == Counter(status for _, status in answers.counted.elements() if status != "2xx")


def test_every_shape_of_an_error_is_counted(migrated: Server) -> None:
    """Anthropic's envelope, and what vLLM's own routes answer."""
    others = [case for case in TWO_STAGES if case.now.shape != "six"]
    assert others
    before = errors(migrated.url)
    answers = answers_of(migrated.url, others)
    growth = errors(migrated.url) - before
    assert Counter(status for _, _, _, status, *_ in growth.elements()) == Counter(
        str(answer.status) for answer in answers.by_name.values()
    )


@pytest.mark.parametrize(
    "call", [chat("FAULT:sleep=3"), post("/v1/images/generations", {"prompt": "FAULT:sleep=3", "size": "64x64"})]
)
def test_a_request_that_its_client_gave_up_is_neither_a_success_nor_an_error(migrated: Server, call: Call) -> None:
    before = errors(migrated.url)
    with pytest.raises(httpx.TimeoutException):
        httpx.request(call.method, migrated.url + call.path, timeout=0.7, **call.arguments())
    given_up = ("http", "cancelled", "", "", "", "false")
    deadline = time.monotonic() + SETTLING_S
    while not (growth := errors(migrated.url) - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert growth == Counter({given_up: 1})
    assert send(migrated.url, chat("hi")).status == 200
