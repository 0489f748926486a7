# SPDX-License-Identifier: Apache-2.0
"""Errors of WebSockets on the migrated server: the event, the close, and the sessions that go on (contract, 5).

`was` is what stock does with the same messages: the close code, None for a session that stays open, 1006 for a socket
that ends without a frame.
"""

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from calls import PNG, chat, edits
from contract import nothing_leaks
from conversation import Conversation, Refusal, converse, pack, spoken
from support import SIX, send

from vllm_omni_rig.server import Server

Start = Callable[..., Server]

SPEECH, VIDEO_CHAT, VIDEO, REALTIME, DUPLEX, ROBOT = (
    "/v1/audio/speech/stream",
    "/v1/video/chat/stream",
    "/v1/realtime/video",
    "/v1/realtime",
    "/v1/duplex",
    "/v1/realtime/robot/openpi",
)
NO_FRAME = 1006
CLIENT, SERVER, UNAVAILABLE = 1008, 1011, 1013
MAX_REASON_BYTES = 123
LONGEST_DEADLINE_S = 90.0
"""Longer than any deadline of a session: 60 s for the next message, and for a generation's progress."""

TOO_DEEP = "[" * 100_000
TOO_LONG = "1" * 10_000
FRAME = {"type": "video.frame", "data": base64.b64encode(PNG).decode()}
CONFIG = {"type": "session.config", "model": "tiny"}
START_VIDEO = {"type": "session.start", "model": "tiny", "prompt": "x"}
UPDATE = {"type": "session.update", "model": "tiny"}


def say(text: str, **config: Any) -> list[Any]:
    """One utterance."""
    return [CONFIG | config, {"type": "input.text", "text": text}, {"type": "input.done"}]


def interaction(**fields: Any) -> dict[str, Any]:
    return {"type": "session.interaction", "interaction": {"event_id": "mine", **fields}}


def array(**marker: Any) -> bytes:
    """An observation with an array marker, as msgpack."""
    return pack({"a": {"kind": "", "data": b"ab", **marker}})


@dataclass(frozen=True, slots=True)
class Told:
    """An error event: status, type and parameter, and the client's event that it answers."""

    code: int
    type: str
    param: str | None = None
    event_id: str | None = None


BAD = Told(400, "BadRequestError")
INTERNAL = Told(500, "InternalServerError")


def bad(param: str, event_id: str | None = None) -> Told:
    return Told(400, "BadRequestError", param, event_id)


def media(param: str) -> Told:
    return Told(422, "UnprocessableEntityError", param)


@dataclass(frozen=True, slots=True)
class Case:
    """Messages, what stock made of them, the errors now in order; ``ends`` is the close code, None if it goes on."""

    title: str
    server: str
    path: str
    sent: Sequence[Any]
    was: int | None
    told: Sequence[Told]
    ends: int | None = None
    covers: str = ""


# fmt: off
MISTAKES = (
    Case("speech: frames that are no message", "multi", SPEECH, ["no JSON", b"\xff", "[]", TOO_DEEP, TOO_LONG],
         NO_FRAME, [BAD] * 5, covers="Z09"),
    Case("speech: first message of another type", "multi", SPEECH, [{"type": "nope"}], NO_FRAME, [bad("type")]),
    Case("speech: configuration of wrong types", "multi", SPEECH, [CONFIG | {"speed": "fast"}],
         NO_FRAME, [bad("speed")], covers="W02"),
    Case("speech: unknown model", "multi", SPEECH, [CONFIG | {"model": "nope"}],
         NO_FRAME, [Told(404, "NotFoundError", "model")]),
    Case("speech: after the configuration", "multi", SPEECH,
         [CONFIG, b"\x00", "{", {"type": "nope"}, {"type": "input.text", "text": 5}],
         NO_FRAME, [BAD, BAD, bad("type"), bad("text")], covers="W02"),
    Case("speech: configuration within an utterance", "multi", SPEECH,
         [CONFIG, {"type": "input.text", "text": "a"}, CONFIG], None, [Told(409, "ConflictError")]),
    Case("speech: what only one utterance refuses", "multi", SPEECH,
         say("x", speaker_embedding=[1.0], ref_audio="data:audio/wav;base64,AAAA"), NO_FRAME, [BAD]),
    Case("speech: timestamps without an aligner", "multi", SPEECH, say("x", word_timestamps=True),
         None, [bad("word_timestamps")]),
    Case("speech: rejected by a guardrail", "multi", SPEECH, say("FAULT:guard"),
         None, [Told(400, "GuardrailViolationError")]),
    Case("video: frames that are no message", "video", VIDEO, ["no JSON", b"\xff", "[]", TOO_DEEP],
         NO_FRAME, [BAD] * 4, covers="Z09"),
    Case("video: first message of another type", "video", VIDEO, [{"type": "nope"}], NO_FRAME, [bad("type")]),
    Case("video: no prompt", "video", VIDEO, [{"type": "session.start"}], NO_FRAME, [bad("prompt")], covers="W02"),
    Case("video: unknown format", "video", VIDEO, [START_VIDEO | {"format": "zip"}], NO_FRAME, [bad("format")]),
    Case("video: unknown model", "video", VIDEO, [START_VIDEO | {"model": "nope"}],
         NO_FRAME, [Told(404, "NotFoundError")]),
    Case("video: while it is made", "video", VIDEO,
         [START_VIDEO | {"prompt": "FAULT:silence"}, {"type": "nope"}, "{", b"\x00", interaction(event={})],
         None, [bad("type"), BAD, BAD, bad("interaction.event", "mine")], covers="W02"),
    Case("video chat: frames that are no message", "multi", VIDEO_CHAT, ["no JSON", b"\xff", "[]", TOO_DEEP],
         NO_FRAME, [BAD, BAD, bad("type"), BAD], covers="Z09"),
    Case("video chat: configuration of wrong types", "multi", VIDEO_CHAT, [CONFIG | {"max_frames": "x"}],
         NO_FRAME, [bad("max_frames")], covers="W02"),
    Case("video chat: after the configuration", "multi", VIDEO_CHAT, [CONFIG, "{", b"\x00", {"type": "nope"}],
         NO_FRAME, [BAD, BAD, bad("type")], covers="Z09"),
    Case("video chat: fields of wrong types", "multi", VIDEO_CHAT,
         [CONFIG, {"type": "video.query", "text": []}, {"type": "video.frame", "data": 7}],
         NO_FRAME, [bad("text"), bad("data")], covers="W02"),
    Case("video chat: media that cannot be read", "multi", VIDEO_CHAT,
         [CONFIG, {"type": "video.frame", "data": "@"}, {"type": "audio.chunk", "data": "abc"},
          {"type": "video.query", "text": "x", "audio_data": "abc"}],
         None, [media("data"), media("data"), media("audio_data")]),
    Case("video chat: question without a frame", "multi", VIDEO_CHAT, [CONFIG, {"type": "video.query", "text": "x"}],
         None, [BAD]),
    Case("video chat: a model that sees nothing", "multi", VIDEO_CHAT,
         [CONFIG, FRAME, {"type": "video.query", "text": "x"}], None, [BAD]),
    Case("video chat: sampling parameters", "multi", VIDEO_CHAT,
         [CONFIG | {"sampling_params_list": [{"temperature": -3}]}, FRAME, {"type": "video.query", "text": "x"}],
         None, [bad("sampling_params_list")]),
    Case("realtime: frames that are no event", "multi", REALTIME, ["no JSON", "[]", TOO_DEEP, b"\xff"],
         NO_FRAME, [BAD] * 4, covers="Z09"),
    Case("realtime: unknown event", "multi", REALTIME, [{"type": "response.create", "event_id": "mine"}],
         None, [bad("type", "mine")], covers="W02"),
    Case("realtime: no model", "multi", REALTIME, [{"type": "session.update"}], None, [bad("model")]),
    Case("realtime: model of a wrong type", "multi", REALTIME, [{"type": "session.update", "model": ["x"]}],
         None, [bad("model")], covers="W02"),
    Case("realtime: unknown model", "multi", REALTIME, [UPDATE | {"model": "nope"}],
         None, [Told(404, "NotFoundError", "model")]),
    Case("realtime: no audio", "multi", REALTIME, [{"type": "input_audio_buffer.append"}], None, [bad("audio")]),
    Case("realtime: audio that is none", "multi", REALTIME, [{"type": "input_audio_buffer.append", "audio": "x"}],
         None, [media("audio")]),
    Case("realtime: commit before a model", "multi", REALTIME, [{"type": "input_audio_buffer.commit"}],
         None, [Told(409, "ConflictError")]),
    Case("robot: frames that are no payload", "video", ROBOT, [b"\xff", "text", pack([1])], None, [BAD] * 3,
         covers="Z09"),
    Case("robot: arrays that are none", "video", ROBOT,
         [array(nd=True, type="O"), array(nd=True, type="i1"), array(nd=True, type="nope", shape=[2])],
         None, [bad("type"), bad("shape"), BAD], covers="W02"),
    Case("robot: rejected by a guardrail", "video", ROBOT, [pack({"prompt": "FAULT:guard"})],
         None, [Told(400, "GuardrailViolationError")]),
)
"""What a client can correct: each is answered, and the session goes on."""

ENDS = (
    Case("speech: failed stage", "multi", SPEECH, say("FAULT:value"), None, [INTERNAL], SERVER, "W04 W10"),
    Case("speech: dead stage", "multi", SPEECH, say("FAULT:deadstage"), None, [INTERNAL], SERVER, "W04"),
    Case("speech: no audio", "multi", SPEECH, say("x"), None, [INTERNAL], SERVER, "W06"),
    Case("speech: failed stage, streamed", "multi", SPEECH,
         say("FAULT:value", stream_audio=True, response_format="pcm"), None, [INTERNAL], SERVER, "W06"),
    Case("video: failed stage", "video", VIDEO, [START_VIDEO | {"prompt": "FAULT:value"}],
         NO_FRAME, [INTERNAL], SERVER, "W08 W10"),
    Case("video: rejected by a guardrail", "video", VIDEO, [START_VIDEO | {"prompt": "FAULT:guard"}],
         NO_FRAME, [Told(400, "GuardrailViolationError")], CLIENT),
    Case("video: raised in the API process", "video", VIDEO, [START_VIDEO | {"prompt": "FAULT:raise=ValueError@front"}],
         NO_FRAME, [INTERNAL], SERVER, "W08"),
    Case("video: dead stage", "video", VIDEO, [START_VIDEO | {"prompt": "FAULT:deadstage"}],
         NO_FRAME, [INTERNAL], SERVER),
    Case("video: no video", "video", VIDEO, [START_VIDEO | {"prompt": "FAULT:output=none"}],
         NO_FRAME, [INTERNAL], SERVER),
    Case("video: parameters that a stream has not", "video", VIDEO,
         [START_VIDEO | {"extra_params": {"preencode_mp4": True}}], NO_FRAME, [bad("extra_params")], CLIENT),
    Case("video: reference that is no image", "video", VIDEO,
         [START_VIDEO | {"image_reference": {"image_url": "data:image/png;base64,AAAA"}}],
         NO_FRAME, [media("image_reference")], CLIENT),
    Case("video: refused interaction", "video", VIDEO,
         [START_VIDEO | {"prompt": "FAULT:silence"}, interaction(event={"prompt": "y"})], None, [INTERNAL], SERVER),
    Case("realtime: failed turn", "multi", REALTIME,
         [UPDATE, {"type": "input_audio_buffer.append", "audio": spoken("FAULT:value")},
          {"type": "input_audio_buffer.commit"}],
         None, [INTERNAL], SERVER, "W04"),
    Case("robot: failed stage", "video", ROBOT, [pack({"prompt": "FAULT:value"})], None, [INTERNAL], SERVER),
)
"""Everything else ends the session: the event, then a close frame with the catalogue's code."""
# fmt: on

REFUSED = [
    ("video", SPEECH),
    ("video", VIDEO_CHAT),
    ("video", REALTIME),
    ("multi", VIDEO),
    ("multi", REALTIME + "?duplex=1"),
    ("multi", DUPLEX),
    ("multi", ROBOT),
]


async def talk(server: Server, case: Case, errors: int | None) -> Conversation:
    talked = await converse(server.url + case.path, case.sent, packed=case.path == ROBOT, errors=errors)
    assert isinstance(talked, Conversation), talked
    return talked


def told(event: dict[str, Any]) -> Told:
    """What an error event tells, after it was held against the rules for all of them."""
    error = event["error"]
    assert set(error) - {"event_id"} == SIX, error
    assert error["message"].strip()
    assert error["request_id"]
    return Told(error["code"], error["type"], error["param"], error.get("event_id"))


def ids(case: Case) -> str:
    return f"{case.title} {case.covers}".strip()


@pytest.mark.parametrize("case", [*MISTAKES, *ENDS], ids=ids)
async def test_stock(scripted: Start, case: Case) -> None:
    """No event of stock's has the canonical object, and none of its sockets is closed as the contract says."""
    talked = await talk(scripted(case.server), case, None if case.was else 0)
    assert talked.code == case.was
    assert not [event for event in talked.errors if isinstance(event.get("error"), dict)]


@pytest.mark.parametrize("case", MISTAKES, ids=ids)
async def test_a_mistake_is_answered_and_the_session_goes_on(scripted: Start, case: Case) -> None:
    talked = await talk(scripted(case.server, "migrated"), case, len(case.told))
    assert [told(event) for event in talked.errors] == list(case.told)
    assert talked.code is None
    nothing_leaks(talked.text)


@pytest.mark.parametrize("case", ENDS, ids=ids)
async def test_any_other_error_ends_the_session_with_its_event_and_its_code(scripted: Start, case: Case) -> None:
    talked = await talk(scripted(case.server, "migrated"), case, None)
    assert [told(event) for event in talked.errors] == list(case.told)
    assert talked.received[-1] == talked.errors[-1], "something follows the error"
    assert talked.code == case.ends
    assert 0 < len(talked.reason.encode()) <= MAX_REASON_BYTES
    assert talked.errors[-1]["error"]["message"].startswith(talked.reason)
    nothing_leaks(talked.text)


@pytest.mark.parametrize(("kind", "path"), REFUSED)
async def test_what_this_server_will_never_have_is_an_http_answer(scripted: Start, kind: str, path: str) -> None:
    """Stock accepts the session, to say so in it."""
    stock, migrated = [await converse(scripted(kind, variant).url + path, []) for variant in ("stock", "migrated")]
    assert isinstance(stock, Conversation)
    assert stock.types == ["error"]
    assert isinstance(migrated, Refusal)
    assert (migrated.status, migrated.headers["x-should-retry"]) == (503, "false")
    assert told(migrated.body) == Told(503, "ServiceUnavailableError")
    assert migrated.body["error"]["request_id"] == migrated.headers["x-request-id"]


async def test_a_corrected_message_gets_the_session_that_was_asked_for(scripted: Start) -> None:
    sent = [{"type": "nope"}, START_VIDEO | {"format": "zip"}, START_VIDEO]
    talked = await converse(scripted("video", "migrated").url + VIDEO, sent)
    assert isinstance(talked, Conversation)
    assert talked.types[:3] == ["error", "error", "video.start"]
    assert talked.types[-1] == "session.done"


async def test_an_utterance_that_the_client_can_correct_is_over_and_says_so(scripted: Start) -> None:
    talked = await converse(scripted("multi", "migrated").url + SPEECH, say("FAULT:guard"), errors=1)
    assert isinstance(talked, Conversation)
    assert talked.types == ["audio.start", "error", "audio.done", "session.done"]
    assert talked.received[2]["error"] is True


async def test_an_interaction_answers_with_the_id_of_the_client_where_stock_had_it(scripted: Start) -> None:
    sent = [START_VIDEO | {"prompt": "FAULT:silence"}, interaction(event=5)]
    talked = await converse(scripted("video", "migrated").url + VIDEO, sent, errors=1)
    assert isinstance(talked, Conversation)
    (error,) = talked.errors
    assert (error["event_id"], error["error"]["event_id"]) == ("mine", "mine")
    assert error["error"]["request_id"] == talked.received[0]["request_id"]


async def test_a_deadline_ends_the_session(scripted: Start) -> None:
    """Of a first message, of the next one, and of a generation that makes no progress: all at once, for a minute."""
    multi, video = scripted("multi", "migrated").url, scripted("video", "migrated").url
    silent: Sequence[tuple[str, list[Any], Told, int]] = (
        (multi + SPEECH, [], BAD, CLIENT),
        (multi + SPEECH, [CONFIG], BAD, CLIENT),
        (multi + VIDEO_CHAT, [], BAD, CLIENT),
        (multi + VIDEO_CHAT, [CONFIG], BAD, CLIENT),
        (video + VIDEO, [], BAD, CLIENT),
        (video + VIDEO, [START_VIDEO | {"prompt": "FAULT:silence"}], Told(504, "GatewayTimeoutError"), SERVER),
    )
    talks = [converse(url, sent, deadline_s=LONGEST_DEADLINE_S) for url, sent, _, _ in silent]
    for talked, (url, _, expected, code) in zip(await asyncio.gather(*talks), silent, strict=True):
        assert isinstance(talked, Conversation)
        assert (told(talked.received[-1]), talked.code) == (expected, code), url


@pytest.mark.parametrize("fault", ["FAULT:value", "FAULT:guard", "FAULT:error=404.NotFoundError", "FAULT:deadstage"])
async def test_the_same_failure_is_the_same_error_on_every_transport(scripted: Start, fault: str) -> None:
    url = scripted("multi", "migrated").url
    talked = await converse(url + SPEECH, say(fault), errors=1)
    assert isinstance(talked, Conversation)
    calls = {
        "chat": chat(fault),
        "chat stream": chat(fault, stream=True),
        "edit stream": edits(fault, PNG, stream="true"),
    }
    answers = {name: send(url, call).error for name, call in calls.items()} | {"speech": talked.errors[0]["error"]}
    seen = {name: {key: error[key] for key in SIX - {"request_id"}} for name, error in answers.items()}
    assert len({json.dumps(error, sort_keys=True) for error in seen.values()}) == 1, seen


async def test_a_session_that_is_stopped_is_done_and_no_error(scripted: Start) -> None:
    sent = [START_VIDEO | {"prompt": "FAULT:silence"}, {"type": "session.stop"}]
    talked = await converse(scripted("video", "migrated").url + VIDEO, sent)
    assert isinstance(talked, Conversation)
    assert (talked.types, talked.received[-1]["stopped"]) == (["video.start", "session.done"], True)


async def test_an_id_that_is_no_id_is_not_echoed(scripted: Start) -> None:
    sent = [
        {"type": "nope", "event_id": "x" * 129},
        {"type": "nope", "event_id": 5},
        {"type": "nope", "event_id": "\n"},
    ]
    talked = await converse(scripted("multi", "migrated").url + REALTIME, sent, errors=len(sent))
    assert isinstance(talked, Conversation)
    assert [told(event).event_id for event in talked.errors] == [None, None, None]
