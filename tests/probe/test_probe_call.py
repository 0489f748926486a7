# SPDX-License-Identifier: Apache-2.0
"""What is sent is what the shown command sends again."""

import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from vllm_omni_errors.probe.call import HIDDEN, Call, File, curl, shown_body
from vllm_omni_errors.probe.client import Client


class Recorder(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.seen.append((self.path, self.headers, self.rfile.read(length)))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def recorder() -> Any:
    server = HTTPServer(("127.0.0.1", 0), Recorder)
    server.seen = []  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


JSON_CALLS = [
    Call("POST", "/x", json={"prompt": 'it\'s "quoted" $HOME `id`', "n": 1}),
    Call("POST", "/x", json={"model": "/a" * 8_000}),
    Call("POST", "/x", json={"messages": ["wrong"] * 4_000, "end": None}),
    Call("POST", "/x", json={"prompt": "word " * 1_000 + "wo"}),
    Call("POST", "/x", content=b"\x89PNG\x00\xff", headers={"Content-Type": "application/octet-stream"}),
]


@pytest.mark.parametrize("call", JSON_CALLS, ids=range(len(JSON_CALLS)))
async def test_the_command_sends_the_same_body(recorder: Any, call: Call) -> None:
    url = f"http://127.0.0.1:{recorder.server_port}"
    async with Client(url, {}) as client:
        assert (await client.send(call, 5)).status == 200
    command = curl(call, url)
    assert len(command) < 3_000
    subprocess.run(["bash", "-c", command], check=True, capture_output=True, timeout=30)
    (_, first_headers, first), (_, second_headers, second) = recorder.seen
    assert first == second
    assert first_headers["Content-Type"] == second_headers["Content-Type"]


async def test_the_command_sends_the_same_form(recorder: Any) -> None:
    url = f"http://127.0.0.1:{recorder.server_port}"
    call = Call("POST", "/x", form={"prompt": "@no file; a'b"}, files=(File("image", "a.png", b"\x89PNG\x00"),))
    async with Client(url, {}) as client:
        await client.send(call, 5)
    subprocess.run(["bash", "-c", curl(call, url)], check=True, capture_output=True, timeout=30)
    for _, headers, body in recorder.seen:
        boundary = headers["Content-Type"].partition("boundary=")[2].encode()
        parts = [part.strip(b"\r\n-") for part in body.split(boundary)]
        assert any(b'name="prompt"' in part and part.endswith(b"@no file; a'b") for part in parts)
        assert any(b'filename="a.png"' in part and part.endswith(b"\x89PNG\x00") for part in parts)


def test_a_form_without_a_file_is_still_multipart() -> None:
    assert Call("POST", "/x", form={"a": "b"}).arguments()["files"] == [("a", (None, "b"))]


def test_headers_of_the_user_are_left_out_of_the_command() -> None:
    command = curl(Call("GET", "/x"), "http://host", {"Authorization": "Bearer secret"})
    assert "secret" not in command
    assert f"Authorization: {HIDDEN}" in command


def test_what_would_be_too_long_a_command_is_a_comment() -> None:
    varied = " ".join(str(number) for number in range(10_000))
    assert curl(Call("POST", "/x", json={"a": varied}), "http://host").startswith("# POST /x")


def test_a_shown_body_is_bounded() -> None:
    shown = shown_body(Call("POST", "/x", json={"a": "b" * 100_000}))
    assert len(shown) < 2_100
    assert shown.endswith("(100,009 characters in all)")
