# SPDX-License-Identifier: Apache-2.0
"""The event that ends a failed stream, in each family, read as the official client reads it."""

import json

import httpx
import openai
import pytest

from vllm_omni_errors.details import OmniErrorDetails
from vllm_omni_errors.transports import sse

DETAILS = OmniErrorDetails('"No" such voice.', "client", 404, "NotFoundError", "voice", "speech-1", 2)
ERROR = {
    "message": '"No" such voice.',
    "type": "NotFoundError",
    "param": "voice",
    "code": 404,
    "request_id": "speech-1",
    "error_stage_id": 2,
}


def read(text: str) -> openai.Stream[object]:
    """The official client's stream over these bytes."""
    client = openai.OpenAI(api_key="none", base_url="http://nowhere")
    response = httpx.Response(200, text=text, request=httpx.Request("POST", "http://nowhere"))
    return openai.Stream(cast_to=object, response=response, client=client)


def parts(event: str) -> tuple[str | None, object]:
    """The name and the data of one whole event."""
    *names, data = event.removesuffix("\n\n").split("\n")
    assert event.endswith("\n\n")
    assert data.startswith("data: ")
    return (names[0].removeprefix("event: ") if names else None), json.loads(data.removeprefix("data: "))


def test_nested_error_has_no_name() -> None:
    assert parts(sse.nested_error(DETAILS)) == (None, {"error": ERROR})


def test_typed_error_has_the_streams_own_name() -> None:
    event = sse.typed_error(DETAILS, "speech.audio.error")
    assert parts(event) == ("speech.audio.error", {"type": "error", "error": ERROR})


def test_response_failed_keeps_the_response_and_has_the_codes_of_that_api() -> None:
    event = sse.failed_response(DETAILS, {"id": "resp_1", "status": "in_progress", "output": []}, 7)
    error = {"code": "NotFoundError", "message": ERROR["message"]}
    response = {"id": "resp_1", "status": "failed", "output": [], "error": error}
    assert event == {"type": "response.failed", "sequence_number": 7, "response": response}


@pytest.mark.parametrize(
    "event", [sse.nested_error(DETAILS) + sse.DONE, sse.typed_error(DETAILS, "speech.audio.error")]
)
def test_the_official_client_raises_the_error(event: str) -> None:
    with pytest.raises(openai.APIError) as raised:
        list(read('data: {"delta": "x"}\n\n' + event))
    assert (raised.value.message, raised.value.code, raised.value.type, raised.value.param) == (
        ERROR["message"],
        "404",
        "NotFoundError",
        "voice",
    )


def test_the_official_client_ends_at_done() -> None:
    assert len(list(read('data: {"delta": "x"}\n\n' + sse.DONE + 'data: {"delta": "y"}\n\n'))) == 1
