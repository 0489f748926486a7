# SPDX-License-Identifier: Apache-2.0
"""Speech, its batches and streams, voices, and generated audio: stock and migrated.

Two kinds of servers are asked (speaking.py): ``speakers`` that speak, and a ``diffusion``-only server.
"""

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import httpx
import openai
import pytest
import speaking
from calls import TRUNCATED, chat, data_url, delete, raw
from cases import Case, now, was
from conftest import MIGRATED
from contract import client_error, nothing_leaks, verify, verify_client
from conversation import Conversation, converse
from failures_table import MIGRATED as EXPECTED
from failures_table import NAMES
from seam_cases import FIRST_STAGE, SPEAKING, SeamCase, part, untyped
from speaking import batch, events, generate, raw_stream, speech, upload, wav
from support import Answer, Answers, Call, answers_of, get, post, seen, send, send_all, shape
from test_contract_media import closed_port, media  # noqa: F401

from vllm_omni_errors.media import TRANSIENT_MEDIA
from vllm_omni_rig.server import Server

DEADLINE_S = 10.0
FAILED = now(500, "InternalServerError")
CLONED = {"task_type": "Base", "ref_audio": "data:audio/wav;base64,AAAA", "ref_text": "x"}
"""What makes an item of a batch one that the model takes."""


@pytest.fixture(scope="module")
def diffusion(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Migrated."""
    with speaking.running("diffusion", MIGRATED, tmp_path_factory.mktemp("diffusion")) as server:
        yield server


# ---- wrong requests --------------------------------------------------------------------------------------------------

BROKEN_OFF = was(0)


def embedding(text: str, name: str = "new", **fields: Any) -> Call:
    return upload(name, None, speaker_embedding=text, **fields)


# fmt: off
WRONG: Sequence[Case] = (
    Case("speech: no audio", speech("SILENT"), was(400, "BadRequestError"), FAILED),
    Case("speech: out of memory", speech("FAULT:raise=OutOfMemoryError@front"),
         was(500, "InternalServerError"), FAILED, "M05"),
    Case("speech: raw error", speech("FAULT:raise=ValueError@front"), was(400, "BadRequestError"), FAILED, "M05"),
    Case("speech: unknown model", speech("x", model="nope"),
         was(404, "NotFoundError", "model"), now(404, "NotFoundError", "model"), "M01"),
    Case("speech: timestamps without an aligner", speech("x", word_timestamps=True),
         was(400, "BadRequestError"), now(400, "BadRequestError", "word_timestamps")),
    Case("speech: sample rate", speech("x", sample_rate=8000),
         was(400, "BadRequestError"), now(400, "BadRequestError", "sample_rate")),
    Case("speech: reference that is a number", speech("x", ref_audio=3),
         was(400, "BadRequestError"), now(400, "BadRequestError", "ref_audio"), "M20"),
    Case("speech: reference of numbers", speech("x", ref_audio=[1]),
         was(400, "BadRequestError"), now(400, "BadRequestError", "ref_audio"), "M20"),
    Case("speech: extra_params no object", speech("x", extra_params=[1]),
         was(400, "Bad Request", "body.extra_params"), now(400, "Bad Request", "body.extra_params")),
    Case("speech: body not UTF-8", raw("/v1/audio/speech", b"\xff\xfe"),
         was(400, "Bad Request", "body.0"), now(400, "Bad Request", "body"), "Z07"),
    Case("events: no audio", events("SILENT"), was(200), FAILED, "S09"),
    Case("events: a stage fails", events("FAULT:value"), was(200), FAILED, "S09"),
    Case("events: guardrail", events("FAULT:guard"), was(200), now(400, "GuardrailViolationError"), "S09"),
    Case("events: unknown model", events("x", model="nope"),
         was(404, "NotFoundError", "model"), now(404, "NotFoundError", "model"), "M01"),
    Case("events: other speed", events("x", speed=2.0),
         was(400, "BadRequestError"), now(400, "BadRequestError", "speed")),
    Case("events: timestamps", events("x", word_timestamps=True),
         was(400, "BadRequestError"), now(400, "BadRequestError", "word_timestamps")),
    Case("events: a format that is not streamed", events("x", response_format="mp3"),
         was(400, "Bad Request", "body"), now(400, "Bad Request", "body")),
    Case("raw: no audio", raw_stream("SILENT"), was(200), FAILED, "S09"),
    Case("raw: a stage fails", raw_stream("FAULT:value"), BROKEN_OFF, FAILED, "S09"),
    Case("raw: guardrail", raw_stream("FAULT:guard"), BROKEN_OFF, now(400, "GuardrailViolationError"), "S09"),
    Case("raw: dead stage", raw_stream("FAULT:deadstage"), BROKEN_OFF, FAILED, "S09"),
    Case("raw: wav, a stage fails", raw_stream("FAULT:value", response_format="wav"), BROKEN_OFF, FAILED, "S09"),
    Case("raw: other speed", raw_stream("x", speed=2.0),
         was(400, "BadRequestError"), now(400, "BadRequestError", "speed")),
    Case("batch: unknown model", batch("x", model="nope"),
         was(404, "NotFoundError", "model"), now(404, "NotFoundError", "model"), "M01"),
    Case("batch: no item", batch(), was(400, "Bad Request", "body.items"), now(400, "Bad Request", "body.items")),
    Case("batch: too many items", batch(*["x"] * 33), was(400, "Bad Request"), now(400, "BadRequestError", "items")),
    Case("batch: every item wrong", batch("", "x"), was(200), now(400, "BadRequestError", "items")),
    Case("batch: every item fails", batch("FAULT:guard", "FAULT:value", **CLONED),
         was(200), now(400, "GuardrailViolationError")),
    Case("batch: every item fails otherwise", batch("FAULT:value", "FAULT:guard", **CLONED), was(200), FAILED),
    Case("batch: no audio", batch("SILENT", **CLONED), was(200), FAILED),
    Case("voices: neither sample nor embedding", upload("new", None),
         was(400, "BadRequestError"), now(400, "BadRequestError", "audio_sample")),
    Case("voices: sample and embedding", upload("new", wav(2), speaker_embedding="[1]"),
         was(400, "BadRequestError"), now(400, "BadRequestError", "audio_sample")),
    Case("voices: no audio", upload("new", b"no audio"),
         was(400, "BadRequestError"), now(422, "UnprocessableEntityError", "audio_sample"), "M15"),
    Case("voices: empty file", upload("new", b""),
         was(400, "BadRequestError"), now(422, "UnprocessableEntityError", "audio_sample"), "M15"),
    Case("voices: over 10 MB", upload("new", bytes(10 * 2**20 + 1)),
         was(400, "BadRequestError"), now(422, "UnprocessableEntityError", "audio_sample"), "M15"),
    Case("voices: too short", upload("new", wav(0.1)),
         was(400, "BadRequestError"), now(400, "BadRequestError", "audio_sample")),
    Case("voices: too long", upload("new", wav(31)),
         was(400, "BadRequestError"), now(400, "BadRequestError", "audio_sample")),
    Case("voices: type of file", upload("new", wav(2), "text/plain"),
         was(400, "BadRequestError"), now(400, "BadRequestError", "audio_sample")),
    Case("voices: a path for a name", upload("a/b", wav(2)),
         was(400, "BadRequestError"), now(400, "BadRequestError", "name")),
    Case("voices: name longer than a file's", upload("n" * 300, wav(2)),
         was(400, "BadRequestError"), now(400, "BadRequestError", "name")),
    Case("voices: name of an embedding longer than a file's", embedding("[1.0]", "n" * 300),
         was(500, "InternalServerError"), now(400, "BadRequestError", "name")),
    Case("voices: embedding not JSON", embedding("x"),
         was(400, "BadRequestError"), now(400, "BadRequestError", "speaker_embedding")),
    Case("voices: embedding nested too deep", embedding("[" * 100_000),
         was(500, "InternalServerError"), now(400, "BadRequestError", "speaker_embedding")),
    Case("voices: embedding of a number too large", embedding(f"[1{'0' * 400}]"),
         was(500, "InternalServerError"), now(400, "BadRequestError", "speaker_embedding")),
    Case("voices: embedding not finite", embedding("[NaN]"),
         was(400, "BadRequestError"), now(400, "BadRequestError", "speaker_embedding")),
    Case("voices: embedding empty", embedding("[]"),
         was(400, "BadRequestError"), now(400, "BadRequestError", "speaker_embedding")),
    Case("voices: embedding too long", embedding(str([1.0] * 4097)),
         was(400, "BadRequestError"), now(400, "BadRequestError", "speaker_embedding")),
    Case("voices: embedding of texts", embedding('["x"]'),
         was(400, "BadRequestError"), now(400, "BadRequestError", "speaker_embedding")),
    Case("voices: delete an unknown voice", delete("/v1/audio/voices/ghost"),
         was(404, "NotFoundError"), now(404, "NotFoundError"), "M02"),
    Case("voices: consent missing", post("/v1/audio/voices", {}),
         was(400, "Bad Request", "body.consent"), now(400, "Bad Request", "body.consent")),
    Case("chat: a model that fails at its media", untyped("image_url", "FAULT"), was(400, "BadRequestError"), FAILED),
    Case("chat: image broken", untyped("image_url", data_url(TRUNCATED)),
         was(400, "BadRequestError"), now(422, "UnprocessableEntityError", "image_url"), "M15"),
    Case("chat: image for a later stage broken", part("image_url", data_url(TRUNCATED)),
         was(400, "BadRequestError"), now(422, "UnprocessableEntityError", "image_url"), "M15"),
    Case("audio: not served by this pipeline", generate("x"), was(400, "BadRequestError"), FAILED),
)
"""On the servers that speak."""

INFINITE = raw("/v1/audio/speech", b'{"model":"tiny","input":"x","extra_params":{"num_inference_steps":Infinity}}')

WRONG_DIFFUSION: Sequence[Case] = (
    Case("speech: unknown model", speech("x", model="nope"),
         was(400, "BadRequestError"), now(404, "NotFoundError"), "M01"),
    Case("speech: unknown voice", speech("x", voice="nobody"), was(400, "BadRequestError"), now(404, "NotFoundError")),
    Case("speech: empty", speech(""), was(400, "BadRequestError"), now(400, "BadRequestError", "input")),
    Case("speech: no input", post("/v1/audio/speech", {}),
         was(400, "Bad Request", "body.input"), now(400, "Bad Request", "body.input")),
    Case("speech: unknown format", speech("x", response_format="zip"),
         was(400, "Bad Request", "body.response_format"), now(400, "Bad Request", "body.response_format")),
    Case("speech: no audio", speech("x"), was(400, "BadRequestError"), FAILED),
    Case("speech: no output", speech("FAULT:output=none"), was(400, "BadRequestError"), FAILED),
    Case("speech: raw error", speech("FAULT:raise=ValueError@front"), was(400, "BadRequestError"), FAILED),
    Case("speech: a stage fails", speech("FAULT:value"), was(500, "server_error"), FAILED),
    Case("speech: out of memory", speech("FAULT:raise=OutOfMemoryError@front"),
         was(500, "server_error"), FAILED, "M05"),
    Case("speech: steps not a number", speech("x", extra_params={"num_inference_steps": "x"}),
         was(400, "BadRequestError"), now(400, "BadRequestError", "extra_params.num_inference_steps")),
    Case("speech: infinite steps", INFINITE,
         was(500, "server_error"), now(400, "BadRequestError", "extra_params.num_inference_steps")),
    Case("speech: guidance not a number", speech("x", extra_params={"guidance_scale": []}),
         was(400, "BadRequestError"), now(400, "BadRequestError", "extra_params.guidance_scale")),
    Case("speech: reference that is no URI", speech("x", ref_audio="/etc/passwd"),
         was(400, "BadRequestError"), now(400, "BadRequestError", "ref_audio")),
    Case("speech: reference of two", speech("x", ref_audio=["https://a", "https://b"]),
         was(400, "BadRequestError"), now(400, "BadRequestError", "ref_audio")),
    Case("batch: not served", batch("x"), was(400, "Bad Request"), now(503, "ServiceUnavailableError"), permanent=True),
    Case("audio: no audio", generate("x"), was(400, "BadRequestError"), FAILED),
    Case("audio: no output", generate("FAULT:output=none"), was(400, "BadRequestError"), FAILED),
    Case("audio: a stage fails", generate("FAULT:value"), was(400, "BadRequestError"), FAILED),
    Case("audio: dead stage", generate("FAULT:deadstage"), was(400, "BadRequestError"), FAILED),
    Case("audio: out of memory", generate("FAULT:raise=OutOfMemoryError@front"),
         was(400, "BadRequestError"), FAILED, "M05"),
    Case("audio: unknown model", generate("x", model="nope"),
         was(500, "Internal Server Error"), now(404, "NotFoundError"), "M01"),
    Case("audio: no input", post("/v1/audio/generate", {"model": "tiny"}),
         was(400, "Bad Request", "body.input"), now(400, "Bad Request", "body.input")),
    Case("audio: seed over 2**63-1", generate("x", seed=2**63),
         was(400, "Bad Request", "body.seed"), now(400, "Bad Request", "body.seed"), "M11"),
)
"""On a server with one diffusion stage."""
# fmt: on

TABLES: Mapping[str, Sequence[Case]] = {"speakers": WRONG, "diffusion": WRONG_DIFFUSION}
ROWS = [(kind, case) for kind, cases in TABLES.items() for case in cases]

LATE = ("FAULT:value", "FAULT:guard", "FAULT:error=404.NotFoundError", "FAULT:deadstage")
"""What happens after the first part of a stream."""

PARTLY = batch("x", "FAULT:guard", "FAULT:value", "FAULT:raise=KeyError@front", **CLONED)

SUCCESSES: Mapping[str, Call] = {
    "speech": speech("x"),
    "speech: flac": speech("x", response_format="flac"),
    "events": events("FAULT:part x"),
    "events: one part": events("x", stream=True, stream_format=None),
    "raw": raw_stream("FAULT:part x"),
    "raw: wav": raw_stream("x", response_format="wav"),
    "batch": batch("x", "y", **CLONED),
    "voices": get("/v1/audio/voices"),
}

FULL: Sequence[Call] = (upload("one", wav(2)), upload("two", wav(2)), upload("three", wav(2)))
"""The last is one voice more than the server stores."""

OF_STOCK: Mapping[str, Mapping[str, Call]] = {
    "speakers": {
        **{case.title: case.call for case in WRONG},
        **{fault: events(f"FAULT:part {fault}") for fault in LATE},
        **SUCCESSES,
        "raw: late": raw_stream("FAULT:part FAULT:value"),
        "batch: partly": PARTLY,
    },
    "diffusion": {case.title: case.call for case in WRONG_DIFFUSION},
}
"""What stock is asked, by kind of server and name."""


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Answer]]:
    """What it answers; one server runs at a time."""
    found = {}
    for kind, calls in OF_STOCK.items():
        with speaking.running(kind, None, tmp_path_factory.mktemp("stock")) as server:
            found[kind] = dict(send_all(server.url, calls).by_name)
            if kind == "speakers":
                stored, _, full = (send(server.url, call) for call in FULL)
                deleted = send(server.url, delete("/v1/audio/voices/one"))
                found[kind] |= {"voices: stored": stored, "voices: full": full, "voices: deleted": deleted}
    return found


@pytest.fixture(scope="module")
def migrated(speakers: Server, diffusion: Server) -> Mapping[str, Server]:
    return {"speakers": speakers, "diffusion": diffusion}


@pytest.fixture(scope="module")
def answers(migrated: Mapping[str, Server]) -> Mapping[str, Answers]:
    """What the migrated server answers to its table, by kind of server."""
    return {kind: answers_of(migrated[kind].url, cases) for kind, cases in TABLES.items()}


@pytest.mark.parametrize(("kind", "case"), ROWS, ids=str)
def test_stock_answers_a_wrong_request_as_it_does(
    stock: Mapping[str, Mapping[str, Answer]], kind: str, case: Case
) -> None:
    assert seen(stock[kind][case.title]) == case.was


@pytest.mark.parametrize(("kind", "case"), ROWS, ids=str)
def test_wrong_request(answers: Mapping[str, Answers], kind: str, case: Case) -> None:
    verify(answers[kind].by_name[case.title], case.now, permanent=case.permanent)


@pytest.mark.parametrize("kind", TABLES)
def test_wrong_requests_are_counted_by_their_status(answers: Mapping[str, Answers], kind: str) -> None:
    found = answers[kind]
    assert found.counted == found.expected({case.title: case.now.counted for case in TABLES[kind]})


CREATED: Mapping[str, tuple[dict[str, Any], Any]] = {
    # how the official client asks → its arguments, the error
    "plain": ({"input": "FAULT:guard"}, now(400, "GuardrailViolationError")),
    "events": ({"input": "FAULT:value", "stream_format": "sse", "response_format": "pcm"}, FAILED),
    "raw": ({"input": "FAULT:guard", "stream_format": "audio", "response_format": "pcm"},
            now(400, "GuardrailViolationError")),
    "unknown model": ({"input": "x", "model": "nope"}, now(404, "NotFoundError", "model")),
}  # fmt: skip


@pytest.mark.parametrize("name", CREATED)
def test_the_official_client_raises_what_speech_create_failed_with(speakers: Server, name: str) -> None:
    arguments, expected = CREATED[name]
    client = openai.OpenAI(base_url=f"{speakers.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.APIStatusError) as raised:
        client.audio.speech.create(**{"model": "tiny", "voice": "default", **arguments})
    verify_client(raised.value, expected)


# ---- failures in the engine ------------------------------------------------------------------------------------------

ROUTES: Mapping[str, tuple[str, Callable[[str], Call]]] = {
    "speech": ("speakers", speech),
    "events": ("speakers", events),
    "raw": ("speakers", raw_stream),
    "batch": ("speakers", lambda text: batch(text, **CLONED)),
    "diffusion speech": ("diffusion", speech),
    "audio": ("diffusion", generate),
}


@pytest.fixture(scope="module")
def front(migrated: Mapping[str, Server]) -> Mapping[str, Answers]:
    return {
        route: send_all(migrated[kind].url, {name: make(f"FAULT:raise={name}@front") for name in NAMES})
        for route, (kind, make) in ROUTES.items()
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("route", ROUTES)
def test_an_exception_at_the_front_has_its_own_status_and_type(
    front: Mapping[str, Answers], route: str, name: str
) -> None:
    """M01, M05: the same table as on images and chat."""
    verify(front[route].by_name[name], EXPECTED[name])


@pytest.mark.parametrize("route", ROUTES)
def test_every_exception_is_counted_by_its_status(front: Mapping[str, Answers], route: str) -> None:
    classes = {name: row.counted for name, row in EXPECTED.items()}
    assert front[route].counted == front[route].expected(classes)


MESSAGES = {
    "FAULT:error=404.NotFoundError": (404, "NotFoundError"),
    "FAULT:error=409.ConflictError": (409, "ConflictError"),
    "FAULT:error=503": (500, "InternalServerError"),
    "FAULT:outputerror=400": (400, "BadRequestError"),
    "FAULT:outputerror=504": (500, "InternalServerError"),
    "FAULT:deadstage": (500, "InternalServerError"),
}
"""What the orchestrator reports; only client errors arrive whole, until records carry the others."""


@pytest.mark.parametrize("route", ROUTES)
def test_what_the_orchestrator_reports(migrated: Mapping[str, Server], route: str) -> None:
    kind, make = ROUTES[route]
    found = send_all(migrated[kind].url, {fault: make(fault) for fault in MESSAGES})
    for fault, (status, error_type) in MESSAGES.items():
        verify(found.by_name[fault], now(status, error_type))


# ---- streams that have begun -----------------------------------------------------------------------------------------


def names(answer: Answer) -> list[str]:
    """Those of the events of a stream."""
    return [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]


@pytest.mark.parametrize("fault", LATE)
def test_events_end_in_the_error_that_an_answer_would_have_been(speakers: Server, fault: str) -> None:
    """S04, S13: one event, under its own name, with the same fields as the HTTP error of the same failure."""
    answer = send(speakers.url, events(f"FAULT:part {fault}"))
    last = answer.events()[-1]
    whole = send(speakers.url, speech(fault)).error
    assert (answer.status, answer.counted) == (200, ("2xx",))
    assert names(answer) == ["speech.audio.delta", "speech.audio.error"]
    assert (last.keys(), last["type"], shape(last)) == ({"type", "error"}, "error", "six")
    assert {**last["error"], "request_id": ""} == {**whole, "request_id": ""}
    assert last["error"]["request_id"] == answer.headers["x-request-id"]
    nothing_leaks(str(last))


@pytest.mark.parametrize("fault", LATE)
def test_stock_makes_a_server_error_of_every_failure(stock: Mapping[str, Mapping[str, Answer]], fault: str) -> None:
    answer = stock["speakers"][fault]
    last = answer.events()[-1]
    assert names(answer) == ["speech.audio.delta", "speech.audio.error"]
    assert (last["type"], last["error"]["type"], last["error"]["code"]) == ("speech.audio.error", "server_error", 500)


def test_the_official_client_raises_at_the_last_event(speakers: Server) -> None:
    """S04: an error of the API with its fields, not a broken connection."""
    client = openai.OpenAI(base_url=speakers.url, api_key="none", max_retries=0)
    call = events("FAULT:part FAULT:guard")
    stream = client.post(call.path, body=call.json, stream=True, stream_cls=openai.Stream[object], cast_to=object)
    assert next(stream)
    with pytest.raises(openai.APIError) as raised:
        next(stream)
    assert not isinstance(raised.value, openai.APIConnectionError)
    assert (raised.value.type, raised.value.code) == ("GuardrailViolationError", "400")


def errors_counted(url: str, transport: str) -> float:
    """The sum of `omni_errors_total` of a transport."""
    lines = httpx.get(f"{url}/metrics", timeout=DEADLINE_S).text.splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("omni_errors_total{") and f'transport="{transport}"' in line and "cancelled" not in line
    )


def test_an_event_counts_its_error(speakers: Server) -> None:
    before = errors_counted(speakers.url, "sse")
    send(speakers.url, events("FAULT:part FAULT:value"))
    assert errors_counted(speakers.url, "sse") == before + 1


@pytest.mark.parametrize("form", ["pcm", "wav"])
def test_raw_audio_that_fails_is_broken_off(speakers: Server, form: str) -> None:
    """A truncated body is never taken for a whole one."""
    client = openai.OpenAI(base_url=f"{speakers.url}/v1", api_key="none", max_retries=0)
    asked: dict[str, Any] = {"stream_format": "audio", "response_format": form, "input": "FAULT:part FAULT:value"}
    with client.audio.speech.with_streaming_response.create(model="tiny", voice="default", **asked) as answer:
        parts = answer.iter_bytes()
        assert next(parts)
        with pytest.raises(Exception, match="incomplete chunked read"):  # of the client's own copy of httpx
            list(parts)


def test_stock_breaks_raw_audio_off_too(stock: Mapping[str, Mapping[str, Answer]]) -> None:
    assert stock["speakers"]["raw: late"].status == 0


def test_raw_audio_that_is_broken_off_is_counted_and_logged_once(speakers: Server) -> None:
    before, logged = errors_counted(speakers.url, "raw"), len(speakers.log.read_text())
    assert send_all(speakers.url, {"late": raw_stream("FAULT:part FAULT:guard")}).by_name["late"].status == 0
    assert errors_counted(speakers.url, "raw") == before + 1
    text = speakers.log.read_text()[logged:]
    assert text.count("POST /v1/audio/speech: 400 GuardrailViolationError") == 1
    assert "InternalServerError" not in text


def test_a_client_that_leaves_before_the_first_byte_ends_its_request(speakers: Server) -> None:
    logged = len(speakers.log.read_text())
    with pytest.raises(httpx.ReadTimeout):
        send(speakers.url, raw_stream("FAULT:silence"), deadline_s=1.0)
    end = time.monotonic() + DEADLINE_S
    while "cancelled by client" not in speakers.log.read_text()[logged:]:
        assert time.monotonic() < end, "the request goes on"
        time.sleep(0.1)
    assert send(speakers.url, speech("x")).status == 200


# ---- batches ---------------------------------------------------------------------------------------------------------


def test_a_failed_item_of_a_batch_is_an_error_object(speakers: Server) -> None:
    answer = send(speakers.url, PARTLY)
    good, *failed = answer.body["results"]
    assert (answer.status, answer.counted) == (200, ("2xx",))
    assert (answer.body["total"], answer.body["succeeded"], answer.body["failed"]) == (4, 1, 3)
    assert (good["status"], "error" in good) == ("success", False)
    assert [(item.keys(), shape(item)) for item in failed] == [({"index", "status", "error"}, "six")] * 3
    assert [(item["error"]["code"], item["error"]["type"]) for item in failed] == [
        (400, "GuardrailViolationError"),
        (500, "InternalServerError"),
        (500, "InternalServerError"),
    ]
    assert {item["error"]["request_id"] for item in failed} == {answer.headers["x-request-id"]} == {answer.body["id"]}
    assert failed[2]["error"]["message"] == "Internal server error"
    nothing_leaks(str(failed))


def test_each_failed_item_of_a_batch_is_counted(speakers: Server) -> None:
    before = errors_counted(speakers.url, "item")
    send(speakers.url, PARTLY)
    assert errors_counted(speakers.url, "item") == before + 3


def test_stock_gives_a_failed_item_the_raw_text(stock: Mapping[str, Mapping[str, Answer]]) -> None:
    assert "GuardrailViolationError injected at" in stock["speakers"]["batch: partly"].body["results"][1]["error"]


def test_one_wrong_item_does_not_fail_the_others(speakers: Server) -> None:
    call = post("/v1/audio/speech/batch", {"model": "tiny", "items": [{"input": "x", **CLONED}, {"input": "x"}]})
    good, wrong = send(speakers.url, call).body["results"]
    assert (good["status"], wrong["status"]) == ("success", "error")
    assert (wrong["error"]["code"], wrong["error"]["param"]) == (400, "items")


# ---- reference audio and voices --------------------------------------------------------------------------------------

CANNOT = now(422, "UnprocessableEntityError", "ref_audio")


def test_reference_audio(diffusion: Server, media: str) -> None:  # noqa: F811
    """M15: what can never be had is 422, what may come at the next try is 500; neither quotes the URL."""
    sources = {
        f"{media}/404": CANNOT,
        f"{media}/403": CANNOT,
        f"{media}/garbage.png": CANNOT,
        f"{media}/empty.png": CANNOT,
        "data:audio/wav;base64,AAAA": CANNOT,
        "data:audio/wav,AAAA": CANNOT,
        "file:///etc/passwd": CANNOT,
        "http://[": CANNOT,
        f"{media}/408": FAILED,
        f"{media}/429": FAILED,
        f"{media}/503": FAILED,
        f"{media}/nothing": FAILED,
        f"http://127.0.0.1:{closed_port()}/x.wav": FAILED,
    }
    found = send_all(diffusion.url, {url: speech("x", ref_audio=url) for url in sources})
    for url, expected in sources.items():
        answer = found.by_name[url]
        verify(answer, expected)
        nothing_leaks(answer.text, ["rig-password", "127.0.0.1", "/etc/passwd"])


def test_reference_audio_that_is_too_short(diffusion: Server) -> None:
    sample = "data:audio/wav;base64," + base64.b64encode(wav(0.1)).decode()
    verify(send(diffusion.url, speech("x", ref_audio=sample)), now(400, "BadRequestError", "ref_audio"))


def test_a_full_store_of_voices_is_a_conflict(speakers: Server, stock: Mapping[str, Mapping[str, Answer]]) -> None:
    """409, and the official client does not repeat it; a voice that is deleted makes room."""
    *first, last = (send(speakers.url, call) for call in FULL)
    assert [answer.status for answer in first] == [200, 200]
    verify(last, now(409, "ConflictError"))
    verify_client(client_error(speakers.url, FULL[-1], retries=2), now(409, "ConflictError"))
    verify(send(speakers.url, embedding("[1.0]", "three")), now(409, "ConflictError"))
    assert send(speakers.url, delete("/v1/audio/voices/one")).status == 200
    assert send(speakers.url, embedding("[1.0]", "three")).status == 200
    for name in ("two", "three"):
        assert send(speakers.url, delete(f"/v1/audio/voices/{name}")).status == 200
    assert seen(stock["speakers"]["voices: full"]) == was(400, "BadRequestError")


def test_a_voice_is_stored_and_deleted_as_on_stock(speakers: Server, stock: Mapping[str, Mapping[str, Answer]]) -> None:
    stored, deleted = (send(speakers.url, call) for call in (FULL[0], delete("/v1/audio/voices/one")))
    before = stock["speakers"]["voices: stored"]
    assert (stored.status, before.status) == (200, 200)
    assert stored.body["voice"] | {"created_at": 0} == before.body["voice"] | {"created_at": 0}
    assert (deleted.status, deleted.body) == (200, stock["speakers"]["voices: deleted"].body)


def test_a_stored_voice_that_is_spoilt_is_the_servers_failure(diffusion: Server) -> None:
    """Stock says that the client named a voice whose file is missing."""
    assert send(diffusion.url, upload("spoilt", wav(2))).status == 200
    (file,) = (diffusion.log.parent / speaking.VOICES).glob("spoilt_*")
    file.write_bytes(b"spoilt")
    verify(send(diffusion.url, speech("x", voice="spoilt")), FAILED)
    file.unlink()
    verify(send(diffusion.url, speech("x", voice="spoilt")), FAILED)
    assert send(diffusion.url, delete("/v1/audio/voices/spoilt")).status == 200


# ---- successes -------------------------------------------------------------------------------------------------------

VARYING = ("date", "x-request-id")


@pytest.mark.parametrize("name", SUCCESSES)
def test_a_successful_answer_is_that_of_stock(
    speakers: Server, stock: Mapping[str, Mapping[str, Answer]], name: str
) -> None:
    found, expected = send(speakers.url, SUCCESSES[name]), stock["speakers"][name]

    def headers(answer: Answer) -> dict[str, str]:
        return {key: value for key, value in answer.headers.items() if key not in VARYING}

    def text(answer: Answer) -> str:
        return answer.text.replace(answer.body["id"], "") if name == "batch" else answer.text

    assert (expected.status, found.status, found.counted) == (200, 200, ("2xx",))
    assert headers(found) == headers(expected)
    assert text(found) == text(expected)


# ---- what vLLM's code refuses of media, tool calls and audio ---------------------------------------------------------


@pytest.mark.parametrize("case", [*SPEAKING, *FIRST_STAGE], ids=str)
def test_what_vllm_refuses(speakers: Server, case: SeamCase) -> None:
    """Contract, section 4: each seam converts, whatever raw type vLLM has for it (seam_cases.py)."""
    answer = send(speakers.url, case.call)
    verify(answer, case.now)
    assert answer.counted == ("4xx",)


@pytest.mark.parametrize("name", ["image_url", "audio_url", "video_url"])
@pytest.mark.parametrize("path", ["/404", "/garbage.png", "/text.html", "/empty.png"])
def test_a_url_of_a_chat_that_leads_to_no_media(speakers: Server, media: str, path: str, name: str) -> None:  # noqa: F811
    """M15: for the first stage and for a later one."""
    for call in (untyped(name, media + path), part(name, media + path)):
        answer = send(speakers.url, call)
        verify(answer, now(422, "UnprocessableEntityError", name))
        nothing_leaks(answer.text, ["rig-password-4711", "127.0.0.1"])


def test_media_of_a_chat_that_cannot_be_fetched_now(speakers: Server, media: str) -> None:  # noqa: F811
    """A voice from a server that refuses, media for the first stage from one that breaks off."""
    voice = chat("hi", ref_audio=f"http://127.0.0.1:{closed_port()}/x.wav")
    for call in (voice, untyped("audio_url", f"{media}/half")):
        answer = send(speakers.url, call)
        verify(answer, FAILED)
        assert answer.error["message"] == TRANSIENT_MEDIA


async def test_audio_of_a_session_that_the_model_does_not_take(speakers: Server) -> None:
    """The model reads it when the engine draws from the stream; the session goes on."""
    sent = [
        {"type": "session.update", "model": "tiny"},
        {"type": "input_audio_buffer.append", "audio": "AAAAAAAA"},
        {"type": "input_audio_buffer.commit"},
    ]
    talked = await converse(f"{speakers.url}/v1/realtime", sent, errors=1)
    assert isinstance(talked, Conversation)
    (event,) = talked.errors
    assert (event["error"]["code"], event["error"]["type"]) == (400, "BadRequestError")
    assert event["error"]["param"] == "audio"
    assert talked.code is None
