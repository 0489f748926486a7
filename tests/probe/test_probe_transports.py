# SPDX-License-Identifier: Apache-2.0
"""What is right in a stream, a session, a job and the official client's exception, without servers."""

import json
from typing import Any

import pytest

from vllm_omni_errors.probe.answer import NO_FRAME, Answer, Asked, Conversation
from vllm_omni_errors.probe.call import Call, curl, shown_body, socket
from vllm_omni_errors.probe.canaries import Canaries
from vllm_omni_errors.probe.contract import Contract, recognise
from vllm_omni_errors.probe.jobs import Failed, Listed
from vllm_omni_errors.probe.official import Raises
from vllm_omni_errors.probe.rules import Expectation, refused
from vllm_omni_errors.probe.sockets import Opens, Told
from vllm_omni_errors.probe.streams import Fails, Responds, Whole

CALL = Call("POST", "/v1/chat/completions", json={"stream": True})
ERROR = {
    "message": "no",
    "type": "InternalServerError",
    "param": None,
    "code": 500,
    "request_id": "r",
    "error_stage_id": None,
}
CHUNK = {"choices": [{"delta": {"content": "x"}}]}
INTERNAL = refused(500, types=("InternalServerError",))
UNAVAILABLE = refused(503, types=("ServiceUnavailableError",))


def rules(answer: Answer, expect: Expectation, contract: Contract = Contract.OMNI) -> list[str]:
    return [finding.rule for finding in expect.judge(answer, Canaries(), contract).findings]


def skip(answer: Answer, expect: Expectation, contract: Contract = Contract.OMNI) -> str | None:
    return expect.judge(answer, Canaries(), contract).skip


def stream(*events: Any, end: str = "data: [DONE]\n\n", status: int = 200) -> Answer:
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + end
    return Answer(CALL, 0.1, status, {"content-type": "text/event-stream"}, body.encode())


def http(status: int, body: Any = None, **headers: str) -> Answer:
    content = {"error": ERROR | {"code": status}} if body is None else body
    return Answer(CALL, 0.1, status, {"x-request-id": "r"} | headers, json.dumps(content).encode())


# ---- streams --------------------------------------------------------------------------------------------------------


def test_an_error_before_the_first_event_is_an_http_answer() -> None:
    assert rules(http(500), Fails(INTERNAL)) == []
    assert rules(stream({"error": ERROR}), Fails(INTERNAL)) == ["before the stream"]


def test_an_error_after_the_first_event_is_one_event_and_the_end_mark() -> None:
    assert rules(stream(CHUNK, {"error": ERROR}), Fails(INTERNAL)) == []
    assert rules(stream(CHUNK, {"error": ERROR}, {"error": ERROR}), Fails(INTERNAL)) == ["terminal"]
    assert rules(stream(CHUNK, {"error": ERROR}, CHUNK), Fails(INTERNAL)) == ["terminal"]
    assert rules(stream(CHUNK, {"error": ERROR}, end=""), Fails(INTERNAL)) == ["done"]
    assert rules(stream(CHUNK, {"error": ERROR}, end=""), Fails(INTERNAL, done=False)) == []


def test_a_stream_that_hides_its_failure() -> None:
    assert rules(stream(), Fails(INTERNAL)) == ["terminal"]
    assert rules(stream(CHUNK), Fails(INTERNAL)) == ["terminal"]


def test_an_error_that_the_official_client_does_not_see() -> None:
    assert "terminal" in rules(stream(CHUNK, {"object": "error", **ERROR}), Fails(INTERNAL))


def test_comments_names_and_split_data_are_read_as_the_standard_says() -> None:
    text = ': ping\nevent: error\ndata: {"error":\ndata: ' + json.dumps(ERROR) + "}\n\n"
    assert rules(stream(CHUNK, end=text), Fails(INTERNAL, done=False)) == []


def test_a_whole_stream() -> None:
    assert rules(stream(CHUNK), Whole()) == []
    assert rules(stream(CHUNK, end=""), Whole()) == ["done"]
    assert rules(stream(CHUNK, {"error": ERROR}), Whole()) == ["terminal"]
    assert rules(stream(end=""), Whole()) == ["terminal"]


def test_what_is_not_streamed_is_not_judged_as_a_stream() -> None:
    assert skip(http(200, {"choices": [1]}, **{"content-type": "application/json"}), Whole()) is not None


@pytest.mark.parametrize("mark", ["", "data: [DONE]\n\n"])
def test_a_response_that_fails_says_why(mark: str) -> None:
    def failed(error: Any) -> Answer:
        return stream({"type": "response.failed", "response": {"error": error}}, end=mark)

    assert rules(failed({"code": "InternalServerError", "message": "no"}), Responds()) == []
    assert rules(failed({"code": "InternalServerError"}), Responds()) == ["envelope"]
    assert rules(stream({"type": "response.in_progress"}, end=mark), Responds()) == ["terminal"]


# ---- sessions -------------------------------------------------------------------------------------------------------


def session(*received: Any, code: int | None = None, reason: str = "", status: int = 101) -> Conversation:
    return Conversation(socket("/v1/x"), 0.1, status, received=received, code=code, reason=reason)


EVENT = {"type": "error", "error": ERROR}
MISTAKE = Told((INTERNAL,))
END = Told((INTERNAL,), 1011)


def test_a_mistake_leaves_the_session_open() -> None:
    assert rules(session({"type": "hello"}, EVENT), MISTAKE) == []
    assert rules(session(EVENT, code=1011, reason="no"), MISTAKE) == ["session"]
    assert rules(session(EVENT, code=NO_FRAME), MISTAKE) == ["session"]
    assert rules(session(), MISTAKE) == ["session"]
    assert rules(session(EVENT, EVENT), MISTAKE) == ["session"]


def test_an_end_is_the_event_and_the_close() -> None:
    assert rules(session(EVENT, code=1011, reason="no"), END) == []
    assert rules(session(EVENT, code=1000, reason=""), END) == ["close"]
    assert rules(session(EVENT, code=NO_FRAME), END) == ["close"]
    assert rules(session(EVENT), END) == ["close"]
    assert rules(session(EVENT, code=1011, reason=""), END) == ["close"]
    assert rules(session(EVENT, code=1011, reason="x" * 124), END) == ["close"]
    assert rules(session(EVENT, {"type": "session.done"}, code=1011, reason="no"), END) == ["terminal"]


def test_the_clients_event_id_comes_back() -> None:
    echoed = {"type": "error", "error": ERROR | {"event_id": "mine"}}
    assert rules(session(echoed), Told((INTERNAL,), event_id="mine")) == []
    assert rules(session(EVENT), Told((INTERNAL,), event_id="mine")) == ["session"]


def test_what_stands_beside_the_error_shows_nothing_either() -> None:
    assert "leak" in rules(session(EVENT | {"detail": "/opt/models/w.bin"}), MISTAKE)
    assert "leak" in rules(session(EVENT, code=1011, reason="at 0x7f5ec2e7c0de"), END)


def test_a_session_that_is_not_there_is_refused_before_it_is_accepted() -> None:
    never = {"x-should-retry": "false", "x-request-id": "r"}
    body = json.dumps({"error": ERROR | {"code": 503, "type": "ServiceUnavailableError"}}).encode()
    refusal = Conversation(socket("/v1/x"), 0.1, 503, never, body)
    assert rules(refusal, Opens(UNAVAILABLE)) == []
    assert rules(Conversation(socket("/v1/x"), 0.1, 503, {"x-request-id": "r"}, body), Opens(UNAVAILABLE)) == ["retry"]
    assert rules(session(EVENT), Opens(UNAVAILABLE)) == ["session"]
    assert rules(session(), Opens(UNAVAILABLE)) == []
    assert skip(session(status=403), Opens(UNAVAILABLE)) == "there is no such session here: 403"


# ---- jobs -----------------------------------------------------------------------------------------------------------

JOB = {"id": "v", "status": "failed", "error": ERROR | {"request_id": "v"}}


def test_a_failed_job_is_a_success_with_the_error_inside() -> None:
    assert rules(http(200, JOB), Failed(INTERNAL, "v")) == []
    assert rules(http(500, JOB), Failed(INTERNAL, "v")) == ["status"]
    assert rules(http(200, JOB | {"status": "completed"}), Failed(INTERNAL, "v")) == ["job"]
    assert rules(http(200, JOB | {"error": ERROR}), Failed(INTERNAL, "v")) == ["job"]
    assert rules(http(200, JOB | {"error": {"code": 500, "message": "no"}}), Failed(INTERNAL, "v")) != []


def test_the_error_of_a_job_stays_as_it_is() -> None:
    assert rules(http(200, JOB), Failed(INTERNAL, "v", JOB["error"])) == []
    assert rules(http(200, JOB), Failed(INTERNAL, "v", ERROR)) == ["job"]


def test_the_list_says_the_same() -> None:
    assert rules(http(200, {"data": [JOB]}), Listed("v", JOB["error"])) == []
    assert rules(http(200, {"data": [JOB | {"error": None}]}), Listed("v", JOB["error"])) == ["job"]
    assert rules(http(200, {"data": []}), Listed("v", JOB["error"])) == ["job"]


# ---- the official client --------------------------------------------------------------------------------------------

SEEN = {"status_code": 404, "code": "404", "type": "NotFoundError", "param": "model", "request_id": "r"}
MISSING = refused(404, types=("NotFoundError",), param="model")


def asked(raised: str | None, attempts: int = 1, **seen: Any) -> Asked:
    return Asked(CALL, 0.1, 404 if raised else 200, raised=raised, seen=SEEN | seen, attempts=attempts)


def test_the_client_raises_what_suits_the_error() -> None:
    assert rules(asked("NotFoundError"), Raises(MISSING)) == []


@pytest.mark.parametrize(
    "answer",
    [
        asked(None),
        asked("InternalServerError"),
        asked("NotFoundError", code="500"),
        asked("NotFoundError", code=None),
        asked("NotFoundError", type=None),
        asked("NotFoundError", type="BadRequestError"),
        asked("NotFoundError", param=None),
        asked("NotFoundError", request_id=None),
        asked("NotFoundError", attempts=3),
    ],
    ids=lambda answer: f"{answer.raised} {dict(answer.seen)} {answer.attempts}",
)
def test_anything_else_is_a_finding(answer: Asked) -> None:
    assert set(rules(answer, Raises(MISSING, once=True))) == {"official client"}


# ---- who promised what ----------------------------------------------------------------------------------------------


def levels(answer: Answer, expect: Expectation) -> set[tuple[str, str]]:
    return {(finding.rule, finding.contract) for finding in expect.judge(answer, Canaries(), Contract.OMNI).findings}


def test_a_client_error_of_another_number_is_vllms_promise_one_of_another_class_everybodys() -> None:
    assert ("status", "vllm") in levels(http(400), refused(404))
    assert ("status", "openai") in levels(http(500), refused(404))


def test_a_traceback_is_nobodys_right_an_echo_is_vllm_omnis_promise() -> None:
    shown = {"error": ERROR | {"message": "<x object> (parameter=size)"}}
    assert {("leak", "openai"), ("echo", "omni")} <= levels(http(500, shown), INTERNAL)


def test_what_a_server_never_promised_to_refuse_it_may_take() -> None:
    taken = http(200, {"choices": [1]})
    assert skip(taken, refused(400), Contract.OPENAI) is not None
    assert rules(taken, refused(400), Contract.VLLM) == ["status"]
    assert rules(taken, refused(400, lenient=False), Contract.OPENAI) == ["status"]


@pytest.mark.parametrize(
    ("paths", "contract"),
    [
        ({"/tokenize", "/version", "/v1/images/generations", "/v1/models"}, Contract.OMNI),
        ({"/tokenize", "/version", "/v1/models"}, Contract.VLLM),
        ({"/v1/models", "/v1/images/generations"}, Contract.OPENAI),
        (set(), Contract.OPENAI),
    ],
)
def test_a_server_is_recognised_by_its_routes(paths: set[str], contract: Contract) -> None:
    assert recognise(paths) is contract


def test_a_conversation_is_shown_with_its_messages_and_a_command() -> None:
    talk = socket("/v1/realtime", {"type": "x"}, b"\xff", "text")
    assert shown_body(talk).splitlines() == ['{"type": "x"}', "b'\\xff'", "text"]
    assert "ws://host:1/v1/realtime" in curl(talk, "http://host:1")
