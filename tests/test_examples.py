# SPDX-License-Identifier: Apache-2.0
"""The example of a server that is not vLLM-Omni, run as its page says, and asked."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from vllm_omni_rig.environment import variables

SERVER = Path(__file__).parent.parent / "examples" / "captions" / "server.py"
START_S = 280
PATIENCE_S = 60


class Captions:
    """The running example."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
        self.process, self.url, self.log = process, url, log

    def post(self, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/captions", json=body, timeout=PATIENCE_S)

    def error(self, status: int, **body: Any) -> dict[str, Any]:
        """The error object of an answer, which has that status in both places, and a request id."""
        answer = self.post(**body)
        error: dict[str, Any] = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, status)
        assert answer.headers["x-request-id"] == error["request_id"]
        return error

    @property
    def stage(self) -> psutil.Process:
        return psutil.Process(self.process.pid).children()[0]


@contextmanager
def running(log: Path) -> Iterator[Captions]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), str(port)],
            env={**os.environ, **variables()},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + START_S
        while b"Uvicorn running" not in log.read_bytes():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield Captions(process, f"http://127.0.0.1:{port}", log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captions]:
    with running(tmp_path_factory.mktemp("captions") / "log") as server:
        yield server


def test_a_server_that_is_stopped_ends_with_its_stage(tmp_path: Path) -> None:
    with running(tmp_path / "log") as server:
        stage = server.stage
    assert server.process.returncode == 0
    assert not stage.is_running()


def test_a_request_goes_through_both_processes(captions: Captions) -> None:
    assert captions.post(text="so loud").json() == {"caption": "SO LOUD"}


def test_a_mistake_that_the_stage_finds_is_the_clients_with_parameter_and_stage(captions: Captions) -> None:
    error = captions.error(400, text="x", style="secret-style")
    assert (error["type"], error["param"], error["error_stage_id"]) == ("BadRequestError", "style", 1)
    assert "secret-style" not in error["message"]


def test_a_bug_of_the_stage_is_a_500_whose_text_is_only_in_the_log(captions: Captions) -> None:
    error = captions.error(500, text="two  spaces", style="initials")
    assert (error["type"], error["message"], error["error_stage_id"]) == (
        "InternalServerError",
        "Internal server error",
        1,
    )
    assert "IndexError" in captions.log.read_text()


def test_a_wrong_body_and_an_unknown_route_have_the_same_object(captions: Captions) -> None:
    assert captions.error(400, style="loud")["param"] == "body.text"
    answer = httpx.get(f"{captions.url}/nowhere")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "Not Found")


def test_a_stage_that_says_nothing_is_a_504_that_is_not_repeated(captions: Captions) -> None:
    captions.stage.suspend()
    try:
        answer = captions.post(text="x")
    finally:
        captions.stage.resume()
    assert (answer.status_code, answer.headers["x-should-retry"]) == (504, "false")
    assert captions.post(text="x").json() == {"caption": "X"}


def test_a_stage_that_dies_is_a_500_for_what_it_was_doing_and_a_503_from_then_on(captions: Captions) -> None:
    gone = captions.stage
    gone.suspend()
    body = b'{"text": "x"}'
    with socket.create_connection(("127.0.0.1", int(captions.url.rpartition(":")[2])), PATIENCE_S) as asking:
        head = "POST /v1/captions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
        asking.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        for _ in range(3):  # whoever is answered after it shows that it was read
            httpx.get(f"{captions.url}/nowhere")
        gone.kill()
        answer = b"".join(iter(lambda: asking.recv(65_536), b"")).decode()
    assert answer.startswith("HTTP/1.1 500 ")
    assert '"error_stage_id":1' in answer
    while gone.is_running() and gone.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    error = captions.error(503, text="x")
    assert (error["type"], error["error_stage_id"]) == ("ServiceUnavailableError", 1)
