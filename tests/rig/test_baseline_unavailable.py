# SPDX-License-Identifier: Apache-2.0
"""Stock without a handler for a route, and stock stalled by a name: as they are today."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import unavailable
from calls import completions
from support import Seen, get, seen, send

from vllm_omni_rig.server import Server

LONG_NAME = "/a" * 8_000
STALL_S = 8.0
"""It lasts for 47 s; other requests take some milliseconds."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with unavailable.running(None, tmp_path_factory.mktemp("log") / "stock.log") as server:
        yield server
        os.kill(server.process, signal.SIGKILL)  # a stalled server does not stop by itself


STOCK = {
    "chat": Seen(200, "BadRequestError", None, "", "2xx"),
    "chat stream": Seen(200, "BadRequestError", None, "", "2xx"),
    "chat batch": Seen(200, "BadRequestError", None, "", "2xx"),
    "speech": Seen(404, "NotFoundError", None, "four", "4xx"),
    "speech batch": Seen(404, "NotFoundError", None, "four", "4xx"),
    "audio": Seen(404, "NotFoundError", None, "four", "4xx"),
    "voices": Seen(404, "NotFoundError", None, "four", "4xx"),
    "voice upload": Seen(404, "NotFoundError", None, "four", "4xx"),
    "voice deletion": Seen(404, "NotFoundError", None, "four", "4xx"),
    "images": Seen(503, "Service Unavailable", None, "four", "5xx"),
}


@pytest.mark.parametrize("route", unavailable.CALLS)
def test_a_route_without_a_handler(server: Server, route: str) -> None:
    """M01, M02: for chat it is a success, and counted as one, whose body is an error of code 400."""
    answer = send(server.url, unavailable.CALLS[route])
    assert seen(answer) == STOCK[route]
    assert answer.counted == (STOCK[route].counted,)
    assert answer.error["code"] == (400 if answer.status == 200 else answer.status)


@pytest.mark.parametrize("route", unavailable.NOT_IMPLEMENTED)
def test_an_operation_that_the_engine_does_not_have(server: Server, route: str) -> None:
    answer = send(server.url, unavailable.NOT_IMPLEMENTED[route])
    assert seen(answer) == Seen(501, "Not Implemented", None, "four", "5xx")
    assert "x-should-retry" not in answer.headers


def test_a_name_of_16000_characters_stalls_the_whole_server(server: Server) -> None:
    """The last test of this server: nothing is answered by it any more, /health neither."""

    def ask() -> None:
        with pytest.raises(httpx.TransportError):
            send(server.url, completions(model=LONG_NAME, prompt="x"), deadline_s=STALL_S)

    assert send(server.url, get("/v1/models"), deadline_s=STALL_S).status == 200
    stalling = threading.Thread(target=ask)
    stalling.start()
    time.sleep(0.5)
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"{server.url}/health", timeout=STALL_S)
    stalling.join()
