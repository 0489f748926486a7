# SPDX-License-Identifier: Apache-2.0
"""Whatever a server does with a request, the probe gets it back as an answer or as the way in which it failed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from vllm_omni_errors.probe.call import HIDDEN, Call
from vllm_omni_errors.probe.client import Answer, Client
from vllm_omni_errors.probe.media import MediaServer, refusing_url
from vllm_omni_errors.probe.record import ProbeError

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def behaving(behaviour: Behaviour) -> AsyncIterator[str]:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await behaviour(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def get(behaviour: Behaviour, deadline_s: float = 5.0) -> Answer:
    async with behaving(behaviour) as url, Client(url, {}) as client:
        return await client.send(Call("GET", "/"), deadline_s)


def saying(data: bytes) -> Behaviour:
    async def behaviour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return behaviour


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def dripping(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_an_answer_comes_back_whole() -> None:
    answer = await get(saying(b"HTTP/1.1 418 Teapot\r\nX-A: b\r\nContent-Length: 2\r\n\r\n{}"))
    assert (answer.status, answer.headers["x-a"], answer.json(), answer.failure) == (418, "b", {}, None)


@pytest.mark.parametrize(
    ("behaviour", "failure"),
    [
        (saying(b""), "dropped"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), "dropped"),
        (saying(b"+OK redis\r\n"), "dropped"),
    ],
    ids=["closes at once", "closes in the body", "is no HTTP"],
)
async def test_an_answer_that_does_not_come_is_told(behaviour: Behaviour, failure: str) -> None:
    answer = await get(behaviour)
    assert (answer.status, answer.failure) == (None, failure)
    assert answer.problem


@pytest.mark.parametrize("behaviour", [silent, dripping])
async def test_the_deadline_is_for_the_whole_answer(behaviour: Behaviour) -> None:
    answer = await get(behaviour, deadline_s=0.2)
    assert (answer.status, answer.failure, answer.problem) == (None, "timeout", "no answer within 0.2 s")


async def test_nobody_there_is_told() -> None:
    async with Client(refusing_url(), {}) as client:
        assert (await client.send(Call("GET", "/"), 5)).failure == "refused"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "http://host:port", "no url"])
def test_what_is_no_url_cannot_be_probed(url: str) -> None:
    with pytest.raises(ProbeError, match="URL"):
        Client(url, {})


def test_credentials_in_the_url_are_not_part_of_what_is_shown() -> None:
    assert Client("http://user:secret@[::1]:8000/base/", {}).root == "http://[::1]:8000/base"


async def test_the_users_headers_are_sent_and_never_shown() -> None:
    async def echo(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 401 No\r\nX-Echo: my-secret-token\r\nContent-Length: 22\r\n\r\nBearer my-secret-token")

    async with behaving(echo) as url, Client(url, {"Authorization": "Bearer my-secret-token"}) as client:
        answer = await client.send(Call("GET", "/"), 5)
        shown = client.evidence(answer)
    assert answer.headers["x-echo"] == "my-secret-token"
    assert "my-secret-token" not in repr(shown)
    assert shown.request["headers"] == {"Authorization": HIDDEN}


async def test_evidence_is_bounded() -> None:
    async with Client("http://host", {}) as client:
        shown = client.evidence(
            Answer(Call("GET", "/"), 0.1, 400, {f"x-{n}": "y" * 9_000 for n in range(99)}, b"z" * 10**6)
        )
    assert len(repr(shown)) < 20_000


async def test_the_media_server_answers_as_its_url_says() -> None:
    async with MediaServer() as media, Client(media.url(404).removesuffix("/404/"), {}) as client:
        assert (await client.send(Call("GET", "/404/a.png"), 5)).status == 404
        assert (await client.send(Call("GET", "/503/a.png"), 5)).status == 503
        assert (await client.send(Call("GET", "/nonsense"), 5)).failure == "dropped"
        assert media.requests == 3
