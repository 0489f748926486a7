# SPDX-License-Identifier: Apache-2.0
"""What the server counted is judged rightly, whatever else goes on there."""

import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from faithful_server import Faithful, serving
from hypothesis import given
from hypothesis import strategies as st

from vllm_omni_errors.probe import CHECKS, Report
from vllm_omni_errors.probe.answer import Answer
from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.counters import Counters, Outcome, Series, parse

Probe = Callable[..., Report]
BUSY_PATH = "/tokenize"


@contextmanager
def traffic(url: str, body: bytes) -> Iterator[list[int]]:
    """Requests to one route, one after the other, until the block ends; yields the statuses seen."""
    stop, statuses = threading.Event(), []

    def work() -> None:
        request = urllib.request.Request(url + BUSY_PATH, body, {"Content-Type": "application/json"})
        while not stop.is_set():
            try:
                statuses.append(urllib.request.urlopen(request).status)
            except urllib.error.HTTPError as error:
                statuses.append(error.code)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        thread.join()


def metric_findings(report: Report) -> list[str]:
    return [check.id for check in report.checks if any(finding.rule == "metric" for finding in check.findings)]


@pytest.mark.parametrize("body", [b'{"prompt": "x"}', b'{"chat_template": "{%"}', b"not JSON"])
def test_other_traffic_on_the_same_route_is_no_finding(probe: Probe, body: bytes) -> None:
    with serving(Faithful()) as url, traffic(url, body) as statuses:
        report = probe(url, checks=[check for check in CHECKS if "tokenize" in check.id])
    assert len(statuses) > 20
    assert report.failed == 0


class WrongOnce(Faithful):
    """Counts the first refusal of a template wrongly, as a stray request of somebody else's might make it look."""

    done = False

    def counted(self, path: str, status: int) -> str | None:
        if path == BUSY_PATH and status == 400 and not self.done:
            self.done = True
            return "5xx"
        return super().counted(path, status)


def test_a_count_is_wrong_only_when_every_attempt_says_so(probe: Probe) -> None:
    with serving(WrongOnce()) as url:
        report = probe(url, checks=[check for check in CHECKS if check.id == "tokenize.chat-template"])
    assert metric_findings(report) == []


class AlwaysWrong(Faithful):
    def counted(self, path: str, status: int) -> str | None:
        return "5xx" if path == BUSY_PATH and status == 400 else super().counted(path, status)


def test_a_wrong_count_is_found_through_other_traffic(probe: Probe) -> None:
    with serving(AlwaysWrong()) as url, traffic(url, b'{"prompt": "x"}'):
        report = probe(url, checks=[check for check in CHECKS if check.id == "tokenize.chat-template"])
    assert metric_findings(report) == ["tokenize.chat-template"]


class NoMetrics(Faithful):
    def exposition(self) -> str:
        return "# nothing\n"


def test_a_server_without_the_counter_is_probed_without_it(probe: Probe) -> None:
    with serving(NoMetrics()) as url:
        report = probe(url, checks=CHECKS[:8])
    assert report.failed == 0
    assert any("http_requests_total" in note for note in report.notes)


def test_parse_reads_handlers_with_braces_and_quotes() -> None:
    text = (
        "# TYPE http_requests_total counter\n"
        'http_requests_total{handler="/v1/videos/{video_id}",method="GET",status="2xx"} 3.0\n'
        'http_requests_total{handler="a\\"b",method="GET",status="404"} 1.0\n'
        "http_requests_total_created 1.0\n"
    )
    assert parse(text) == {("/v1/videos/{video_id}", "GET", "2xx"): 3, ('a"b', "GET", "4xx"): 1}


class Fixed(Counters):
    """Counters that say what they are told."""

    settling_s = (0.0,)

    def __init__(self, after: Series) -> None:
        self.after = after

    async def read(self) -> Series | None:
        return self.after


CLASSES = ("2xx", "4xx", "5xx")
noise = st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 5))


@given(status=st.sampled_from([200, 400, 500]), others=noise)
async def test_no_other_traffic_makes_a_right_count_look_wrong(status: int, others: dict[str, int]) -> None:
    call = Call("POST", "/x")
    after: Series = Series({("/x", "POST", name): count for name, count in others.items()})
    after["/x", "POST", f"{status // 100}xx"] += 1
    measurement = await Fixed(after).measure(Series(), [Answer(call, 0.0, status)])
    assert measurement.outcome is (Outcome.UNKNOWN if others else Outcome.RIGHT)


@given(method=st.sampled_from(["GET", "PUT"]), path=st.sampled_from(["/y", "/x/z"]))
async def test_series_of_other_routes_and_methods_do_not_count(method: str, path: str) -> None:
    after: Series = Series({(path, "POST", "4xx"): 1, ("/x", method, "4xx"): 1})
    measurement = await Fixed(after).measure(Series(), [Answer(Call("POST", "/x"), 0.0, 400)])
    assert measurement.outcome is Outcome.UNCOUNTED
