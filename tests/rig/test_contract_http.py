# SPDX-License-Identifier: Apache-2.0
"""The migrated server's answers to wrong requests (cases.py): one endpoint test for each changed status, and more."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from calls import batch, chat, completions, images, messages, raw, responses, tokenize
from cases import ONE_STAGE, TWO_STAGES, Case
from contract import client_error, logged, nothing_leaks, verify, verify_client
from support import Answers, Call, answers_of, get, post, send

from vllm_omni_rig.server import Server

LONG_NAME = "/a" * 8_000
"""Upstream's sanitizer needs 47 s for it."""

QUICK_S = 5.0


Errors = Mapping[str, openai.APIStatusError]


def for_the_client(cases: Sequence[Case]) -> list[Case]:
    """The requests that the official client can send, and whose errors have a shape that it reads."""
    return [case for case in cases if case.call.content is None and case.now.shape == "six"]


def errors_of(url: str, cases: Sequence[Case]) -> Errors:
    with ThreadPoolExecutor(4) as pool:
        errors = pool.map(lambda case: client_error(url, case.call), for_the_client(cases))
        return dict(zip((case.title for case in for_the_client(cases)), errors, strict=True))


@pytest.fixture(scope="module")
def two_stages(migrated: Server) -> Answers:
    return answers_of(migrated.url, TWO_STAGES)


@pytest.fixture(scope="module")
def two_stages_errors(migrated: Server) -> Errors:
    return errors_of(migrated.url, TWO_STAGES)


@pytest.fixture(scope="module")
def one_stage(migrated_inline: Server) -> Answers:
    return answers_of(migrated_inline.url, ONE_STAGE)


@pytest.fixture(scope="module")
def one_stage_errors(migrated_inline: Server) -> Errors:
    return errors_of(migrated_inline.url, ONE_STAGE)


@pytest.mark.parametrize("case", TWO_STAGES, ids=str)
def test_answer_with_two_stages(two_stages: Answers, case: Case) -> None:
    verify(two_stages.by_name[case.title], case.now, permanent=case.permanent)


@pytest.mark.parametrize("case", ONE_STAGE, ids=str)
def test_answer_with_one_stage(one_stage: Answers, case: Case) -> None:
    verify(one_stage.by_name[case.title], case.now, permanent=case.permanent)


@pytest.mark.parametrize("case", for_the_client(TWO_STAGES), ids=str)
def test_official_client_with_two_stages(two_stages_errors: Errors, case: Case) -> None:
    verify_client(two_stages_errors[case.title], case.now)


@pytest.mark.parametrize("case", for_the_client(ONE_STAGE), ids=str)
def test_official_client_with_one_stage(one_stage_errors: Errors, case: Case) -> None:
    verify_client(one_stage_errors[case.title], case.now)


def test_counts_with_two_stages(two_stages: Answers) -> None:
    """X01: each answer is counted by the class of its status, on its own route."""
    assert two_stages.counted == two_stages.expected({case.title: case.now.counted for case in TWO_STAGES})


def test_counts_with_one_stage(one_stage: Answers) -> None:
    assert one_stage.counted == one_stage.expected({case.title: case.now.counted for case in ONE_STAGE})


@pytest.mark.parametrize("case", TWO_STAGES, ids=str)
def test_every_error_is_logged_once_under_its_request_id(two_stages: Answers, migrated: Server, case: Case) -> None:
    """A client's in one line, a server's with its traceback."""
    answer = two_stages.by_name[case.title]
    expected = ["INFO"] if answer.status < 500 else ["ERROR Traceback"]
    assert logged(migrated.log.read_text(errors="replace"), answer.headers["x-request-id"]) == expected


STALLING = {
    "chat": chat("hi", model=LONG_NAME),
    "chat batch": batch("hi", model=LONG_NAME),
    "completions": completions(model=LONG_NAME, prompt="x"),
    "images": images("x", model=LONG_NAME),
    "messages": messages("x", model=LONG_NAME),
    "responses": responses(model=LONG_NAME, input="x"),
    "speech": post("/v1/audio/speech", {"model": LONG_NAME, "input": "x", "voice": "x"}),
    "tokenize": tokenize(model=LONG_NAME, prompt="x"),
    "unknown response": get("/v1/responses" + LONG_NAME),
    "voice": Call("DELETE", "/v1/audio/voices/" + LONG_NAME.replace("/", "%2F")),
}


@pytest.mark.parametrize("route", STALLING)
def test_a_name_of_16000_characters_is_answered_at_once(migrated: Server, route: str) -> None:
    """Contract, section 11, on upstream's own routes too. Stock gives no answer for 47 s (test_baseline_http.py)."""
    answer = send(migrated.url, STALLING[route], deadline_s=QUICK_S)
    assert answer.status == 404
    nothing_leaks(answer.text, ["/a" * 65])


def test_names_of_16000_characters_do_not_hold_up_other_requests(migrated: Server) -> None:
    began = time.monotonic()
    for _ in range(10):
        send(migrated.url, STALLING["completions"], deadline_s=QUICK_S)
        assert send(migrated.url, get("/v1/models"), deadline_s=1).status == 200
    assert time.monotonic() - began < 2 * QUICK_S


def test_the_request_id_of_the_client_comes_back_cleaned(migrated: Server) -> None:
    sent = Call("GET", "/nope", headers={"x-request-id": "mine-17"})
    hostile = Call("GET", "/nope", headers={"x-request-id": "a b <script> " + "x" * 5_000})
    answer = send(migrated.url, sent)
    assert answer.headers["x-request-id"] == answer.error["request_id"] == "mine-17"
    answer = send(migrated.url, hostile)
    assert len(answer.headers["x-request-id"]) <= 128
    assert "<" not in answer.headers["x-request-id"]


def test_a_wrong_method_says_which_methods_there_are(migrated: Server) -> None:
    assert send(migrated.url, get("/v1/images/generations")).headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("name", "status", "requests"),
    [("OmniConflictError", 409, 1), ("OmniNotImplementedError", 501, 1), ("OmniStageTimeoutError", 504, 1),
     ("OmniServiceUnavailableError", 503, 2)],
)  # fmt: skip
def test_the_official_client_repeats_only_what_a_repetition_can_cure(
    migrated: Server, name: str, status: int, requests: int
) -> None:
    """M35: the client retries 409 and every 5xx unless the response says that it need not."""
    seen_by_the_server = migrated.log.read_text(errors="replace").count("POST /v1/images/generations HTTP")
    error = client_error(migrated.url, images(f"FAULT:raise={name}@front"), retries=1)
    assert error.status_code == status
    time.sleep(0.2)  # the access log is written after the response
    after = migrated.log.read_text(errors="replace").count("POST /v1/images/generations HTTP")
    assert after - seen_by_the_server == requests


def test_a_body_that_breaks_every_field_gets_a_small_answer(migrated: Server) -> None:
    """Z03: thousands of field errors, one bounded text, nothing of the input in it."""
    secret = "sk-proj-4711aaaaaaaaaaaaaaaaaaaaaaaa"
    answer = send(migrated.url, responses(input=[{"secret": secret, "n": number} for number in range(300)]))
    assert (answer.status, answer.counted) == (400, ("4xx",))
    nothing_leaks(answer.text, [secret])


@pytest.mark.parametrize(
    "path", ["/v1/images/generations", "/v1/chat/completions", "/tokenize", "/v1/completions", "/invocations"]
)
@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\xff\x00secretbytes", b"", b"null", b"1e400", b'{"a":' * 2_000])
def test_a_body_that_is_no_request_is_a_400_that_does_not_quote_it(migrated: Server, path: str, content: bytes) -> None:
    """Z07."""
    answer = send(migrated.url, raw(path, content))
    assert (answer.status, answer.shape, answer.counted) == (400, "six", ("4xx",))
    nothing_leaks(answer.text, ["secretbytes", "PNG", "iterable", "codec"])


def test_success_still_answers_after_all_this(migrated: Server) -> None:
    assert send(migrated.url, images("hi")).status == 200
    assert httpx.get(f"{migrated.url}/health", timeout=5).status_code == 200


def test_a_chat_body_by_invocation_of_a_diffusion_server(stock_inline: Server, migrated_inline: Server) -> None:
    call = post("/invocations", {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]})
    assert [send(server.url, call).status for server in (stock_inline, migrated_inline)] == [500, 200]


@pytest.mark.parametrize(
    ("field", "parameter"),
    [
        (rb'"stop":["\ud800"]', "stop"),
        (rb'"request_id":"\ud800"', "request_id"),
        (rb'"extra_args":{"a":"\ud800"}', "extra_args"),
    ],
    ids=["stop", "request_id", "extra_args"],
)
def test_half_a_character_is_refused_before_a_stage_gets_it(migrated: Server, field: bytes, parameter: str) -> None:
    """Stock is not asked: it cannot encode the message to the stage, and ends."""
    body = b'{"model":"tiny","messages":[{"role":"user","content":"hi"}],' + field + b"}"
    answer = send(migrated.url, raw("/v1/chat/completions", body))
    assert (answer.status, answer.body["error"]["param"]) == (400, parameter)
