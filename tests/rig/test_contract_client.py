# SPDX-License-Identifier: Apache-2.0
"""What the official client makes of the errors of speech, videos and rollout sessions: class, fields, attempts."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from contract import attempts, client_error, verify_client
from failures_table import MIGRATED
from speaking import speech
from support import Call, counters, growth, post, send
from video_calls import new_session, step, video

from vllm_omni_rig.server import Server

RETRIES = 2
"""The client's own default."""

ATTEMPTS: Mapping[str, int] = {
    "VLLMValidationError": 1,
    "GuardrailViolationError": 1,
    "VLLMNotFoundError": 1,
    "OmniConflictError": 1,
    "VLLMUnprocessableEntityError": 1,
    "RuntimeError": 1 + RETRIES,
    "OmniNotImplementedError": 1,
    "OmniServiceUnavailableError": 1 + RETRIES,
    "OmniStageTimeoutError": 1,
}
"""Exception → how often the client asks: a client's error once, and also what no repetition can cure."""

ROUTES = ("speech", "video", "rollout")
ROWS = [(route, name) for route in ROUTES for name in ATTEMPTS]


@pytest.fixture(scope="module")
def server(scripted: Callable[..., Server]) -> Server:
    return scripted("video", "migrated")


@pytest.fixture(scope="module")
def session(server: Server) -> str:
    return new_session(server.url)


@pytest.fixture(scope="module")
def raised(server: Server, session: str) -> Mapping[tuple[str, str], openai.APIStatusError | None]:
    """What the client raises, by route and exception."""
    calls: dict[tuple[str, str], Call] = {}
    for name in ATTEMPTS:
        fault = f"FAULT:raise={name}@front"
        calls["speech", name], calls["video", name] = speech(fault), video(fault)
        calls["rollout", name] = step(session, prompt=fault)

    def ask(call: Call) -> openai.APIStatusError | None:
        return client_error(server.url, call, retries=RETRIES)

    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(calls, pool.map(ask, calls.values()), strict=True))
    send(server.url, post(f"/v1/realtime/sessions/{session}/close", {}))
    return found


@pytest.mark.parametrize(("route", "name"), ROWS)
def test_the_class_and_its_fields(
    raised: Mapping[tuple[str, str], openai.APIStatusError | None], route: str, name: str
) -> None:
    verify_client(raised[route, name], MIGRATED[name])


@pytest.mark.parametrize(("route", "name"), ROWS)
def test_the_number_of_attempts(raised: Mapping[tuple[str, str], openai.APIStatusError], route: str, name: str) -> None:
    """M35."""
    assert attempts(raised[route, name]) == ATTEMPTS[name]


def test_the_server_saw_each_attempt(server: Server) -> None:
    with httpx.Client() as client:
        before = counters(server.url, client)
        error = client_error(server.url, video("FAULT:raise=OmniServiceUnavailableError@front"), retries=1)
        assert error is not None
        counted = growth(server.url, before, 2, client)
    assert (attempts(error), counted) == (2, {("/v1/videos/sync", "5xx"): 2})
