# SPDX-License-Identifier: Apache-2.0
"""Transports × failures: how a client of each transport learns of a failure, before and after the first byte.

Clients are the official ones: ``openai`` wherever it has a method or a stream for the route, ``websockets`` for the
other sockets, ``Omni`` and ``AsyncOmni`` offline; what none of them speaks is asked with httpx.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpx
import openai
import speaking
import websockets
from calls import PNG, form
from conversation import Conversation, converse, pack, spoken
from support import Call

Fields = Mapping[str, Any]
"""Of a public error: those of message, type, param, code that the envelope has."""

FAILURES: Mapping[str, str] = MappingProxyType(
    {
        "client error": "VLLMValidationError",
        "guardrail": "GuardrailViolationError",
        "unknown stage error": "RuntimeError",
        "unavailable": "OmniServiceUnavailableError",
        "timeout": "OmniStageTimeoutError",
        "dead stage": "OmniEngineDeadError",
    }
)
"""Failure → what the last stage raises (failures_table.py); the death of a stage's process: test_contract_lifecycle."""

PART = "FAULT:part "
"""Before a fault: the stage gives a part of its output first."""

JOB_DEADLINE_S = 30.0
TIMEOUT_S = 30.0

SPEECH, VIDEO, REALTIME, ROBOT = (
    "/v1/audio/speech/stream",
    "/v1/realtime/video",
    "/v1/realtime",
    "/v1/realtime/robot/openpi",
)


@dataclass(frozen=True, slots=True)
class Told:
    """What a client was told, and how: a status, ``event``, ``item``, ``broken off``, or how a socket went on."""

    fields: Fields
    how: str
    begun: bool | None = None
    """Whether a socket had brought a part of the output before; elsewhere ``how`` says it."""


Ask = Callable[[str, str], Told]
"""A server's address and a text with a fault → what its client was told."""


def official(url: str) -> Any:
    """The official client; untyped, since the texts here are no literals of its API."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S)


def raised(call: Callable[[], object]) -> Told:
    """What the official client raises in a call that reads its whole answer."""
    try:
        call()
    except openai.APIStatusError as error:
        return Told(_fields(error.body), str(error.status_code))
    except openai.APIConnectionError:
        raise
    except openai.APIError as error:
        return Told(_fields(error.body), "event")
    raise AssertionError("the official client raised nothing")


def _fields(error: Any) -> Fields:
    return {name: error[name] for name in ("message", "type", "param", "code") if name in error}


# ---- answers and streams ---------------------------------------------------------------------------------------------


def ask_for_an_image(url: str, text: str) -> Told:
    return raised(lambda: official(url).images.generate(model="tiny", prompt=text, size="64x64"))


def ask_for_an_edit(url: str, text: str, **more: Any) -> Told:
    client = official(url)
    return raised(lambda: list(client.images.edit(model="tiny", prompt=text, image=("a.png", PNG), **more)))


def stream_an_edit(url: str, text: str) -> Told:
    return ask_for_an_edit(url, text, stream=True)


def ask_in_a_chat(url: str, text: str, **more: Any) -> Told:
    messages = [{"role": "user", "content": text}]
    return raised(lambda: list(official(url).chat.completions.create(model="tiny", messages=messages, **more)))


def stream_a_chat(url: str, text: str) -> Told:
    return ask_in_a_chat(url, text, stream=True)


def stream_a_completion(url: str, text: str) -> Told:
    return raised(lambda: list(official(url).completions.create(model="tiny", prompt=text, stream=True)))


def stream_a_response(url: str, text: str) -> Told:
    """The API's own event; its ``code`` is our type."""
    *_, last = official(url).responses.create(model="tiny", input=text, stream=True)
    assert last.type == "response.failed", last
    return Told({"message": last.response.error.message, "type": last.response.error.code}, "event")


def ask_for_speech(url: str, text: str) -> Told:
    return raised(lambda: official(url).audio.speech.create(model="tiny", voice="default", input=text))


def stream_events_of_speech(url: str, text: str) -> Told:
    call = speaking.events(text)
    stream = {"stream": True, "stream_cls": openai.Stream[object], "cast_to": object}
    return raised(lambda: list(official(url).post(call.path.removeprefix("/v1"), body=call.json, **stream)))


def stream_raw_speech(url: str, text: str) -> Told:
    """Of the official client's own copy of httpx comes what says that the connection broke."""
    ask = {"model": "tiny", "voice": "default", "input": text, "stream_format": "audio", "response_format": "pcm"}

    def read() -> None:
        with official(url).audio.speech.with_streaming_response.create(**ask) as answer:
            list(answer.iter_bytes())

    try:
        return raised(read)
    except Exception as error:
        if "incomplete chunked read" not in str(error):
            raise
        return Told({}, "broken off")


def send_plainly(url: str, call: Call) -> httpx.Response:
    return httpx.request(call.method, url + call.path, timeout=TIMEOUT_S, **call.arguments())


def ask_for_a_batch_of_speech(url: str, text: str) -> Told:
    cloned = {"task_type": "Base", "ref_audio": "data:audio/wav;base64,AAAA", "ref_text": "x"}
    answer = send_plainly(url, speaking.batch("x", text, **cloned))
    good, failed = answer.json()["results"]
    assert (answer.status_code, good["status"]) == (200, "success")
    return Told(_fields(failed["error"]), "item")


def ask_for_a_video(url: str, text: str) -> Told:
    answer = send_plainly(url, form("/v1/videos/sync", prompt=text, size="64x64"))
    return Told(_fields(answer.json()["error"]), str(answer.status_code))


def _failed_job(url: str, text: str) -> str:
    """The address of a job that is over."""
    job = f"{url}/v1/videos/{send_plainly(url, form('/v1/videos', prompt=text, size='64x64')).json()['id']}"
    end = time.monotonic() + JOB_DEADLINE_S
    while httpx.get(job, timeout=TIMEOUT_S).json()["status"] != "failed":
        assert time.monotonic() < end, "the job goes on"
        time.sleep(0.05)
    return job


def ask_for_a_job(url: str, text: str) -> Told:
    answer = httpx.get(_failed_job(url, text), timeout=TIMEOUT_S)
    return Told(_fields(answer.json()["error"]), str(answer.status_code))


def ask_for_the_content_of_a_job(url: str, text: str) -> Told:
    answer = httpx.get(f"{_failed_job(url, text)}/content", timeout=TIMEOUT_S)
    return Told(_fields(answer.json()["error"]), str(answer.status_code))


# ---- sockets ---------------------------------------------------------------------------------------------------------


def talk(url: str, sent: Sequence[Any], *, packed: bool = False) -> Told:
    """The only error of a session, which is the last thing that is said in it if it ends the session."""
    talked = asyncio.run(converse(url, sent, packed=packed, errors=1))
    assert isinstance(talked, Conversation), talked
    (event,) = talked.errors
    assert talked.code is None or talked.received[-1] == event, "something follows the last error"
    begun = any(isinstance(each, bytes) or each.get("type", "").endswith(".delta") for each in talked.received)
    return Told(_fields(event["error"]), "open" if talked.code is None else f"close {talked.code}", begun)


def talk_of_speech(url: str, text: str) -> Told:
    config = {"type": "session.config", "model": "tiny", "stream_audio": True, "response_format": "pcm"}
    return talk(url + SPEECH, [config, {"type": "input.text", "text": text}, {"type": "input.done"}])


def talk_of_a_video(url: str, text: str) -> Told:
    return talk(url + VIDEO, [{"type": "session.start", "model": "tiny", "prompt": text}])


def talk_to_a_robot(url: str, text: str) -> Told:
    return talk(url + ROBOT, [pack({"prompt": text})], packed=True)


def talk_in_real_time(url: str, text: str) -> Told:
    """With the official client."""
    with official(url).realtime.connect(model="tiny") as session:
        session.send({"type": "session.update", "model": "tiny"})
        session.input_audio_buffer.append(audio=spoken(text))
        session.input_audio_buffer.commit()
        session.send({"type": "input_audio_buffer.commit", "final": True})
        begun = False
        while (event := session.recv()).type != "error":
            begun = begun or event.type.endswith(".delta")
        try:
            session.send({"type": "nope"})
            how = "open" if session.recv().error.param == "type" else "something follows the error"
        except websockets.ConnectionClosed as closed:
            how = f"close {closed.rcvd.code if closed.rcvd else 1006}"
    return Told({name: getattr(event.error, name) for name in ("message", "type", "param", "code")}, how, begun)


# ---- offline ---------------------------------------------------------------------------------------------------------

BATCHES: Mapping[str, str] = MappingProxyType(
    {
        "client error": "parameter",
        "guardrail": "refused",
        "unknown stage error": "raw",
        "unavailable": "unavailable",
        "timeout": "timeout",
        "dead stage": "dead",
    }
)
"""Failure → the batch of `offline.py` that has it and nothing else."""


def of_an_exception(error: Mapping[str, Any]) -> Told:
    """What the exception's record says, and its class."""
    names = {"message": "message", "type": "error_type", "param": "parameter", "code": "status_code"}
    return Told({name: error["details"][field] for name, field in names.items()}, error["class"])


# ---- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A transport: its server, how its client is told before the first byte and after it, or why it cannot be.

    ``before`` and ``after`` are ``status``, ``event``, ``item``, ``broken off`` or ``socket``; or a reason, a sentence.
    """

    title: str
    server: str
    ask: Ask
    before: str
    after: str


WHOLE = "The answer is sent whole."
STATUS, EVENT, ITEM, BROKEN_OFF, SOCKET, SESSION = "status", "event", "item", "broken off", "socket", "session"

# fmt: off
TABLE: Sequence[Row] = (
    Row("images", "two stages", ask_for_an_image, STATUS, WHOLE),
    Row("chat", "two stages", ask_in_a_chat, STATUS, WHOLE),
    Row("chat stream of two stages", "two stages", stream_a_chat, STATUS, "Its only part is the image."),
    Row("edits", "multi", ask_for_an_edit, STATUS, WHOLE),
    Row("speech", "speakers", ask_for_speech, STATUS, WHOLE),
    Row("speech batch", "speakers", ask_for_a_batch_of_speech, ITEM, WHOLE),
    Row("video", "video", ask_for_a_video, STATUS, WHOLE),
    Row("job", "video", ask_for_a_job, "200", "A job is read as a whole."),
    Row("content of a job", "video", ask_for_the_content_of_a_job, STATUS, "A job that fails has no content."),
    Row("chat stream", "multi", stream_a_chat, STATUS, EVENT),
    Row("edit stream", "multi", stream_an_edit, STATUS, EVENT),
    Row("completion stream", "multi", stream_a_completion, STATUS, EVENT),
    Row("response stream", "multi", stream_a_response, "Its first event is sent before the engine is asked.", EVENT),
    Row("speech events", "speakers", stream_events_of_speech, STATUS, EVENT),
    Row("raw speech", "speakers", stream_raw_speech, STATUS, BROKEN_OFF),
    Row("speech socket", "speakers", talk_of_speech, SOCKET, SOCKET),
    Row("video socket", "video", talk_of_a_video, SESSION, SESSION),
    Row("realtime socket", "multi", talk_in_real_time, SOCKET, SOCKET),
    Row("robot socket", "video", talk_to_a_robot, SOCKET, "An action is sent whole."),
)
# fmt: on
"""A ``session`` is for one generation, and ends with it; in a ``socket`` a client may correct what it asked for.

Not here: the video chat socket (a question needs a frame, and a model that sees; the chat stream that it reads is the
row `chat stream`), duplex sockets (no model of the rig is duplex: test_contract_duplex), and a stage that is dead by
SIGKILL (it takes a server with it: test_contract_lifecycle).
"""


def is_reason(told: str) -> bool:
    return told.endswith(".")
