# SPDX-License-Identifier: Apache-2.0
"""M15: media that the server can never have is 422, what may come at the next try is 500; neither quotes the URL."""

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from calls import PNG, TRUNCATED, edits
from cases import Seen, now
from contract import client_error, nothing_leaks, verify, verify_client
from media_server import serving
from support import send

from vllm_omni_rig.server import Server

QUERY = "token=rig-query-canary-0815"
CANNOT = now(422, "UnprocessableEntityError", "image")
TRY_AGAIN = now(500, "InternalServerError")
TRY_AGAIN_TEXT = "The media could not be fetched; try again."

BODIES = {
    "/good.png": PNG,
    "/garbage.png": b"\x00\x01\x02 not an image \xff" * 20,
    "/text.html": b"<html>not an image</html>",
    "/truncated.png": TRUNCATED,
    "/empty.png": b"",
}

SOURCES: dict[str, Seen] = {
    "/400": CANNOT,
    "/401": CANNOT,
    "/403": CANNOT,
    "/404": CANNOT,
    "/410": CANNOT,
    "/garbage.png": CANNOT,
    "/text.html": CANNOT,
    "/truncated.png": CANNOT,
    "/empty.png": CANNOT,
    "/408": TRY_AGAIN,
    "/429": TRY_AGAIN,
    "/500": TRY_AGAIN,
    "/502": TRY_AGAIN,
    "/503": TRY_AGAIN,
    "/504": TRY_AGAIN,
    "/nothing": TRY_AGAIN,
    "/half": TRY_AGAIN,
}
"""Path on the media server → what comes of an edit of it."""


class Media(BaseHTTPRequestHandler):
    """Serves :data:`BODIES`; a number is a status; ``/nothing`` closes without a word, ``/half`` in mid-body."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/nothing":
            self.close_connection = True
            return
        body = PNG if path == "/half" else BODIES.get(path, b"no")
        self.send_response(200 if path in BODIES or path == "/half" else int(path[1:]))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:40] if path == "/half" else body)
        self.close_connection = path == "/half"


@pytest.fixture(scope="module")
def media() -> Iterator[str]:
    with serving(Media) as url:
        yield url


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("stages", [2, 1])
@pytest.mark.parametrize("path", SOURCES)
def test_an_edit_of_a_url(migrated: Server, migrated_inline: Server, media: str, path: str, stages: int) -> None:
    server = migrated if stages == 2 else migrated_inline
    answer = send(server.url, edits("x", url=f"{media}{path}?{QUERY}"))
    verify(answer, SOURCES[path])
    assert answer.counted == (SOURCES[path].counted,)
    nothing_leaks(answer.text, [QUERY, "rig-password-4711", "127.0.0.1", "not an image"])
    if SOURCES[path] is TRY_AGAIN:
        assert answer.error["message"] == TRY_AGAIN_TEXT


@pytest.mark.parametrize("path", SOURCES)
def test_stock_took_every_failure_for_the_clients(stock: Server, media: str, path: str) -> None:
    """Baseline. A truncated image got past its lazy decoder, and failed in the conversion for the stage."""
    answer = send(stock.url, edits("x", url=f"{media}{path}?{QUERY}"))
    assert answer.status == (500 if path == "/truncated.png" else 400)


def test_an_edit_of_a_url_that_refuses(migrated: Server) -> None:
    answer = send(migrated.url, edits("x", url=f"http://127.0.0.1:{closed_port()}/x.png"))
    verify(answer, TRY_AGAIN)
    assert answer.error["message"] == TRY_AGAIN_TEXT


def test_an_edit_of_a_url_whose_host_does_not_exist(migrated: Server) -> None:
    verify(send(migrated.url, edits("x", url="http://host.invalid/x.png")), TRY_AGAIN)


@pytest.mark.parametrize("url", ["http://", "http:///x.png", "http://[::1/x.png", "http://127.0.0.1:99999/x.png"])
def test_an_edit_of_a_url_that_is_none(migrated: Server, url: str) -> None:
    verify(send(migrated.url, edits("x", url=url)), CANNOT)


def test_an_edit_of_a_good_url_still_works(migrated: Server, media: str) -> None:
    assert send(migrated.url, edits("x", url=f"{media}/good.png", size="64x64")).status == 200


@pytest.mark.parametrize("path", ["/404", "/503"])
def test_the_official_client_sees_whether_a_repetition_may_help(migrated: Server, media: str, path: str) -> None:
    """It repeats a 500 by itself, and gives up on a 422 at once."""
    verify_client(client_error(migrated.url, edits("x", url=media + path)), SOURCES[path])
