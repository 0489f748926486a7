# SPDX-License-Identifier: Apache-2.0
"""Routes whose own errors are not migrated yet answer as before: the same status from stock and migrated.

`OmniClientError` is no `ValueError` any more, and handlers are others; neither may be felt here. Speech and audio are
reached by the scripted server, which has one diffusion stage that gives videos.
"""

from collections.abc import Callable, Mapping

import pytest
from calls import form, post
from contract import nothing_leaks
from support import Answers, Call, send_all

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
    "FAULT:error=404.NotFoundError",
    "FAULT:error=409",
    "FAULT:error=503",
    "FAULT:outputerror=400",
    "FAULT:outputerror=504",
    "FAULT:deadstage",
]

CHANGED: Mapping[tuple[str, str], int] = {
    ("audio", "FAULT:raise=OmniClientError404@front"): 404,
    ("audio", "FAULT:raise=OmniClientError503@front"): 500,
    ("audio", "FAULT:error=404.NotFoundError"): 404,
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
}

WRONG_REQUESTS: Mapping[str, Call] = {
    "speech: unknown voice": post("/v1/audio/speech", {"model": "tiny", "input": "x", "voice": "nobody"}),
    "speech: no input": post("/v1/audio/speech", {}),
    "speech: unknown format": post("/v1/audio/speech", {"model": "tiny", "input": "x", "response_format": "zip"}),
    "speech: empty": speech(""),
    "audio: no input": post("/v1/audio/generate", {"model": "tiny"}),
    "voices: unknown voice": Call("DELETE", "/v1/audio/voices/ghost"),
    "voices: no consent": form("/v1/audio/voices", name="x"),
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
