# SPDX-License-Identifier: Apache-2.0
"""Successful answers of stock and migrated are the same, but for ids, times and random pixels.

Status, headers and bodies are compared after what differs between any two answers is replaced by a word for its kind.
The migrated server adds `x-request-id`, nothing else.
"""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from calls import (
    PNG,
    batch,
    chat,
    data_url,
    delete,
    detokenize,
    edits,
    form,
    image_part,
    images,
    tokenize,
    tokenize_chat,
)
from PIL import Image
from support import Answer, Answers, Call, get, handler_of, post, send, send_all
from video_calls import content, ended, new_session, start_job, step

from vllm_omni_rig.server import Server

HELLO: Mapping[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}

VARYING: Mapping[str, str] = {
    # key or header → the kind of its value
    "created": "time",
    "created_at": "time",
    "completed_at": "time",
    "content-disposition": "file name",
    "date": "time",
    "duration_s": "duration",
    "etag": "hash",
    "file_name": "file name",
    "first_id": "id",
    "id": "id",
    "inference_time_s": "duration",
    "last-modified": "time",
    "last_id": "id",
    "latency_ms": "duration",
    "metrics": "measurements",
    "peak_memory_mb": "measurement",
    "root": "path",
    "server_load": "measurement",
    "session_id": "id",
    "stage_durations": "measurements",
    "system_fingerprint": "hash",
    "x-inference-time-s": "duration",
    "x-peak-memory-mb": "measurement",
    "x-request-id": "id",
    "x-stage-durations": "measurements",
}

STAGE_PARAMETERS = [{"max_tokens": 2, "temperature": 0.0}, {"num_inference_steps": 1}]
"""Greedy: the first request that samples makes the CPU compile for 20 s."""

TWO_STAGES: Mapping[str, Call] = {
    "health": get("/health"),
    "models": get("/v1/models"),
    "version": get("/version"),
    "load": get("/load"),
    "ping": get("/ping"),
    "voices": get("/v1/audio/voices"),
    "schema": get("/openapi.json"),
    "tokenize": tokenize(prompt="hi there"),
    "tokenize with tokens": tokenize(prompt="hi there", return_token_strs=True),
    "tokenize chat": tokenize_chat("hi"),
    "tokenize chat with a template": tokenize_chat("hi", chat_template="{{ messages[0]['content'] }}"),
    "tokenize a long prompt": tokenize(prompt="a" * 400),
    "detokenize": detokenize(40, 41),
    "detokenize an unknown token": detokenize(99_999),
    "count tokens": post("/v1/messages/count_tokens", HELLO),
    "chat": chat("hi"),
    "chat without a model": chat("hi", model=None),
    "chat with two choices": chat("hi", n=2),
    "chat with an image modality": chat("hi", modalities=["image"]),
    "chat with log probabilities": chat("hi", logprobs=True),
    "chat with a system message": chat("hi", messages=[{"role": "system", "content": "x"}, *HELLO["messages"]]),
    "chat with text parts": chat([{"type": "text", "text": "hi"}]),
    "chat with a template": chat("hi", chat_template="{{ messages[0]['content'] }}"),
    "chat with stage parameters": chat("hi", sampling_params_list=STAGE_PARAMETERS),
    "chat with a request id": chat("hi", request_id="mine"),
    "chat with a size": chat("hi", size="32x32"),
    "chat with extra arguments": chat("hi", extra_args={"x": 1}),
    "chat by invocation": post("/invocations", HELLO),
    "chat stream": chat("hi", stream=True),
    "chat stream with usage": chat("hi", stream=True, stream_options={"include_usage": True}),
    "batch": batch("hi", "ho"),
    "batch of one": batch("hi"),
    "images": images("hi"),
    "images with a model": images("hi", model="tiny"),
    "two images": images("hi", n=2),
    "images as WebP": images("hi", output_format="webp"),
    "images as JPEG": images("hi", output_format="jpeg", output_compression=50),
    "images of no size": post("/v1/images/generations", {"prompt": "hi"}),
    "images with parameters": images("hi", seed=2**63 - 1, num_inference_steps=3, guidance_scale=2.5),
    "images with a negative prompt": images("hi", negative_prompt="no"),
    "images as base64": images("hi", response_format="b64_json"),
    "edit": edits("hi", PNG, size="64x64"),
    "two edits": edits("hi", PNG, size="64x64", n="2"),
    "edit of a data URL": edits("hi", url=data_url(PNG), size="64x64"),
    "edit of no size": edits("hi", PNG),
    "edit with a resolution": edits("hi", PNG, resolution="640"),
    "edit stream": edits("hi", PNG, size="64x64", stream="true"),
    "two edits in a stream": edits("hi", PNG, size="64x64", stream="true", n="2"),
    "is it scaling": post("/is_scaling_elastic_ep", {}),
    "video job": form("/v1/videos", prompt="hi", size="64x64"),
}  # fmt: skip

ONE_STAGE: Mapping[str, Call] = {
    "health": get("/health"),
    "models": get("/v1/models"),
    "schema": get("/openapi.json"),
    "chat": chat("hi"),
    "chat without a model": chat("hi", model=None),
    "chat stream": chat("hi", stream=True),
    "chat with an image": chat(image_part(data_url(PNG))),
    "chat with two choices": chat("hi", n=2),
    "chat with parameters": chat("hi", seed=1, num_inference_steps=1, size="32x32"),
    "batch": batch("hi", "ho"),
    "images": images("hi"),
    "two images": images("hi", n=2),
    "images as JPEG": images("hi", output_format="jpeg"),
    "edit": edits("hi", PNG, size="64x64"),
    "two edits": edits("hi", PNG, size="64x64", n="2"),
    "edit of a data URL": edits("hi", url=data_url(PNG), size="64x64"),
}

VIDEO: Mapping[str, Call] = {
    "ping": post("/ping", {}),
    "wake-up of what is awake": post("/v1/omni/wakeup", {"stage_ids": [0]}),
    "video job": form("/v1/videos", prompt="hi", size="64x64"),
    "video": form("/v1/videos/sync", prompt="hi", size="64x64"),
    "rollout session": post("/v1/realtime/sessions", {"model": "tiny"}),
    "voices": get("/v1/audio/voices"),
    "models": get("/v1/models"),
}


def story(job: str, session: str) -> Mapping[str, Call]:
    """What becomes of a finished video job and of a rollout session, in this order."""
    return {
        "finished job": get(f"/v1/videos/{job}"),
        "newest job": get("/v1/videos?limit=1&order=desc"),
        "content of a job": content(job),
        "deleted job": delete(f"/v1/videos/{job}"),
        "step": step(session),
        "status of a session": get(f"/v1/realtime/sessions/{session}/status"),
        "reset of a session": post(f"/v1/realtime/sessions/{session}/reset", {}),
        "close of a session": post(f"/v1/realtime/sessions/{session}/close", {}),
    }


STORY = story("job", "session")


def told(url: str) -> Mapping[str, Answer]:
    job, session = start_job(url, "hi"), new_session(url)
    ended(url, job)
    return {name: send(url, call) for name, call in story(job, session).items()}


def picture(value: str) -> str:
    """Of a data URL or of base64: what the image is. Its pixels are random."""
    head, _, content = value.rpartition(",")
    image = Image.open(io.BytesIO(base64.b64decode(content)))
    return f"<{head} {image.format} {image.size} {image.mode}>"


def settled(value: Any, key: str = "") -> Any:
    """A body without what differs between any two answers."""
    if key in VARYING:
        return value if value is None else f"<{VARYING[key]}>"
    if isinstance(value, dict):
        return {name: settled(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [settled(each) for each in value]
    if key in ("url", "b64_json") and isinstance(value, str):
        return picture(value)
    return value


ERRORS = ("ErrorInfo", "ErrorResponse", "HTTPValidationError", "OmniErrorResponse", "ValidationError", "VideoError")
"""Components that describe errors, and are others now (test_contract_openapi.py, test_contract_videos.py)."""


def successes(document: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI document without what it says about errors."""
    for operation in (operation for item in document["paths"].values() for operation in item.values()):
        operation.pop("x-error-event", None)
        for status in [status for status in operation["responses"] if int(status) >= 400]:
            del operation["responses"][status]
    schemas = document["components"]["schemas"]
    return document | {"components": {name: schema for name, schema in schemas.items() if name not in ERRORS}}


def body(answer: Answer) -> Any:
    kind = answer.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        return [settled(event) for event in answer.events()]
    if answer.body is None:
        return "<no JSON>"
    settled_body = settled(answer.body)
    return successes(settled_body) if "openapi" in settled_body else settled_body


def headers(answer: Answer) -> dict[str, str]:
    kept = {name: VARYING.get(name, value) for name, value in answer.headers.items()}
    kept.pop("content-length", None)  # a random image's compressed size
    return kept


def compare(stock: Answer, migrated: Answer) -> None:
    assert stock.status == migrated.status == 200, stock.text + migrated.text
    assert body(migrated) == body(stock)
    assert headers(migrated) in (headers(stock), headers(stock) | {"x-request-id": "id"})


@pytest.fixture(scope="module")
def two_stages(stock: Server, migrated: Server) -> tuple[Answers, Answers]:
    return send_all(stock.url, TWO_STAGES), send_all(migrated.url, TWO_STAGES)


@pytest.fixture(scope="module")
def one_stage(stock_inline: Server, migrated_inline: Server) -> tuple[Answers, Answers]:
    return send_all(stock_inline.url, ONE_STAGE), send_all(migrated_inline.url, ONE_STAGE)


@pytest.fixture(scope="module")
def video(scripted: Callable[..., Server]) -> tuple[Answers, Answers]:
    return send_all(scripted("video").url, VIDEO), send_all(scripted("video", "migrated").url, VIDEO)


@pytest.fixture(scope="module")
def stories(scripted: Callable[..., Server]) -> Sequence[Mapping[str, Answer]]:
    return [told(scripted("video", variant).url) for variant in ("stock", "migrated")]


@pytest.mark.parametrize("name", STORY)
def test_success_of_a_job_and_of_a_session(stories: Sequence[Mapping[str, Answer]], name: str) -> None:
    compare(*(answers[name] for answers in stories))


@pytest.mark.parametrize("name", TWO_STAGES)
def test_success_with_two_stages(two_stages: tuple[Answers, Answers], name: str) -> None:
    compare(*(answers.by_name[name] for answers in two_stages))


@pytest.mark.parametrize("name", ONE_STAGE)
def test_success_with_one_stage(one_stage: tuple[Answers, Answers], name: str) -> None:
    compare(*(answers.by_name[name] for answers in one_stage))


@pytest.mark.parametrize("name", VIDEO)
def test_success_of_videos_and_sessions(video: tuple[Answers, Answers], name: str) -> None:
    compare(*(answers.by_name[name] for answers in video))


def test_successes_are_counted_alike(two_stages: tuple[Answers, Answers]) -> None:
    stock, migrated = two_stages
    assert migrated.counted == stock.counted


@pytest.mark.parametrize("name", ["chat", "chat stream", "images", "edit", "batch"])
def test_the_migrated_server_says_the_id_of_a_request_that_it_accepted(
    two_stages: tuple[Answers, Answers], name: str
) -> None:
    answer = two_stages[1].by_name[name]
    assert answer.headers["x-request-id"]
    if name == "chat":
        assert answer.headers["x-request-id"] == answer.body["id"]


ELSEWHERE: Mapping[str, str] = {
    "GET /metrics": "every test that counts",
    "POST /v1/audio/speech": "test_contract_speech.py",
    "POST /v1/audio/speech/batch": "test_contract_speech.py",
    "POST /v1/audio/voices": "test_contract_speech.py",
    "DELETE /v1/audio/voices/{name}": "test_contract_speech.py",
    "POST /v1/completions": "test_contract_workers.py",
    "POST /v1/messages": "test_contract_workers.py",
    "POST /v1/responses": "test_contract_workers.py",
}
"""Where the successes of a route are compared that no server of this module's own has."""

NEVER: Mapping[str, str] = {
    "GET /v1/responses/{response_id}": "the rig stores no responses",
    "POST /v1/responses/{response_id}/cancel": "the rig stores no responses",
    "POST /generative_scoring": "no pipeline of the rig serves it",
    "POST /scale_elastic_ep": "the rig has one device",
    "POST /v1/audio/generate": "no pipeline of the rig serves it",
    "POST /v1/omni/sleep": "a CPU engine cannot sleep",
}
"""Why a route never succeeds on the rig."""


def test_every_route_that_succeeds_is_compared(two_stages: tuple[Answers, Answers]) -> None:
    document = two_stages[1].by_name["schema"].body
    operations = {f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item}
    compared = {
        f"{call.method} {handler_of(call.path, document['paths'])}"
        for table in (TWO_STAGES, ONE_STAGE, VIDEO, STORY)
        for call in table.values()
    }
    assert operations - compared == ELSEWHERE.keys() | NEVER.keys()
