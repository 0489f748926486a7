# SPDX-License-Identifier: Apache-2.0
"""Routes whose own errors are not migrated yet answer as before: the same status from stock and migrated.

`OmniClientError` is no `ValueError` any more, and handlers are others; neither may be felt here. Speech, audio, videos
and rollout are reached by the scripted server, which has one diffusion stage that gives videos.
"""

from collections.abc import Callable, Mapping

import pytest
from calls import form, post
from contract import nothing_leaks
from support import Answer, Answers, Call, get, send, send_all

from vllm_omni_rig.server import Server

Start = Callable[..., Server]

FAULTS = [
    *(
        f"FAULT:raise={name}@front"
        for name in (
            "EngineDeadError",
            "EngineGenerateError",
            "GuardrailViolationError",
            "HTTPException",
            "NotImplementedError",
            "OmniClientError",
            "OmniClientError404",
            "OmniClientError503",
            "OmniConflictError",
            "OverflowError",
            "RuntimeError",
            "TimeoutError",
            "TypeError",
            "VLLMNotFoundError",
            "VLLMValidationError",
            "ValueError",
        )
    ),
    "FAULT:value",
    "FAULT:guard",
    "FAULT:output=none",
    "FAULT:output=type",
    "FAULT:error=409",
    "FAULT:error=503",
    "FAULT:outputerror=400",
    "FAULT:outputerror=504",
    "FAULT:deadstage",
]

CHANGED: Mapping[tuple[str, str], int] = {
    ("audio", "FAULT:raise=OmniClientError404@front"): 404,
    ("audio", "FAULT:raise=OmniClientError503@front"): 500,
    ("audio", "FAULT:error=409"): 409,
}
"""The route hands a typed client error to `create_error_response`, which keeps its status now. Stock made it 400.

A client error whose status is no client's is the server's, 500.
"""


def speech(text: str) -> Call:
    return post("/v1/audio/speech", {"model": "tiny", "input": text, "voice": "default"})


ROUTES: Mapping[str, Callable[[str], Call]] = {
    "speech": speech,
    "speech batch": lambda text: post("/v1/audio/speech/batch", {"model": "tiny", "items": [{"input": text}]}),
    "audio": lambda text: post("/v1/audio/generate", {"model": "tiny", "input": text}),
    "videos": lambda text: form("/v1/videos/sync", prompt=text, size="64x64"),
}

WRONG_REQUESTS: Mapping[str, Call] = {
    "speech: unknown voice": post("/v1/audio/speech", {"model": "tiny", "input": "x", "voice": "nobody"}),
    "speech: no input": post("/v1/audio/speech", {}),
    "speech: unknown format": post("/v1/audio/speech", {"model": "tiny", "input": "x", "response_format": "zip"}),
    "speech: empty": speech(""),
    "audio: no input": post("/v1/audio/generate", {"model": "tiny"}),
    "voices: unknown voice": Call("DELETE", "/v1/audio/voices/ghost"),
    "voices: no consent": form("/v1/audio/voices", name="x"),
    "videos: no prompt": form("/v1/videos", model="tiny"),
    "videos: unknown model": form("/v1/videos/sync", prompt="x", model="nope"),
    "videos: wrong size": form("/v1/videos/sync", prompt="x", size="axb"),
    "videos: wrong seconds": form("/v1/videos/sync", prompt="x", seconds="abc"),
    "videos: wrong LoRA": form("/v1/videos/sync", prompt="x", lora="{"),
    "videos: unknown job": get("/v1/videos/ghost"),
    "videos: content of an unknown job": get("/v1/videos/ghost/content"),
    "videos: delete an unknown job": Call("DELETE", "/v1/videos/ghost"),
    "videos: reference that is no image": Call(
        "POST",
        "/v1/videos/sync",
        form={"prompt": "x", "size": "64x64"},
        files=[("input_reference", ("a.png", b"bad", "image/png"))],
    ),
    "rollout: unknown model": post("/v1/realtime/sessions", {"model": "nope"}),
    "rollout: no fields": post("/v1/realtime/sessions/x/step", {}),
    "rollout: unknown session": post("/v1/realtime/sessions/x/step", {"step_id": 0, "observation": {}, "action": {}}),
    "rollout: reset an unknown session": post("/v1/realtime/sessions/x/reset", {}),
    "rollout: close an unknown session": post("/v1/realtime/sessions/x/close", {}),
    "rollout: status of an unknown session": get("/v1/realtime/sessions/x/status"),
    "sleep: wrong stages": post("/v1/omni/sleep", {"stage_ids": "x"}),
    "wakeup: wrong stages": post("/v1/omni/wakeup", {"stage_ids": "x"}),
}


Both = Mapping[str, Answers]


def statuses(answers: Answers) -> dict[str, tuple[int, object]]:
    """Status and `error.code` of each answer: what a client relies on."""
    return {name: (answer.status, answer.error.get("code")) for name, answer in answers.by_name.items()}


@pytest.fixture(scope="module")
def urls(scripted: Start) -> Mapping[str, str]:
    return {variant: scripted("video", variant).url for variant in ("stock", "migrated")}


@pytest.fixture(scope="module", params=ROUTES)
def route(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def failures(urls: Mapping[str, str], route: str) -> Both:
    calls = {fault: ROUTES[route](fault) for fault in FAULTS}
    return {variant: send_all(url, calls) for variant, url in urls.items()}


def test_every_failure_on_a_route_that_is_not_migrated(failures: Both, route: str) -> None:
    expected = statuses(failures["stock"])
    for fault in FAULTS:
        if status := CHANGED.get((route, fault)):
            assert expected[fault] == (400, 400)
            expected[fault] = (status, status)
    assert statuses(failures["migrated"]) == expected


def test_failures_are_counted_by_their_status(failures: Both) -> None:
    answers = failures["migrated"]
    classes = {name: f"{answer.status // 100}xx" for name, answer in answers.by_name.items()}
    assert answers.counted == answers.expected(classes)


def test_what_the_boundary_renders_there_leaks_nothing(failures: Both) -> None:
    """What a route still makes by itself may leak, as on stock."""
    for answer in failures["migrated"].by_name.values():
        if answer.shape == "six":
            nothing_leaks(answer.text)


def test_wrong_requests_on_routes_that_are_not_migrated(urls: Mapping[str, str]) -> None:
    stock, migrated = (send_all(url, WRONG_REQUESTS) for url in urls.values())
    assert statuses(migrated) == statuses(stock)


def rollout_step(server: Server, fault: str) -> Answer:
    session = send(server.url, post("/v1/realtime/sessions", {"model": "tiny"})).body["session_id"]
    body = {"step_id": 0, "observation": {"prompt": fault}, "action": {}}
    return send(server.url, post(f"/v1/realtime/sessions/{session}/step", body))


@pytest.mark.parametrize(
    "fault", ["FAULT:value", "FAULT:guard", "FAULT:raise=OmniClientError@front", "FAULT:deadstage"]
)
def test_a_failed_step_of_a_rollout(scripted: Start, fault: str) -> None:
    stock, migrated = (rollout_step(scripted("video", variant), fault) for variant in ("stock", "migrated"))
    assert (migrated.status, migrated.counted) == (stock.status, stock.counted)
    assert migrated.body["error"]["code"] == stock.body["error"]["code"]


def test_a_failed_video_job(scripted: Start) -> None:
    def outcome(server: Server, fault: str) -> tuple[int, str, int]:
        identity = send(server.url, form("/v1/videos", prompt=fault, size="64x64")).body["id"]
        while (answer := send(server.url, get(f"/v1/videos/{identity}"))).body["status"] in ("queued", "in_progress"):
            pass
        return answer.status, answer.body["status"], send(server.url, get(f"/v1/videos/{identity}/content")).status

    for fault in ("FAULT:value", "FAULT:guard", "FAULT:deadstage"):
        stock, migrated = (outcome(scripted("video", variant), fault) for variant in ("stock", "migrated"))
        assert migrated == stock, fault
