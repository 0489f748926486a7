# SPDX-License-Identifier: Apache-2.0
"""The shared rules, one by one."""

import json
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_omni_errors.catalogue import CATALOGUE, Row
from vllm_omni_errors.probe.answer import Answer
from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.canaries import Canaries
from vllm_omni_errors.probe.rules import ECHOES, LEAKS, broken_rules, refused, success, type_suits

CALL = Call("POST", "/v1/images/generations")
ID = "img_gen-1"


def answer(status: int = 400, *, body: Any = None, headers: dict[str, str] | None = None, **error: Any) -> Answer:
    right = {
        "message": "size is not valid",
        "type": "BadRequestError",
        "param": "size",
        "code": status,
        "request_id": ID,
        "error_stage_id": None,
    }
    content = json.dumps({"error": right | error} if body is None else body).encode()
    return Answer(CALL, 0.1, status, {"x-request-id": ID} if headers is None else headers, content)


def rules(given_answer: Answer, expect: Any = None) -> set[str]:
    return {finding.rule for finding in broken_rules(given_answer, expect or refused(400), Canaries())}


def test_the_canonical_answer_breaks_nothing() -> None:
    assert rules(answer(), refused(400, types=("BadRequestError",), param="size")) == set()


def test_unknown_ids_are_null_and_right() -> None:
    assert rules(answer(request_id=None, error_stage_id=None)) == set()
    assert rules(answer(error_stage_id=0)) == set()


@pytest.mark.parametrize(
    "error",
    [
        {"message": None},
        {"message": ""},
        {"message": "  "},
        {"type": None},
        {"param": 3},
        {"code": "400"},
        {"code": True},
        {"request_id": 7},
        {"error_stage_id": "0"},
        {"error_stage_id": False},
        {"value": "x"},
    ],
    ids=str,
)
def test_a_field_of_a_wrong_kind_breaks_the_envelope(error: dict[str, Any]) -> None:
    assert "envelope" in rules(answer(**error))


@pytest.mark.parametrize(
    "body", [{"detail": "no"}, [], "no", {"error": "no"}, {"error": {}, "object": "error"}], ids=str
)
def test_another_shape_breaks_the_envelope(body: Any) -> None:
    assert "envelope" in rules(answer(body=body))


def test_a_body_that_is_not_json_breaks_the_envelope() -> None:
    assert "envelope" in rules(Answer(CALL, 0.1, 500, {}, b"Internal Server Error"))


def test_a_server_that_knows_only_upstreams_fields_breaks_the_ids_alone() -> None:
    upstream = {"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}}
    assert rules(answer(body=upstream, headers={})) == {"ids"}


@pytest.mark.parametrize(
    ("kind", "status", "suits"),
    [
        ("BadRequestError", 400, True),
        ("Bad Request", 400, True),
        ("GuardrailViolationError", 400, True),
        ("NotFoundError", 404, True),
        ("Not Found", 404, True),
        ("Method Not Allowed", 405, True),
        ("BadRequestError", 418, True),
        ("AuthenticationError", 401, True),
        ("InternalServerError", 500, True),
        ("InternalServerError", 502, True),
        ("ServiceUnavailableError", 503, True),
        ("Service Unavailable", 503, True),
        ("BadRequestError", 500, False),
        ("InternalServerError", 400, False),
        ("Internal Server Error", 400, False),
        ("NotFoundError", 400, False),
        ("GuardrailViolationError", 500, False),
        ("", 400, False),
    ],
)
def test_type_and_status(kind: str, status: int, suits: bool) -> None:
    assert type_suits(kind, status) is suits


@pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row.exception)
def test_the_catalogue_and_the_probe_agree(row: Row) -> None:
    assert type_suits(row.error_type or HTTPStatus(row.status).phrase, row.status)


def test_a_param_may_be_a_path_that_ends_in_the_field() -> None:
    assert rules(answer(param="body.size"), refused(400, param="size")) == set()
    assert rules(answer(param="body.resize"), refused(400, param="size")) == {"param"}
    assert rules(answer(param=None), refused(400, param="")) == {"param"}


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no", "code": 404}},
        {"object": "error", "message": "no"},
        {"choices": [{"finish_reason": "error"}]},
    ],
    ids=str,
)
def test_a_success_with_an_error_inside_is_found(body: Any) -> None:
    assert "error as success" in rules(answer(200, body=body), success(lambda _: None))


def test_an_ordinary_success_breaks_nothing() -> None:
    body = {"choices": [{"finish_reason": "stop"}], "error": None}
    assert rules(answer(200, body=body, headers={}), success(lambda _: None)) == set()


LEAKED = {
    "a traceback": 'File "/x/y.py", line 3, in f',
    "a file path": "No such file: /root/models/weights.bin",
    "a memory address": "<Worker at 0x7f5ec2e7c0de>",
    "a rejected value": "too long (parameter=prompt, value=1025)",
    "the input of a validation error": "{'type': 'missing', 'input': 'x'}",
    "the repr of an object": "Unsupported image type: <class 'str'>",
    "credentials of a URL": "cannot fetch http://user:secret@host/x",
    "a data URI": "Unsupported input: data:image/png;base64,AAAA",
    "a long run of base64 or hex": "A" * 200,
    "a tensor or an array": "got tensor([1, 2])",
    "a key": "not allowed: sk-abcdefghijklmnopqrst",
    "a link into a library's documentation": "For further information visit https://errors.pydantic.dev/2.12/v/missing",
}


def test_every_kind_of_leak_has_an_example() -> None:
    assert LEAKED.keys() == LEAKS.keys() | ECHOES.keys()


@pytest.mark.parametrize(("kind", "text"), LEAKED.items(), ids=list(LEAKED))
def test_a_leak_is_found(kind: str, text: str) -> None:
    findings = broken_rules(answer(message=text), refused(400), Canaries())
    assert any(finding.rule == ("leak" if kind in LEAKS else "echo") and kind in finding.text for finding in findings)


@pytest.mark.parametrize(
    "text",
    [
        "The model `org/model-name` does not exist.",
        "POST /v1/images/edits takes one image.",
        "size must be in format 'WIDTHxHEIGHT' (e.g., '1024x1024')",
        "This model's maximum context length is 256 tokens, the prompt has 311.",
        "temperature must be non-negative, got -3.0.",
        "No stage has a live replica; see /health.",
        "n must be between 1 and 10",
        "The adapter meta-llama/Llama-3.1-8B is not loaded.",
        "Internal server error",
        "The request failed in stage 1.",
        "value must be 1=on or 0=off",
    ],
)
def test_ordinary_texts_are_no_leak(text: str) -> None:
    assert rules(answer(message=text)) == set()


@given(mark=st.sampled_from(["content", "path", "key", "base64", "file", "query", "header"]), cut=st.integers(10, 60))
def test_a_canary_is_found_even_when_it_is_cut(mark: str, cut: int) -> None:
    canaries = Canaries()
    text = getattr(canaries, mark).removeprefix("/srv/").removeprefix("sk-")[:cut]
    findings = broken_rules(answer(message=f"no {text}"), refused(400), canaries)
    assert "canary" in {finding.rule for finding in findings}


def test_canaries_differ_from_run_to_run_and_fit_into_a_short_prompt() -> None:
    assert Canaries().prompt != Canaries().prompt
    assert len(Canaries().prompt) <= 128


def test_a_success_may_bring_content_back() -> None:
    canaries = Canaries()
    echo = answer(200, body={"choices": [{"text": canaries.prompt}]})
    assert broken_rules(echo, success(lambda _: None), canaries) == ()


def test_no_answer_is_one_finding() -> None:
    missing = Answer(CALL, 3.0, failure="timeout", problem="no answer within 3 s")
    assert [(f.rule, f.text) for f in broken_rules(missing, refused(400), Canaries())] == [
        ("answered", "no answer within 3 s")
    ]
