# SPDX-License-Identifier: Apache-2.0
"""Streams of chat, completions, responses and image edits, as the official client meets them."""

import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from vllm.exceptions import VLLMServerError, VLLMValidationError

from vllm_omni_errors import install, metrics
from vllm_omni_errors.exceptions import OmniServiceUnavailableError
from vllm_omni_errors.streams import started_chat, started_completions, started_edit, started_responses

SECRET = "/opt/secret/weights"
CHUNK = 'data: {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}\n\n'
DONE = "data: [DONE]\n\n"

Script = tuple[Any, ...]


async def play(script: Script, closed: list[str] | None = None) -> AsyncGenerator[Any, None]:
    """Yield what is no exception and raise what is."""
    try:
        for each in script:
            if isinstance(each, Exception):
                raise each
            yield each
    finally:
        if closed is not None:
            closed.append("closed")


class Serving:
    """Stands for a serving class of vLLM: it has both methods, and streams the script."""

    def __init__(self, script: Any) -> None:
        self.script = script

    async def create_completion(self) -> Any:
        return play(self.script) if isinstance(self.script, tuple) else self.script

    create_responses = create_completion


async def chat(script: Script) -> Any:
    return await started_chat(play(script))


async def edit(script: Script) -> Any:
    return await started_edit(play(script))


async def completion(script: Script) -> Any:
    return await started_completions(Serving)(script).create_completion()


async def answer(start: Any, script: Script) -> httpx.Response:
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def route() -> StreamingResponse:
        return StreamingResponse(await start(script), media_type="text/event-stream")

    install(app)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        return await client.post("/v1/chat/completions")


def events(response: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


EVERY = pytest.mark.parametrize("start", [chat, edit, completion])


@EVERY
@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (VLLMValidationError("too long", parameter="prompt"), 400, "BadRequestError"),
        (OmniServiceUnavailableError("no replica"), 503, "ServiceUnavailableError"),
        (RuntimeError(SECRET), 500, "InternalServerError"),
    ],
)
async def test_case_s01_before_the_first_event_it_is_an_http_error(
    start: Any, failure: Exception, status: int, kind: str
) -> None:
    response = await answer(start, (failure,))
    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)
    assert SECRET not in response.text


@EVERY
async def test_a_stream_that_succeeds_stays_as_it_is(start: Any) -> None:
    response = await answer(start, (CHUNK, CHUNK, DONE))
    assert (response.status_code, response.text) == (200, CHUNK * 2 + DONE)


@pytest.mark.parametrize("start", [chat, edit])
async def test_case_s04_after_it_there_is_one_terminal_event_and_the_end_mark(start: Any) -> None:
    response = await answer(start, (CHUNK, RuntimeError(SECRET), CHUNK))
    _, error, done = events(response)
    assert (response.status_code, done) == (200, "[DONE]")
    assert set(error["error"]) == {"message", "type", "param", "code", "request_id", "error_stage_id"}
    assert (error["error"]["code"], error["error"]["type"]) == (500, "InternalServerError")
    assert error["error"]["request_id"]
    assert set(error) == ({"error"} if start is chat else {"type", "error"})
    assert SECRET not in response.text


async def test_case_s13_the_official_client_raises_what_the_last_event_says() -> None:
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def route() -> StreamingResponse:
        script = (CHUNK, VLLMValidationError("The prompt is too long.", parameter="prompt"))
        return StreamingResponse(await chat(script), media_type="text/event-stream")

    install(app)
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app))
    client = openai.AsyncOpenAI(base_url="http://x/v1", api_key="none", max_retries=0, http_client=http)
    stream = await client.chat.completions.create(model="m", messages=[], stream=True)
    with pytest.raises(openai.APIError) as raised:
        _ = [chunk async for chunk in stream]
    assert (raised.value.message, raised.value.type, raised.value.code, raised.value.param) == (
        "The prompt is too long.",
        "BadRequestError",
        "400",
        "prompt",
    )


@pytest.mark.parametrize("script", [(DONE,), ()])
async def test_case_s05_nothing_but_the_end_mark_is_a_failure(script: Script) -> None:
    response = await answer(completion, script)
    assert (response.status_code, response.json()["error"]["type"]) == (500, "InternalServerError")


async def test_an_error_that_vllm_tells_first_keeps_its_status_and_its_parameter() -> None:
    told = {"error": {"message": "no", "type": "BadRequestError", "param": "n", "code": 400}}
    response = await answer(completion, (f"data: {json.dumps(told)}\n\n", DONE))
    assert response.status_code == 400
    assert (response.json()["error"]["message"], response.json()["error"]["param"]) == ("no", "n")


async def test_an_error_that_vllm_tells_later_is_counted_and_stays_its_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[tuple[int, str]] = []
    monkeypatch.setattr(metrics, "count_error", lambda details, where: counted.append((details.status_code, where)))
    told = 'data: {"error": {"message": "no", "type": "InternalServerError", "param": null, "code": 500}}\n\n'
    response = await answer(completion, (CHUNK, told, DONE))
    assert (response.text, counted) == (CHUNK + told + DONE, [(500, "sse")])


async def test_what_is_no_stream_is_handed_on() -> None:
    body = SimpleNamespace(error="x")
    assert await started_completions(Serving)(body).create_completion() is body


@pytest.mark.parametrize("start", [chat, edit])
async def test_a_client_that_leaves_ends_the_generation(start: Any) -> None:
    closed: list[str] = []
    stream = await (started_chat if start is chat else started_edit)(play((CHUNK, CHUNK), closed))
    await stream.aclose()
    assert closed == ["closed"]


# ---- responses -------------------------------------------------------------------------------------------------------


def created(number: int) -> Any:
    response = SimpleNamespace(model_dump=lambda **options: {"id": "resp_1", "status": "in_progress"})
    return SimpleNamespace(type="response.created", sequence_number=number, response=response)


async def responses(*script: Any) -> list[Any]:
    stream = await started_responses(Serving)(script).create_responses()
    return [event async for event in stream]


async def test_case_s11_a_response_that_fails_says_so_with_its_id() -> None:
    first, last = await responses(created(0), RuntimeError(SECRET))
    failed = json.loads(last.model_dump_json(indent=None, by_alias=True))
    assert (first.type, last.type, failed["type"]) == ("response.created", "response.failed", "response.failed")
    assert failed["sequence_number"] == 1
    assert failed["response"] == {
        "id": "resp_1",
        "status": "failed",
        "error": {"code": "InternalServerError", "message": "Internal server error"},
    }


async def test_what_vllm_could_not_turn_into_an_event_is_told() -> None:
    untold = TypeError("no event")
    untold.__context__ = VLLMServerError("kv load failed")
    _, last = await responses(created(0), untold)
    assert json.loads(last.model_dump_json())["response"]["error"]["message"] == "kv load failed"


async def test_a_response_that_fails_before_its_first_event_raises() -> None:
    with pytest.raises(VLLMValidationError):
        await responses(VLLMValidationError("no", parameter="input"))
