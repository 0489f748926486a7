# SPDX-License-Identifier: Apache-2.0
"""Errors of duplex sessions on the migrated server; no model of the rig is duplex (duplex_server.py)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import unavailable
from conftest import tree_of
from contract import nothing_leaks
from conversation import Conversation, converse
from support import SIX

from vllm_omni_rig.server import Server

SCRIPT = Path(__file__).with_name("duplex_server.py")
PATHS = ("/v1/duplex", "/v1/realtime?duplex=1")


@pytest.fixture(scope="module")
def duplex(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("duplex") / "log"
    with unavailable.running(tree_of("migrated"), log, SCRIPT) as server:
        yield server


def opening(model: str) -> dict[str, Any]:
    return {"type": "session.update", "session": {"model": model}}


RESUME = {"type": "session.resume", "session_id": "nobody", "resume_token": "x", "last_received_server_event_seq": 0}
APPEND = {"type": "input_audio_buffer.append", "event_id": "mine", "audio": "AAAA"}

# first messages, status, type, parameter, word, close code
ENDS = [
    ([opening("full")], 503, "ServiceUnavailableError", None, 1013),
    ([opening("dead")], 500, "InternalServerError", None, 1011),
    ([opening("wrong")], 400, "BadRequestError", "session", 1008),
    ([opening("broken")], 500, "InternalServerError", None, 1011),
    ([{"type": "session.resume"}], 400, "BadRequestError", None, 1008),
    ([RESUME], 404, "NotFoundError", None, 1008),
]

# messages after the session is open, status, type, parameter, client's event
ANSWERED = [
    ("no JSON", 400, "BadRequestError", None, None),
    ("[]", 400, "BadRequestError", None, None),
    ({"type": 5}, 400, "BadRequestError", None, None),
    (b"\xff", 400, "BadRequestError", None, None),
    ({"type": "nope", "event_id": "mine"}, 400, "BadRequestError", "type", "mine"),
    (APPEND | {"format": "zip"}, 400, "BadRequestError", "format", "mine"),
    (APPEND | {"audio": "abc"}, 422, "UnprocessableEntityError", "audio", "mine"),
    ({"type": "session.event_ack", "event_id": "mine", "server_event_seq": 10**6}, 400, "BadRequestError",
     "server_event_seq", "mine"),
    (RESUME | {"event_id": "mine"}, 400, "BadRequestError", "type", "mine"),
    (APPEND, 500, "InternalServerError", None, "mine"),
]  # fmt: skip


async def talk(server: Server, path: str, sent: Sequence[Any], errors: int | None = None) -> Conversation:
    talked = await converse(server.url + path, sent, errors=errors)
    assert isinstance(talked, Conversation), talked
    nothing_leaks(talked.text)
    return talked


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("sent", "status", "kind", "param", "close"), ENDS)
async def test_a_session_that_cannot_be_had(
    duplex: Server, path: str, sent: list[Any], status: int, kind: str, param: str | None, close: int
) -> None:
    """W04, W10: stock sent another shape and broke the connection off."""
    talked = await talk(duplex, path, sent)
    (event,) = talked.received
    error = event["error"]
    assert set(error) == SIX
    assert (error["code"], error["type"], error["param"]) == (status, kind, param)
    assert (talked.code, bool(talked.reason)) == (close, True)


@pytest.mark.parametrize(("message", "status", "kind", "param", "event_id"), ANSWERED)
async def test_a_message_that_fails_in_a_session(
    duplex: Server, message: Any, status: int, kind: str, param: str | None, event_id: str | None
) -> None:
    """W02: the session stays open, and the client's event is named."""
    talked = await talk(duplex, PATHS[0], [opening("any"), message], errors=1)
    assert (talked.types, talked.code) == (["session.created", "error"], None)
    error = talked.errors[0]["error"]
    assert set(error) - {"event_id"} == SIX
    assert (error["code"], error["type"], error["param"], error.get("event_id")) == (status, kind, param, event_id)
    assert error["request_id"]


async def test_case_z09_a_first_message_that_is_no_event_can_be_corrected(duplex: Server) -> None:
    talked = await talk(duplex, PATHS[0], ["no JSON", "[" * 100_000, b"\xff", "[]", opening("any")], errors=4)
    assert (talked.types, talked.code) == (["error"] * 4 + ["session.created"], None)
    assert {(each["error"]["code"], each["error"]["type"]) for each in talked.errors} == {(400, "BadRequestError")}


async def test_case_w04_a_session_whose_events_cannot_be_sent_ends_in_an_error(duplex: Server) -> None:
    talked = await talk(duplex, PATHS[0], [opening("any"), APPEND | {"event_id": "breaking"}])
    assert (talked.types, talked.code) == (["session.created", "error"], 1011)
    error = talked.errors[0]["error"]
    assert (error["code"], error["type"], error["message"]) == (500, "InternalServerError", "Internal server error")
