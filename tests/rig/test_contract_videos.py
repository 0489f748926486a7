# SPDX-License-Identifier: Apache-2.0
"""Videos: what is wrong with a request, what fails while one is made, and what becomes of a failed job.

The scripted server has one diffusion stage that gives videos. `was` pins stock, `now` is the contract.
"""

import base64
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import openai
import pytest
import unavailable
from calls import PNG, TRUNCATED, data_url, delete, form
from cases import Case, now, was
from conftest import MIGRATED
from contract import client_error, nothing_leaks, verify, verify_client
from media_server import serving
from support import Answer, Answers, Seen, answers_of, get, seen, send
from test_contract_counting import errors
from video_calls import content, ended, extra, lora, reference, retrieve, start_job, upload, video

from vllm_omni_rig.server import Server

Start = Callable[..., Server]

REJECTED = "rejected-value-4711"
BAD_REQUEST = was(400, "Bad Request")
RAW = was(400, "BadRequestError")
FAILED = was(500, "Internal Server Error")
BROKEN = was(500, "InternalServerError")
INTERNAL = now(500, "InternalServerError")
MISSING = now(404, "NotFoundError")


def wrong(parameter: str | None) -> Seen:
    return now(400, "BadRequestError", parameter)


def cannot(parameter: str) -> Seen:
    return now(422, "UnprocessableEntityError", parameter)


VIDEO_BYTES = base64.b64encode(b"no video" * 20).decode()

# fmt: off
REQUESTS = (
    Case("no prompt", form("/v1/videos/sync", model="tiny"),
         was(400, "Bad Request", "body.prompt"), now(400, "Bad Request", "body.prompt")),
    Case("no prompt for a job", form("/v1/videos", model="tiny"),
         was(400, "Bad Request", "body.prompt"), now(400, "Bad Request", "body.prompt")),
    Case("unknown model", video(model=REJECTED), BAD_REQUEST, MISSING, "M01"),
    Case("unknown model for a job", form("/v1/videos", prompt="x", model=REJECTED), BAD_REQUEST, MISSING, "M01"),
    Case("size that is no size", video(size="axb"),
         was(400, "Bad Request", "body.size"), now(400, "Bad Request", "body.size")),
    Case("size of nothing", video(size="0x5"), FAILED, wrong("size")),
    Case("length that is no number", video(seconds="abc"),
         was(400, "Bad Request", "body.seconds"), now(400, "Bad Request", "body.seconds")),
    Case("length of 400 digits", video(seconds="9" * 400), FAILED, wrong("seconds"), "M11"),
    Case("length of 400 digits for a job", form("/v1/videos", prompt="x", seconds="9" * 400), RAW, wrong("seconds"),
         "M11"),
    Case("more frames a second than the encoder can hold", video(fps=str(2**31)), FAILED, wrong("fps"), "M11"),
    Case("frames a second of 64 bits", video(fps=str(2**63)), FAILED, wrong("fps"), "M11"),
    Case("more frames a second than the encoder can hold, for a job", form("/v1/videos", prompt="x", fps=str(2**31)),
         was(200), wrong("fps"), "M11"),
    Case("width 0", video(width="0"), RAW, wrong("width")),
    Case("seed over 2**63-1", video(seed=str(2**70)), RAW, wrong("seed"), "M11"),
    Case("no steps", video(num_inference_steps="0"), RAW, wrong("num_inference_steps")),
    Case("unknown quality", video(quality=REJECTED), RAW, wrong("quality")),
    Case("LoRA not JSON", video(lora="{"), BAD_REQUEST, wrong("lora")),
    Case("LoRA not an object", video(lora="5"), BAD_REQUEST, wrong("lora")),
    Case("LoRA without name", lora(foo=1), BAD_REQUEST, wrong("lora")),
    Case("LoRA with a list for a scale", lora(name="a", path="/a", scale=[]), FAILED, wrong("lora")),
    Case("LoRA with an infinite id", video(lora='{"name": "a", "path": "/a", "int_id": 1e999}'), FAILED, wrong("lora")),
    Case("LoRA with a negative id", lora(name="a", path="/a", int_id=-5), BAD_REQUEST, wrong("lora")),
    Case("LoRA nested too deeply", video(lora="[" * 100_000), BROKEN, wrong("lora"), "Z03"),
    Case("LoRA with a number of 5000 digits", video(lora='{"a": ' + "1" * 5_000 + "}"), RAW, wrong("lora"), "M11"),
    Case("extra parameters not an object", video(extra_params="5"), BAD_REQUEST, wrong("extra_params")),
    Case("codec options that are text", extra(video_codec_options=REJECTED),
         FAILED, wrong("extra_params.video_codec_options")),
    Case("codec option that is a number", extra(video_codec_options={"preset": 5}),
         FAILED, wrong("extra_params.video_codec_options")),
    Case("codec option that the encoder does not know", extra(video_codec_options={"preset": REJECTED}),
         FAILED, wrong("extra_params.video_codec_options")),
    Case("batch of frames that is no number", extra(preencode_mp4=True, preencode_batch_frames=REJECTED),
         BAD_REQUEST, wrong("extra_params.preencode_batch_frames")),
    Case("image reference not JSON", video(image_reference="{"), BAD_REQUEST, wrong("image_reference")),
    Case("image reference by file id", video(image_reference='{"file_id": "x"}'),
         BAD_REQUEST, wrong("image_reference")),
    Case("video reference by file id", video(video_reference='{"file_id": "x"}'),
         BAD_REQUEST, wrong("video_reference")),
    Case("image that is none", reference("image", data_url(bytes(3))),
         BAD_REQUEST, cannot("image_reference"), "M15 Z01"),
    Case("truncated image", reference("image", data_url(TRUNCATED)), BAD_REQUEST, cannot("image_reference"), "M15"),
    Case("image URL without data", reference("image", "data:image/png;base64"), RAW, cannot("image_reference"), "M15"),
    Case("image URL that is not base64", reference("image", "data:image/png;base64,a"),
         BAD_REQUEST, cannot("image_reference"), "M15"),
    Case("image URL that is none", reference("image", REJECTED), BAD_REQUEST, cannot("image_reference"), "M15"),
    Case("image URL with half an address", reference("image", "http://[::1"),
         BROKEN, cannot("image_reference"), "M15"),
    Case("image URL with no such port", reference("image", "http://127.0.0.1:99999/x"),
         BAD_REQUEST, cannot("image_reference"), "M15"),
    Case("video that is none", reference("video", f"data:video/mp4;base64,{VIDEO_BYTES}"),
         BAD_REQUEST, cannot("video_reference"), "M15"),
    Case("video URL without data", reference("video", "data:video/mp4;base64"), RAW, cannot("video_reference"), "M15"),
    Case("video URL that is none", reference("video", REJECTED), BAD_REQUEST, cannot("video_reference"), "M15"),
    Case("video URL with half an address", reference("video", "http://[::1"),
         BROKEN, cannot("video_reference"), "M15"),
    Case("audio URL without data", reference("audio", "data:audio/wav;base64"), RAW, cannot("audio_reference"), "M15"),
    Case("audio URL that is not base64", reference("audio", "data:audio/wav;base64,a"),
         BAD_REQUEST, cannot("audio_reference"), "M15"),
    Case("audio URL that is none", reference("audio", REJECTED), BAD_REQUEST, cannot("audio_reference"), "M15"),
    Case("audio URL with half an address", reference("audio", "http://[::1"),
         BROKEN, cannot("audio_reference"), "M15"),
    Case("upload that is no image", upload("input_reference", b"bad"),
         BAD_REQUEST, cannot("input_reference"), "M15 Z01"),
    Case("truncated upload", upload("input_reference", TRUNCATED), BAD_REQUEST, cannot("input_reference"), "M15"),
    Case("empty upload", upload("input_reference", b""), BAD_REQUEST, cannot("input_reference"), "M15"),
    Case("upload and reference", upload("input_reference", PNG, image_reference='{"image_url": "x"}'),
         BAD_REQUEST, wrong("input_reference")),
    Case("control without a type", upload("control_reference", PNG), BAD_REQUEST, wrong("control_type")),
    Case("control of a type that the model has not", upload("control_reference", PNG, control_type=REJECTED),
         BAD_REQUEST, wrong("control_type")),
    Case("control type without a control", video(control_type="edge"), BAD_REQUEST, wrong("control_reference")),
    Case("mask not JSON", upload("video_noise_mask", b"{"), BAD_REQUEST, wrong("video_noise_mask")),
    Case("mask not UTF-8", upload("video_noise_mask", b"\xff"), BAD_REQUEST, wrong("video_noise_mask"), "Z07"),
    Case("empty mask", upload("audio_noise_mask", b""), BAD_REQUEST, wrong("audio_noise_mask")),
    Case("mask nested too deeply", upload("audio_noise_mask", b"[" * 70 + b"]" * 70),
         BAD_REQUEST, wrong("audio_noise_mask")),
    Case("mask for a model that edits none", upload("audio_noise_mask", b"[1]"),
         BAD_REQUEST, wrong("video_noise_mask")),
    Case("unknown job", get("/v1/videos/ghost"), was(404, "Not Found"), MISSING, "J07"),
    Case("content of an unknown job", content("ghost"), was(404, "Not Found"), MISSING, "J07"),
    Case("delete an unknown job", delete("/v1/videos/ghost"), was(404, "Not Found"), MISSING),
    Case("list with a wrong limit", get("/v1/videos?limit=-1"),
         was(400, "Bad Request", "query.limit"), now(400, "Bad Request", "query.limit")),
)
"""Wrong requests."""

FAILURES = (
    Case("a stage's raw error", video("FAULT:value"), FAILED, INTERNAL),
    Case("a guardrail in a stage", video("FAULT:guard"), BAD_REQUEST, now(400, "GuardrailViolationError")),
    Case("no memory in a stage", video("FAULT:oom"), FAILED, INTERNAL, "J01"),
    Case("the engine's own timeout", video("FAULT:raise=TimeoutError@front"),
         was(504, "Gateway Timeout"), INTERNAL, "J09"),
    Case("a client error with a server's status", video("FAULT:raise=OmniClientError503@front"),
         was(503, "Service Unavailable"), INTERNAL),
    Case("a client's mistake", video("FAULT:raise=VLLMValidationError@front"), FAILED, wrong("size")),
    Case("nothing found", video("FAULT:raise=VLLMNotFoundError@front"), FAILED, MISSING),
    Case("a conflict", video("FAULT:raise=OmniConflictError@front"), FAILED, now(409, "ConflictError")),
    Case("not implemented", video("FAULT:raise=OmniNotImplementedError@front"),
         FAILED, now(501, "NotImplementedError")),
    Case("a raw TypeError", video("FAULT:raise=TypeError@front"), FAILED, INTERNAL),
    Case("a 404 of the orchestrator", video("FAULT:error=404.NotFoundError"), was(404, "Not Found"), MISSING),
    Case("no video", video("FAULT:output=none"), FAILED, INTERNAL),
    Case("a video of a wrong type", video("FAULT:output=type"), FAILED, INTERNAL),
    Case("a dead stage", video("FAULT:deadstage"), was(500, "InternalServerError", shape="six"), INTERNAL),
)
"""What fails while a video is made."""
# fmt: on


@pytest.fixture(scope="module")
def stock(scripted: Start) -> Server:
    return scripted("video", "stock")


@pytest.fixture(scope="module")
def migrated(scripted: Start) -> Server:
    return scripted("video", "migrated")


def answers(server: Server) -> Answers:
    return answers_of(server.url, (*REQUESTS, *FAILURES))


@pytest.fixture(scope="module")
def stock_answers(stock: Server) -> Answers:
    return answers(stock)


@pytest.fixture(scope="module")
def migrated_answers(migrated: Server) -> Answers:
    return answers(migrated)


every_case = pytest.mark.parametrize("case", [*REQUESTS, *FAILURES], ids=str)


@every_case
def test_stock(stock_answers: Answers, case: Case) -> None:
    """Baseline."""
    assert seen(stock_answers.by_name[case.title]) == case.was


@every_case
def test_migrated(migrated_answers: Answers, case: Case) -> None:
    answer = migrated_answers.by_name[case.title]
    verify(answer, case.now, permanent=case.permanent)
    nothing_leaks(answer.text, [REJECTED, "upload-4711", "libx264"])


def test_every_answer_is_counted_by_its_status(migrated_answers: Answers) -> None:
    expected = {case.title: case.now.counted for case in (*REQUESTS, *FAILURES)}
    assert migrated_answers.counted == migrated_answers.expected(expected)


@pytest.mark.parametrize("case", [*REQUESTS[::5], *FAILURES], ids=str)
def test_official_client(migrated: Server, case: Case) -> None:
    verify_client(client_error(migrated.url, case.call), case.now)


def test_a_failure_in_a_stage_names_it(migrated_answers: Answers) -> None:
    assert migrated_answers.by_name["a stage's raw error"].error["error_stage_id"] == 0


def test_case_l07_two_wrong_requests_at_once_are_two_answers(migrated: Server) -> None:
    call = extra(video_codec_options=5)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: client_error(migrated.url, call), range(2)))
    for error in both:
        verify_client(error, wrong("extra_params.video_codec_options"))
    assert len({error.request_id for error in both if error is not None}) == 2


# ---- media behind a URL (M15) --------------------------------------------------------------------------------------


class Media(BaseHTTPRequestHandler):
    """A path of a number is answered with that status, any other is ``/nothing``: the connection just ends."""

    def do_GET(self) -> None:
        if not self.path[1:].isdecimal():
            self.close_connection = True
            return
        self.send_response(int(self.path[1:]))
        self.send_header("location", "/404")
        self.send_header("content-length", "3")
        self.end_headers()
        self.wfile.write(b"bad")


@pytest.fixture(scope="module")
def media() -> Iterator[str]:
    with serving(Media) as url:
        yield url


PERMANENT = ("302", "400", "401", "403", "404", "410")
TRANSIENT = ("408", "429", "500", "502", "503", "504", "nothing")


@pytest.mark.parametrize("kind", ["image", "video", "audio"])
@pytest.mark.parametrize("path", [*PERMANENT, *TRANSIENT])
def test_case_m15_media_behind_a_url(migrated: Server, media: str, kind: str, path: str) -> None:
    answer = send(migrated.url, reference(kind, f"{media}/{path}"))
    verify(answer, cannot(f"{kind}_reference") if path in PERMANENT else INTERNAL)
    nothing_leaks(answer.text, ["rig-password-4711", "127.0.0.1"])
    if path in TRANSIENT:
        assert answer.error["message"] == "The media could not be fetched; try again."


@pytest.mark.parametrize("kind", ["image", "video", "audio"])
def test_case_m15_a_source_that_refuses_may_be_tried_again(migrated: Server, kind: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # and nobody listens
        call = reference(kind, f"http://127.0.0.1:{probe.getsockname()[1]}/x")
        verify(send(migrated.url, call), INTERNAL)


@pytest.mark.parametrize("path", ["404", "503"])
def test_stock_took_every_failing_source_for_the_clients(stock: Server, media: str, path: str) -> None:
    """Baseline."""
    assert send(stock.url, reference("image", f"{media}/{path}")).status == 400


# ---- jobs ----------------------------------------------------------------------------------------------------------

JOBS: Mapping[str, Seen] = {
    "FAULT:value": INTERNAL,
    "FAULT:oom": INTERNAL,
    "FAULT:guard": now(400, "GuardrailViolationError"),
    "FAULT:raise=VLLMValidationError@front": wrong("size"),
    "FAULT:raise=OmniConflictError@front": now(409, "ConflictError"),
    "FAULT:raise=OmniNotImplementedError@front": now(501, "NotImplementedError"),
    "FAULT:raise=TimeoutError@front": INTERNAL,
    "FAULT:raise=HTTPException@front": now(418, "I'm a Teapot"),
    "FAULT:error=404.NotFoundError": MISSING,
    "FAULT:output=none": INTERNAL,
    "FAULT:deadstage": INTERNAL,
}
"""Prompt of a job that fails → its error, as a request for its content sees it."""


def error_of(answer: Answer) -> dict[str, Any]:
    assert (answer.status, answer.counted, answer.body["status"]) == (200, ("2xx",), "failed")
    return dict(answer.body["error"])


@pytest.mark.parametrize("prompt", JOBS)
def test_a_failed_job_shows_its_error(migrated: Server, prompt: str) -> None:
    """The contract's answer to the RFC's open question 4: HTTP 200, and the error object in the job."""
    expected = JOBS[prompt]
    identity = start_job(migrated.url, prompt)
    answer = ended(migrated.url, identity)
    error = error_of(answer)
    assert error.keys() == {"message", "type", "param", "code", "request_id", "error_stage_id"}
    assert (error["code"], error["type"], error["param"]) == (expected.status, expected.type, expected.param)
    assert error["request_id"] == identity
    assert error["message"].strip()
    nothing_leaks(str(error))


@pytest.mark.parametrize("prompt", JOBS)
def test_the_content_of_a_failed_job_is_its_error(migrated: Server, prompt: str) -> None:
    """The official client must not repeat it: the job stays failed."""
    identity = start_job(migrated.url, prompt)
    stored = error_of(ended(migrated.url, identity))
    answer = send(migrated.url, content(identity))
    verify(answer, JOBS[prompt], permanent=True)
    assert answer.counted == (f"{JOBS[prompt].status // 100}xx",)
    assert answer.error == stored


@pytest.mark.parametrize(
    ("prompt", "status"), [("FAULT:value", 500), ("FAULT:guard", 400), ("FAULT:error=404.NotFoundError", 404)]
)
def test_stock_answered_for_a_failed_job_as_if_the_request_had_failed(stock: Server, prompt: str, status: int) -> None:
    """Baseline: the job as the body of an error, a raw text stored, and content that is always 422."""
    identity = start_job(stock.url, prompt)
    answer = ended(stock.url, identity)
    assert answer.status == status
    assert answer.body["error"].keys() == {"code", "message"}
    assert "sk-rig0canary" in answer.text
    assert send(stock.url, content(identity)).status == 422


def test_a_job_that_fails_is_counted(migrated: Server) -> None:
    """`http_requests_total` does not see it: every answer about it is a success."""
    before = errors(migrated.url)
    ended(migrated.url, start_job(migrated.url, "FAULT:guard"))
    ended(migrated.url, start_job(migrated.url, "FAULT:value"))
    assert errors(migrated.url) - before == {
        ("job", "client", "GuardrailViolationError", "400", "0", "false"): 1,
        ("job", "server", "InternalServerError", "500", "0", "false"): 1,
    }


def test_case_j01_the_next_job_is_clean(migrated: Server) -> None:
    error_of(ended(migrated.url, start_job(migrated.url, "FAULT:oom")))
    done = ended(migrated.url, start_job(migrated.url, "a video"))
    assert (done.status, done.body["status"], done.body["error"]) == (200, "completed", None)


def test_case_j05_an_error_is_the_same_however_late_and_often(migrated: Server) -> None:
    first = start_job(migrated.url, "FAULT:guard")
    stored = error_of(ended(migrated.url, first))
    for prompt in ("FAULT:value", "a video"):
        ended(migrated.url, start_job(migrated.url, prompt))
    assert [error_of(retrieve(migrated.url, first)) for _ in range(3)] == [stored] * 3
    listed = send(migrated.url, get("/v1/videos?limit=100")).body["data"]
    assert [job["error"] for job in listed if job["id"] == first] == [stored]


def test_case_j07_a_job_that_failed_with_404_is_no_unknown_job(migrated: Server) -> None:
    failed = ended(migrated.url, start_job(migrated.url, "FAULT:error=404.NotFoundError"))
    unknown = retrieve(migrated.url, "ghost")
    assert (failed.status, failed.body["error"]["code"], unknown.status) == (200, 404, 404)


def test_the_content_of_a_running_job_is_a_conflict(migrated: Server, stock: Server) -> None:
    identity = start_job(migrated.url, "FAULT:sleep=3")
    conflict = now(409, "ConflictError")
    verify(send(migrated.url, content(identity)), conflict)
    verify_client(client_error(migrated.url, content(identity), retries=2), conflict)
    assert send(migrated.url, delete(f"/v1/videos/{identity}")).status == 200
    assert retrieve(migrated.url, identity).status == 404
    assert send(stock.url, content(start_job(stock.url, "FAULT:sleep=1"))).status == 404


def test_a_deletion_that_does_not_end_in_time_is_a_conflict(tmp_path: Path) -> None:
    with unavailable.running(MIGRATED, tmp_path / "log", Path(__file__).with_name("slow_abort.py"), "video") as server:
        identity = start_job(server.url, "FAULT:sleep=5")
        verify(send(server.url, delete(f"/v1/videos/{identity}")), now(409, "ConflictError"))
        assert retrieve(server.url, identity).status == 404  # it went on


def test_a_failed_job_can_be_deleted(migrated: Server) -> None:
    identity = start_job(migrated.url, "FAULT:value")
    ended(migrated.url, identity)
    assert send(migrated.url, delete(f"/v1/videos/{identity}")).body["deleted"] is True
    verify(retrieve(migrated.url, identity), MISSING)


def test_the_error_of_a_job_is_documented(migrated: Server) -> None:
    schema = send(migrated.url, get("/openapi.json")).body["components"]["schemas"]["VideoError"]
    assert schema["properties"].keys() == {"message", "type", "param", "code", "request_id", "error_stage_id"}
    assert schema["properties"]["code"]["type"] == "integer"


def test_a_job_answers_with_its_request_id(migrated: Server) -> None:
    answer = send(migrated.url, form("/v1/videos", prompt="x", size="64x64"))
    assert answer.headers["x-request-id"] == answer.body["id"]


def test_a_job_that_fails_is_logged_once(migrated: Server) -> None:
    """A client's mistake in one line, a server's failure with its traceback."""
    clients, servers = (start_job(migrated.url, prompt) for prompt in ("FAULT:guard", "FAULT:value"))
    ended(migrated.url, clients)
    ended(migrated.url, servers)
    log = migrated.log.read_text(errors="replace")
    assert log.count(f"job {clients}: 400 GuardrailViolationError") == 1
    assert log.count(f"job {servers}: 500 InternalServerError") == 1
    traceback = log[log.index(f"job {servers}: 500") :].splitlines()[1]
    assert "Traceback" in traceback


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_official_client_polls_a_job_to_its_error(migrated: Server) -> None:
    """`create_and_poll` gives the failed job instead of raising."""
    client = openai.OpenAI(base_url=f"{migrated.url}/v1", api_key="none", max_retries=0, timeout=20)
    done = client.videos.create_and_poll(prompt="FAULT:guard", model="tiny", size=openai.omit, poll_interval_ms=50)
    assert done.status == "failed"
    assert done.error is not None
    assert (done.error.code, done.error.type) == (400, "GuardrailViolationError")
    with pytest.raises(openai.BadRequestError) as caught:
        client.videos.download_content(done.id)
    assert caught.value.request_id == done.id


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_on_stock_the_official_client_could_not_poll_a_failed_job(stock: Server) -> None:
    """Baseline."""
    client = openai.OpenAI(base_url=f"{stock.url}/v1", api_key="none", max_retries=0, timeout=20)
    with pytest.raises(openai.InternalServerError):
        client.videos.create_and_poll(prompt="FAULT:value", model="tiny", size=openai.omit, poll_interval_ms=50)


def test_success_still_answers_after_all_this(migrated: Server) -> None:
    answer = send(migrated.url, video())
    assert (answer.status, answer.headers["content-type"]) == (200, "video/mp4")
    assert send(migrated.url, upload("input_reference", PNG)).status == 200
    assert send(migrated.url, extra(video_codec_options={"preset": "fast"})).status == 200
