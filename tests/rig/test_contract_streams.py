# SPDX-License-Identifier: Apache-2.0
"""Streams of chat, image edits, completions and responses that fail on the migrated server (contract, section 5).

`test_baseline_streams.py` pins what stock does with the same requests: HTTP 200 and an error event, nothing but the end
mark, or a connection that breaks off.
"""

import time
from collections.abc import Callable, Mapping

import httpx
import openai
import pytest
from calls import LONG, PNG, chat, completions, edits, responses
from contract import nothing_leaks, verify
from support import Answer, Call, Seen, send

from vllm_omni_rig.server import Server

Start = Callable[..., Server]

ABORTED_S = 15.0

STREAMS: Mapping[str, Callable[[str], Call]] = {
    "chat": lambda text: chat(text, stream=True),
    "edits": lambda text: edits(text, PNG, size="64x64", stream="true"),
}


def failed(status: int, kind: str) -> Seen:
    return Seen(status, kind, None, "six", f"{status // 100}xx")


INTERNAL = failed(500, "InternalServerError")

FAULTS = [
    ("FAULT:raise=ValueError@last", INTERNAL),
    ("FAULT:raise=ValueError@front", INTERNAL),
    ("FAULT:raise=EngineDeadError@front", INTERNAL),
    ("FAULT:guard", failed(400, "GuardrailViolationError")),
    ("FAULT:error=404.NotFoundError", failed(404, "NotFoundError")),
    ("FAULT:raise=VLLMNotFoundError@front", failed(404, "NotFoundError")),
    ("FAULT:badoutput", INTERNAL),
    ("FAULT:output=none", INTERNAL),
    ("FAULT:deadstage", INTERNAL),
    ("FAULT:wire=bytes", INTERNAL),
    ("FAULT:wire=shape", INTERNAL),
]
"""After a message that cannot be decoded, the last two, the engine of stock is dead; here it serves what follows."""


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(("fault", "expected"), FAULTS)
def test_case_s01_a_failure_before_the_first_event_is_an_http_error(
    scripted: Start, stream: str, fault: str, expected: Seen
) -> None:
    """S07: also an output that has no image, which looked like a success."""
    verify(send(scripted("multi", "migrated").url, STREAMS[stream](fault)), expected)


def kinds(answer: Answer) -> list[str]:
    return [event if event == "[DONE]" else event.get("object", "error") for event in answer.events()]


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_that_succeeds_ends_in_its_mark(scripted: Start, stream: str) -> None:
    stock, migrated = [send(scripted("multi", variant).url, STREAMS[stream]("hi")) for variant in ("stock", "migrated")]
    assert (migrated.status, migrated.counted, kinds(migrated)) == (200, ("2xx",), kinds(stock))
    assert kinds(migrated)[-1] == "[DONE]"


@pytest.mark.parametrize("stream", STREAMS)
def test_a_client_that_leaves_before_the_first_event_aborts_its_request(scripted: Start, stream: str) -> None:
    server = scripted("multi", "migrated")
    before = server.log.read_text().count("aborted.")
    call = STREAMS[stream]("FAULT:silence")
    with httpx.Client(timeout=1) as client, pytest.raises(httpx.TimeoutException):
        client.request(call.method, server.url + call.path, **call.arguments())
    end = time.monotonic() + ABORTED_S
    while server.log.read_text().count("aborted.") == before:
        assert time.monotonic() < end, "the request goes on"
        time.sleep(0.2)


# ---- two stages -----------------------------------------------------------------------------------------------------


def official(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=20)


def test_case_s01_a_prompt_that_is_too_long_is_a_bad_request(migrated: Server) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        official(migrated).chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": LONG}], stream=True
        )
    assert (raised.value.status_code, raised.value.type, raised.value.param) == (400, "BadRequestError", "input_tokens")


def test_case_s07_a_chat_stream_without_an_image_is_a_failure(migrated: Server) -> None:
    verify(send(migrated.url, STREAMS["chat"]("FAULT:output=none")), INTERNAL)


def test_case_s05_a_completion_stream_of_nothing_is_a_failure(migrated: Server) -> None:
    verify(send(migrated.url, completions(prompt="hi", stream=True)), INTERNAL)


def test_a_completion_stream_that_vllm_refuses_keeps_its_parameter(migrated: Server) -> None:
    expected = Seen(400, "BadRequestError", "temperature", "six", "4xx")
    verify(send(migrated.url, completions(prompt="hi", stream=True, temperature=-3)), expected)


def test_case_s11_a_response_that_fails_says_so_to_the_official_client(migrated: Server) -> None:
    events = list(official(migrated).responses.create(model="tiny", input="hi", stream=True))
    assert [event.type for event in events] == ["response.created", "response.in_progress", "response.failed"]
    assert [event.sequence_number for event in events] == [0, 1, 2]
    last = events[-1]
    assert isinstance(last, openai.types.responses.ResponseFailedEvent)
    assert last.response.id == events[0].response.id
    assert last.response.status == "failed"
    assert last.response.error is not None
    assert (last.response.error.code, bool(last.response.error.message)) == ("InternalServerError", True)


def test_case_s11_one_log_line(migrated: Server) -> None:
    before = len(migrated.log.read_text())
    answer = send(migrated.url, responses(input="hi", stream=True))
    nothing_leaks(answer.text.replace(answer.events()[0]["response"]["id"], ""))
    logged = [line for line in migrated.log.read_text()[before:].splitlines() if "POST /v1/responses: 500" in line]
    assert len(logged) == 1
