# SPDX-License-Identifier: Apache-2.0
"""Stock's streams, sockets and video jobs, as they are today. Every stream here is HTTP 200, counted 2xx."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest
import websockets
from calls import PNG, chat, edits, form
from support import FOUR, Call, get, post, send

from vllm_omni_rig.failures import CANARIES
from vllm_omni_rig.server import Server

Start = Callable[..., Server]

JOB_DEADLINE_S = 10.0
SILENCE_S = 1.0
"""How long a socket must say nothing to count as open and idle."""


# ---- server-sent events ----------------------------------------------------------------------------------------------


def speech(text: str) -> Call:
    body = {"model": "tiny", "input": text, "voice": "default", "stream": True, "response_format": "pcm"}
    return post("/v1/audio/speech", body | {"stream_format": "sse"})


STREAMS: dict[str, Callable[[str], Call]] = {
    "chat": lambda text: chat(text, stream=True),
    "edits": lambda text: edits(text, PNG, size="64x64", stream="true"),
    "speech": speech,
}


ERROR_EVENTS = {
    # stream: keys around the error, keys of the error, whether [DONE] follows
    "chat": ({"error"}, FOUR, True),
    "edits": ({"object", "created", "model", "error"}, FOUR - {"param"}, True),
    "speech": ({"type", "error"}, FOUR, False),
}

STREAM_FAULTS = [
    # stream, fault, type, code
    ("chat", "FAULT:raise=ValueError@last", "InternalServerError", 500),
    ("chat", "FAULT:guard", "BadRequestError", 400),
    ("chat", "FAULT:error=404.NotFoundError", "BadRequestError", 400),
    ("chat", "FAULT:error=503", "InternalServerError", 500),
    ("chat", "FAULT:outputerror=504", "InternalServerError", 500),
    ("chat", "FAULT:raise=ValueError@front", "BadRequestError", 400),
    ("chat", "FAULT:badoutput", "BadRequestError", 400),
    ("chat", "FAULT:deadstage", "InternalServerError", 500),
    ("edits", "FAULT:raise=ValueError@last", "server_error", 500),
    ("edits", "FAULT:guard", "BadRequestError", 400),
    ("edits", "FAULT:error=404.NotFoundError", "NotFoundError", 404),
    ("edits", "FAULT:error=503", "server_error", 500),
    ("edits", "FAULT:raise=ValueError@front", "server_error", 500),
    ("edits", "FAULT:badoutput", "server_error", 500),
    ("edits", "FAULT:output=none", "server_error", 500),
    ("speech", "FAULT:raise=ValueError@last", "server_error", 500),
    ("speech", "FAULT:guard", "server_error", 500),
    ("speech", "FAULT:error=404.NotFoundError", "server_error", 500),
    ("speech", "FAULT:error=503", "server_error", 500),
    ("speech", "FAULT:deadstage", "server_error", 500),
]


@pytest.mark.parametrize(("stream", "fault", "kind", "code"), STREAM_FAULTS)
def test_error_event_of_a_stream(scripted: Start, stream: str, fault: str, kind: str, code: int) -> None:
    answer = send(scripted("multi").url, STREAMS[stream](fault))
    *before, error = [event for event in answer.events() if event != "[DONE]"]
    around, keys, done = ERROR_EVENTS[stream]
    assert (answer.status, answer.counted, answer.headers["content-type"]) == (
        200,
        ("2xx",),
        "text/event-stream; charset=utf-8",
    )
    assert before == []
    assert (set(error), set(error["error"])) == (around, keys)
    assert (error["error"]["type"], error["error"]["code"]) == (kind, code)
    assert answer.text.endswith("data: [DONE]\n\n") is done


def test_error_event_of_an_edit_on_a_dead_stage_has_the_chat_shape(scripted: Start) -> None:
    answer = send(scripted("multi").url, STREAMS["edits"]("FAULT:deadstage"))
    error, done = answer.events()
    assert (set(error), set(error["error"]), done) == ({"error"}, FOUR, "[DONE]")


@pytest.mark.parametrize("stream", ["edits", "speech"])
def test_error_event_shows_a_path_and_an_address(scripted: Start, stream: str) -> None:
    text = send(scripted("multi").url, STREAMS[stream]("FAULT:value")).text
    assert CANARIES["path"] in text
    assert CANARIES["address"] in text


def test_a_chat_stream_without_an_image_looks_like_a_success(stock: Server) -> None:
    answer = send(stock.url, STREAMS["chat"]("FAULT:output=none"))
    first, last, done = answer.events()
    assert first["choices"][0]["delta"]["content"][0]["type"] == "text"
    assert (last["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")


def test_a_completion_stream_that_fails_before_its_first_token_is_a_bare_done(stock: Server) -> None:
    """S05."""
    answer = send(stock.url, post("/v1/completions", {"model": "tiny", "prompt": "hi", "stream": True}))
    assert (answer.status, answer.events()) == (200, ["[DONE]"])


def test_a_responses_stream_that_fails_breaks_off(stock: Server) -> None:
    """S11."""
    with pytest.raises(httpx.RemoteProtocolError):
        send(stock.url, post("/v1/responses", {"model": "tiny", "input": "hi", "stream": True}))


# ---- sockets ---------------------------------------------------------------------------------------------------------


async def converse(url: str, sent: Sequence[Any], expected: int) -> tuple[list[Any], int | None]:
    """Send, then receive so many messages; the close code: 1006 without a close frame, None if it stays open."""
    received: list[Any] = []
    async with websockets.connect(url, open_timeout=10) as socket:
        for message in sent:
            await socket.send(message if isinstance(message, str | bytes) else json.dumps(message))
        try:
            for _ in range(expected):
                message = await asyncio.wait_for(socket.recv(), 10)
                received.append(json.loads(message) if isinstance(message, str) else message)
            await asyncio.wait_for(socket.recv(), SILENCE_S)
        except TimeoutError:
            return received, None
        except websockets.ConnectionClosed as closed:
            return received, closed.rcvd.code if closed.rcvd else 1006
    raise AssertionError("more messages than expected")


MESSAGE = {"type", "message"}
CODE = {"type", "error", "code"}
NO_CLOSE_FRAME = 1006

SPEECH, VIDEO_CHAT, VIDEO, REALTIME = (
    "/v1/audio/speech/stream",
    "/v1/video/chat/stream",
    "/v1/realtime/video",
    "/v1/realtime",
)
OPENPI = "/v1/realtime/robot/openpi"
START_VIDEO = {"type": "session.start", "model": "tiny"}

# path, what the client sends, types received, keys of the error, close code or None for open
SOCKETS_OF_STAGES = [
    (SPEECH, ["no JSON"], ["error"], MESSAGE, NO_CLOSE_FRAME),
    (SPEECH, [{"type": "nope"}], ["error"], MESSAGE, NO_CLOSE_FRAME),
    (SPEECH, [b"\xff"], ["error"], MESSAGE, NO_CLOSE_FRAME),
    (VIDEO_CHAT, ["no JSON"], ["error"], MESSAGE, NO_CLOSE_FRAME),
    (VIDEO, [], ["error"], MESSAGE, 1000),
    (REALTIME, ["no JSON"], ["session.created", "error"], CODE, None),
    (REALTIME, [{"type": "nope"}], ["session.created", "error"], CODE, None),
    (REALTIME, [{"type": "session.update", "model": "x"}], ["session.created", "error"], CODE, None),
    (REALTIME + "?duplex=1", [], ["error"], CODE, 1008),
    ("/v1/duplex", [], ["error"], CODE, 1000),
    (OPENPI, [], ["error"], CODE, 1000),
]
SOCKETS_OF_VIDEOS = [
    (SPEECH, [], ["error"], MESSAGE, 1000),
    (VIDEO_CHAT, [], ["error"], MESSAGE, 1000),
    (REALTIME, [], ["error"], CODE, 1000),
    (VIDEO, ["no JSON"], ["error"], MESSAGE, NO_CLOSE_FRAME),
    (VIDEO, [{"type": "nope"}], ["error"], MESSAGE, NO_CLOSE_FRAME),
    (VIDEO, [START_VIDEO], ["error"], MESSAGE, NO_CLOSE_FRAME),
    (VIDEO, [START_VIDEO | {"prompt": "x", "model": "nope"}], ["error"], MESSAGE, NO_CLOSE_FRAME),
    (VIDEO, [START_VIDEO | {"prompt": "FAULT:value"}], ["video.start", "error"], MESSAGE, NO_CLOSE_FRAME),
    (VIDEO, [START_VIDEO | {"prompt": "FAULT:guard"}], ["video.start", "error"], MESSAGE, NO_CLOSE_FRAME),
    (VIDEO, [START_VIDEO | {"prompt": "FAULT:deadstage"}], ["video.start", "error"], MESSAGE, NO_CLOSE_FRAME),
]


async def refused(server: Server, path: str, sent: list[Any], types: list[str], keys: set[str], code: int) -> None:
    received, closed = await converse(server.url.replace("http", "ws") + path, sent, len(types))
    assert ([each["type"] for each in received], set(received[-1]), closed) == (types, keys, code)


@pytest.mark.parametrize(("path", "sent", "types", "keys", "code"), SOCKETS_OF_STAGES)
async def test_error_of_a_socket(
    stock: Server, path: str, sent: list[Any], types: list[str], keys: set[str], code: int
) -> None:
    await refused(stock, path, sent, types, keys, code)


@pytest.mark.parametrize(("path", "sent", "types", "keys", "code"), SOCKETS_OF_VIDEOS)
async def test_error_of_a_socket_of_the_video_server(
    scripted: Start, path: str, sent: list[Any], types: list[str], keys: set[str], code: int
) -> None:
    await refused(scripted("video"), path, sent, types, keys, code)


async def test_a_failed_sentence_on_the_speech_socket_is_followed_by_success_events(stock: Server) -> None:
    sent = [
        {"type": "session.config", "model": "tiny"},
        {"type": "input.text", "text": "FAULT:value"},
        {"type": "input.done"},
    ]
    received, closed = await converse(stock.url.replace("http", "ws") + SPEECH, sent, 4)
    assert [each["type"] for each in received] == ["audio.start", "error", "audio.done", "session.done"]
    assert (received[2]["error"], closed) == (True, None)
    assert CANARIES["path"] in received[1]["message"]


async def test_the_video_socket_shows_a_path(scripted: Start) -> None:
    url = scripted("video").url.replace("http", "ws") + VIDEO
    received, _ = await converse(url, [START_VIDEO | {"prompt": "FAULT:value"}], 2)
    assert CANARIES["path"] in received[1]["message"]


async def test_the_robot_socket_answers_in_msgpack_and_stays_open(scripted: Start) -> None:
    url = scripted("video").url.replace("http", "ws") + OPENPI
    received, closed = await converse(url, [b"\xff"], 2)
    assert received[1] == b"\x82\xa4type\xa5error\xa7message\xb7Invalid request payload"
    assert closed is None


@pytest.mark.parametrize("path", ["/v1/nope", "/v1/models"])
async def test_a_socket_on_no_route_is_refused_with_403(stock: Server, path: str) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        await converse(stock.url.replace("http", "ws") + path, [], 1)
    assert refused.value.response.status_code == 403


# ---- video jobs ------------------------------------------------------------------------------------------------------


def job(server: Server, prompt: str) -> str:
    """Start one; its id."""
    answer = send(server.url, form("/v1/videos", prompt=prompt, size="64x64"))
    assert (answer.status, answer.body["status"]) == (200, "queued")
    return str(answer.body["id"])


def finished(server: Server, identity: str) -> httpx.Response:
    """The answer to GET once the job is over."""
    end = time.monotonic() + JOB_DEADLINE_S
    while time.monotonic() < end:
        response = httpx.get(f"{server.url}/v1/videos/{identity}", timeout=10)
        if response.json()["status"] not in ("queued", "in_progress"):
            return response
        time.sleep(0.1)
    raise AssertionError("the job did not end")


@pytest.mark.parametrize(
    ("fault", "status"),
    [("FAULT:value", 500), ("FAULT:guard", 400), ("FAULT:error=404.NotFoundError", 404), ("FAULT:error=503", 500),
     ("FAULT:outputerror=504", 500), ("FAULT:deadstage", 500)],
)  # fmt: skip
def test_a_failed_job(scripted: Start, fault: str, status: int) -> None:
    """J07: its stored error is the status of GET, so that 404 may be either; its content is 422 whatever it was."""
    server = scripted("video")
    identity = job(server, fault)
    response = finished(server, identity)
    assert (response.status_code, response.json()["status"]) == (status, "failed")
    assert response.json()["error"].keys() == {"code", "message"}
    assert response.json()["error"]["code"] == status
    content = send(server.url, get(f"/v1/videos/{identity}/content"))
    assert (content.status, content.error["type"], content.counted) == (422, "Unprocessable Entity", ("4xx",))


def test_a_failed_job_shows_a_path(scripted: Start) -> None:
    server = scripted("video")
    assert CANARIES["path"] in finished(server, job(server, "FAULT:value")).text


def test_a_running_job(scripted: Start) -> None:
    server = scripted("video")
    identity = job(server, "FAULT:silence")
    assert send(server.url, get(f"/v1/videos/{identity}")).body["status"] == "queued"
    content = send(server.url, get(f"/v1/videos/{identity}/content"))
    assert (content.status, content.error["type"]) == (404, "Not Found")
    assert send(server.url, Call("DELETE", f"/v1/videos/{identity}")).body["deleted"] is True
    assert send(server.url, get(f"/v1/videos/{identity}")).status == 404


def test_any_timeout_of_a_synchronous_job_is_reported_as_its_deadline(scripted: Start) -> None:
    call = form("/v1/videos/sync", prompt="FAULT:raise=TimeoutError@front", size="64x64")
    answer = send(scripted("video").url, call)
    assert (answer.status, answer.error["type"]) == (504, "Gateway Timeout")
    assert "timed out after 600.0s" in answer.error["message"]
