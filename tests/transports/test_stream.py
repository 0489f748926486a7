# SPDX-License-Identifier: Apache-2.0
"""A stream whose first item is awaited: what fails before it is raised, what fails after it breaks it off."""

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from starlette.testclient import TestClient

from vllm_omni_errors import OmniClientError, install
from vllm_omni_errors.exceptions import OmniServerError
from vllm_omni_errors.transports.stream import started

Log = list[str]


async def items(log: Log, *script: bytes | Exception) -> AsyncGenerator[bytes, None]:
    """Yield the bytes, raise the exceptions, and note the end."""
    try:
        for each in script:
            if isinstance(each, Exception):
                raise each
            yield each
    finally:
        log.append("closed")


async def test_items_come_in_their_order_and_empty_ones_do_not_start_it() -> None:
    stream = await started(items([], b"", b"a", b"", b"b"))
    assert [item async for item in stream] == [b"a", b"", b"b"]


async def test_a_failure_before_the_first_item_is_raised() -> None:
    log: Log = []
    with pytest.raises(OmniClientError, match="no such voice"):
        await started(items(log, b"", OmniClientError("no such voice")))
    assert log == ["closed"]


@pytest.mark.parametrize("script", [(), (b"",)])
async def test_a_stream_of_nothing_is_a_failure(script: tuple[bytes, ...]) -> None:
    with pytest.raises(OmniServerError):
        await started(items([], *script))


async def test_what_was_never_read_is_closed() -> None:
    log: Log = []
    stream = await started(items(log, b"a", b"b"))
    assert log == []
    await stream.aclose()
    assert log == ["closed"]


async def test_a_client_that_leaves_before_the_first_item_ends_it() -> None:
    log: Log = []

    async def silent() -> AsyncGenerator[bytes, None]:
        try:
            await asyncio.Event().wait()
            yield b"never"
        finally:
            log.append("closed")

    waiting = asyncio.create_task(started(silent()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert log == ["closed"]


async def test_cancellation_after_the_first_item_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def cancelled() -> AsyncGenerator[bytes, None]:
        yield b"a"
        raise asyncio.CancelledError

    stream = await started(cancelled())
    with pytest.raises(asyncio.CancelledError):
        [item async for item in stream]
    assert not caplog.records


def application(*script: bytes | Exception) -> TestClient:
    app = FastAPI()

    @app.get("/audio")
    async def audio() -> StreamingResponse:
        return StreamingResponse(await started(items([], *script)), media_type="audio/pcm")

    install(app, raw_mapping=False)
    return TestClient(app, raise_server_exceptions=True)


def test_a_failure_before_the_first_byte_is_an_http_error() -> None:
    answer = application(OmniClientError("no such voice", status_code=404)).get("/audio")
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, "no such voice")


def test_a_failure_after_it_breaks_the_answer_off_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    client = application(b"a", ValueError("/secret"))
    with caplog.at_level(logging.INFO, "vllm_omni_errors"), pytest.raises(RuntimeError, match="already started"):
        client.get("/audio", headers={"x-request-id": "mine"})
    (record,) = [record for record in caplog.records if record.name == "vllm_omni_errors"]
    assert record.levelname == "ERROR"
    assert "GET /audio: 500 InternalServerError" in record.getMessage()
    assert "request_id=mine" in record.getMessage()
