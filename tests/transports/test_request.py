# SPDX-License-Identifier: Apache-2.0
"""The id of a request, on every answer, and what is counted when it ends."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from error_site import Site
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vllm_omni_errors import OmniConflictError, metrics
from vllm_omni_errors.transports import request

Plain = Callable[..., Site]


@pytest.fixture
def site(plain: Plain) -> Site:
    app = FastAPI()

    @app.get("/echo")
    async def echo(request: Request) -> dict[str, str | None]:
        return {"seen": request.headers.get("X-Request-Id")}

    @app.get("/accepted")
    async def accepted(request: Request) -> None:
        request.state.request_metadata = SimpleNamespace(request_id="chatcmpl-" + request.headers["X-Request-Id"])

    @app.get("/own")
    async def own() -> PlainTextResponse:
        return PlainTextResponse("ok", headers={"X-Request-Id": "own"})

    @app.get("/bad")
    async def bad() -> JSONResponse:
        return JSONResponse({}, status_code=404)

    return plain(app)


def test_a_successful_answer_has_the_id_that_the_client_sent(site: Site) -> None:
    answer = site.client.get("/echo", headers={"X-Request-Id": "abc"})
    assert (answer.json(), answer.headers["x-request-id"]) == ({"seen": "abc"}, "abc")


def test_a_successful_answer_has_the_id_that_the_request_was_accepted_under(site: Site) -> None:
    assert site.client.get("/accepted", headers={"X-Request-Id": "abc"}).headers["x-request-id"] == "chatcmpl-abc"


def test_code_that_does_not_know_the_request_accepts_it(site: Site) -> None:
    def refuse() -> BaseException:
        request.accepted("speech-1")
        return RuntimeError()

    site.failure = refuse
    answer = site.client.get("/raise", headers={"X-Request-Id": "abc"})
    assert answer.headers["x-request-id"] == answer.json()["error"]["request_id"] == "speech-1"


def test_accepting_outside_of_a_request_does_nothing() -> None:
    request.accepted("speech-1")
    assert request.current().known_id is None


def test_a_successful_answer_without_an_id_gets_none(site: Site) -> None:
    assert "x-request-id" not in site.client.get("/echo").headers


def test_an_id_that_is_there_stays(site: Site) -> None:
    answer = site.client.get("/own", headers={"X-Request-Id": "abc"})
    assert answer.headers.get_list("x-request-id") == ["own"]


def test_an_error_that_a_route_answers_itself_gets_an_id(site: Site) -> None:
    assert len(site.client.get("/bad").headers["x-request-id"]) == 32


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("a b\tc", "abc"),
        ("<script>alert(1)</script>", "scriptalert1script"),
        ("x" * 10_000, "x" * 128),
        ("ä/../é", ".."),
        ("\xff\xfe", None),
    ],
)
def test_an_inbound_id_is_bounded_and_cleaned_before_anything_reads_it(site: Site, sent: str, seen: str | None) -> None:
    answer = site.client.get("/echo", headers=[(b"x-request-id", sent.encode("latin-1"))])
    assert answer.json() == {"seen": seen}
    assert answer.headers.get("x-request-id") == seen


def test_of_several_inbound_ids_the_first_counts(site: Site) -> None:
    answer = site.client.get("/echo", headers=[("X-Request-Id", "a"), ("X-Request-Id", "b")])
    assert answer.json() == {"seen": "a"}


def test_an_errors_body_and_header_have_the_same_id(site: Site) -> None:
    site.failure = OmniConflictError
    for headers in ({}, {"X-Request-Id": "abc"}):
        answer = site.client.get("/raise", headers=headers)
        assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["x-request-id"] == "abc"
    assert site.client.get("/raise?accepted=chatcmpl-1").json()["error"]["request_id"] == "chatcmpl-1"


def test_a_made_id_stays_for_its_request_and_differs_for_the_next() -> None:
    one, two = request.CurrentRequest({}), request.CurrentRequest({})
    assert one.known_id is None
    assert one.error_id == one.error_id == one.known_id
    assert one.error_id != two.error_id


def test_outside_of_a_request_there_is_none() -> None:
    assert request.current().known_id is None


def test_vllms_own_middleware_does_not_add_a_second_id(upstream_site: Site) -> None:
    upstream_site.failure = OmniConflictError
    answer = upstream_site.client.get("/raise")
    assert answer.headers.get_list("x-request-id") == [answer.json()["error"]["request_id"]]
    cleaned = upstream_site.client.get("/ping", headers={"X-Request-Id": "a b<c>"})
    assert cleaned.headers.get_list("x-request-id") == ["abc"]


Counted = list[tuple[str, ...]]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """What is counted: transport, type and status, or only the transport of a request that was given up."""
    found: Counted = []
    monkeypatch.setattr(
        metrics, "count_error", lambda details, by: found.append((by, details.error_type, str(details.status_code)))
    )
    monkeypatch.setattr(metrics, "count_cancelled", lambda by: found.append((by,)))
    return found


async def given_up(app: ASGIApp, *, sent: int) -> list[Message]:
    """The messages of an application whose client leaves after so many of them."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"} if len(messages) >= sent else {"type": "http.request"}

    async def send(message: Message) -> None:
        messages.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    await request.RequestIdentity(app)(scope, receive, send)
    return messages


START: Message = {"type": "http.response.start", "status": 200, "headers": []}
PART: Message = {"type": "http.response.body", "body": b"x", "more_body": True}
END: Message = {"type": "http.response.body", "body": b"", "more_body": False}


def test_an_error_is_counted_once_whoever_answers_it(site: Site, counted: Counted) -> None:
    for path in ("/bad", "/nope"):
        site.client.get(path)
    assert counted == [("http", "Not Found", "404"), ("http", "Not Found", "404")]


def test_a_successful_answer_is_not_counted(site: Site, counted: Counted) -> None:
    site.client.get("/echo")
    assert counted == []


@pytest.mark.parametrize("messages", [[], [START, PART]])
async def test_a_request_that_the_client_gave_up_is_counted_apart(counted: Counted, messages: list[Message]) -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(dict(message))
        await receive()

    await given_up(app, sent=len(messages))
    assert counted == [("http",)]


async def test_an_answer_to_a_client_that_is_gone_is_no_success(counted: Counted) -> None:
    """vLLM's routes stop on a disconnect, and then answer nobody with 200."""

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        for message in (START, END):
            await send(dict(message))

    await given_up(app, sent=0)
    assert counted == [("http",)]


async def test_a_cancelled_task_is_counted_apart_and_stays_cancelled(counted: Counted) -> None:
    async def app(*_: object) -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await given_up(app, sent=9)
    assert counted == [("http",)]


async def test_a_client_that_leaves_after_the_whole_answer_gave_nothing_up(counted: Counted) -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        for message in (START, PART, END):
            await send(dict(message))
        await receive()

    await given_up(app, sent=3)
    assert counted == []


async def test_an_error_that_nobody_waits_for_is_counted_once(counted: Counted) -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({**START, "status": 503})

    await given_up(app, sent=0)
    assert counted == [("http", "Service Unavailable", "503")]
