# SPDX-License-Identifier: Apache-2.0
"""Two API processes behind one port (`--api-server-count 2`), which share an AR stage: the contract holds in each.

The kernel gives a new connection to either. Which one answered stands in the log, beside the request's id.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import httpx
import pytest
from calls import chat, completions, delete, form, messages, responses
from cases import now
from conftest import Servers
from contract import client_error, logged, verify, verify_client
from speaking import upload, wav
from support import Answers, Call, Seen, counters, get, post, send_all
from test_contract_counting import as_counted, errors
from test_success import compare
from video_calls import content

from vllm_omni_rig.server import Server

SETTLING_S = 10.0
EACH = 8
"""Requests of a kind: that one process gets all of them has a probability of one in 2^47."""


KINDS: Mapping[str, tuple[Call, Seen]] = {
    "unknown route": (get("/nope"), now(404, "Not Found")),
    "failed validation": (chat("hi", seed=2**70), now(400, "Bad Request", "body.seed")),
    "a client's mistake": (chat("hi", temperature=-3), now(400, "BadRequestError", "temperature")),
    "unknown model": (completions(model="nope", prompt="x"), now(404, "NotFoundError", "model")),
    "a failure": (chat("FAULT:raise=ValueError@front"), now(500, "InternalServerError")),
    "a conflict": (chat("FAULT:raise=OmniConflictError@front"), now(409, "ConflictError")),
}
"""A request of each kind, and what every process answers."""

ONE_WORKER_ONLY: Mapping[str, Call] = {
    "new voice": upload("new", wav(2)),
    "delete a voice": delete("/v1/audio/voices/x"),
    "new job": form("/v1/videos", prompt="x", size="64x64"),
    "jobs": get("/v1/videos"),
    "job": get("/v1/videos/x"),
    "content": content("x"),
    "delete a job": delete("/v1/videos/x"),
    "sleep": post("/v1/omni/sleep", {"stage_ids": [0], "level": 1}),
    "wake-up": post("/v1/omni/wakeup", {"stage_ids": [0]}),
}
NO_WORKER_SHARES_IT = now(503, "ServiceUnavailableError")


TEXT: Mapping[str, Call] = {
    "chat": chat("hi"),
    "chat stream": chat("hi", stream=True),
    "completion": completions(prompt="hi"),
    "completion stream": completions(prompt="hi", stream=True),
    "message": messages("hi"),
    "message stream": messages("hi", stream=True),
    "response": responses(input="hi", max_output_tokens=2),
    "response stream": responses(input="hi", max_output_tokens=2, stream=True),
}
"""What only this pipeline answers with success: it ends in text."""


@pytest.fixture(scope="module")
def stock(servers: Servers) -> Answers:
    """Stock's answers; its server is stopped before the migrated one starts."""
    with servers.start("stock", workers=2) as server:
        return send_all(server.url, TEXT | ONE_WORKER_ONLY)


@pytest.fixture(scope="module")
def shared(stock: Answers, servers: Servers) -> Iterator[Server]:
    with servers.start("migrated", workers=2) as server:
        yield server


def name_of(kind: str, number: int) -> str:
    return f"{kind.replace(' ', '-').replace(chr(39), '')}.{number}"


@pytest.fixture(scope="module")
def before(shared: Server) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, ...]]]:
    """The counters before any request of `answers`."""
    with httpx.Client() as client:
        return counters(shared.url, client), errors(shared.url)


@pytest.fixture(scope="module")
def answers(shared: Server, before: object) -> Answers:
    """To some requests of each kind, each with an id of its own, each on a new connection."""
    calls = {
        name_of(kind, number): replace(call, headers={"x-request-id": name_of(kind, number)})
        for kind, (call, _) in KINDS.items()
        for number in range(EACH)
    }
    return send_all(shared.url, calls)


@pytest.mark.parametrize("kind", KINDS)
def test_every_process_answers_alike(answers: Answers, kind: str) -> None:
    for number in range(EACH):
        verify(answers.by_name[name_of(kind, number)], KINDS[kind][1])


def test_both_processes_answer_and_log_under_the_requests_id(shared: Server, answers: Answers) -> None:
    log = shared.log.read_text(errors="replace")
    workers = Counter()
    for name, answer in answers.by_name.items():
        known = answer.headers["x-request-id"]
        assert known.endswith(name)  # an accepted request has the route's prefix before it
        assert logged(log, known) == (["INFO"] if answer.status < 500 else ["ERROR Traceback"])
        workers[re.search(rf"(pid=\d+)\).*\(request_id={known} ", log)[1]] += 1
    assert len(workers) == 2, workers


def test_either_process_counts_for_both(
    shared: Server, before: tuple[Counter[tuple[str, str]], Counter[tuple[str, ...]]], answers: Answers
) -> None:
    """Whichever answers `/metrics`, and it may be either, the sums are the same."""
    expected = Counter(map(as_counted, answers.by_name.values()))
    with httpx.Client(headers={"connection": "close"}) as client:
        give_up = time.monotonic() + SETTLING_S
        while errors(shared.url) - before[1] != expected and time.monotonic() < give_up:
            time.sleep(0.1)
        for _ in range(EACH):
            assert errors(shared.url) - before[1] == expected
            growth = counters(shared.url, client) - before[0]
            classes = Counter()
            for (_, status), count in growth.items():
                classes[status] += count
            assert classes == Counter(f"{answer.status // 100}xx" for answer in answers.by_name.values())


@pytest.mark.parametrize("route", ONE_WORKER_ONLY)
def test_what_one_process_would_do_alone(shared: Server, route: str) -> None:
    """No job, voice or stage is in a wrong state: this deployment will never do it, and no client need repeat it."""
    call = ONE_WORKER_ONLY[route]
    verify(send_all(shared.url, {route: call}).by_name[route], NO_WORKER_SHARES_IT, permanent=True)
    verify_client(client_error(shared.url, call, retries=2), NO_WORKER_SHARES_IT)


@pytest.mark.parametrize("route", ONE_WORKER_ONLY)
def test_on_stock_it_was_a_conflict(stock: Answers, route: str) -> None:
    """Baseline."""
    assert stock.by_name[route].status == 409


@pytest.fixture(scope="module")
def text(shared: Server) -> Answers:
    return send_all(shared.url, TEXT)


@pytest.mark.parametrize("name", TEXT)
def test_success_with_two_processes(stock: Answers, text: Answers, name: str) -> None:
    compare(stock.by_name[name], text.by_name[name])
