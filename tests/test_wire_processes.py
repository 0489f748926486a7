# SPDX-License-Identifier: Apache-2.0
"""Records between real processes over real ZMQ sockets. Run as a program, this module is a stage."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import zmq

from vllm_omni_errors import wire
from vllm_omni_errors.details import OmniErrorDetails

PORTS = {"min_port": 8700, "max_port": 8800}
PATIENCE_MS = 60_000
GARBAGE = [
    b"",
    b"\xc1",
    b"\x91" * 5_000,
    msgspec.msgpack.encode({"error_details": {"status_code": 400}}),
    b"\x81\xa5error",
]


def record(stage_id: int, number: int) -> OmniErrorDetails:
    """The stage's error number so and so; they differ in size, side and text."""
    text, request_id = f"No {number} " + "é世 " * (number % 500), f"chatcmpl-{number}"
    if number % 2:
        return OmniErrorDetails(text, "client", 400, "BadRequestError", "size", request_id, stage_id)
    return OmniErrorDetails(text, "server", 500, "InternalServerError", None, request_id, stage_id, fatal=True)


# --- a stage ---------------------------------------------------------------------------------------------------------


def floods(socket: Any, stage_id: int) -> None:
    """Send errors until somebody kills this process."""
    number = 0
    while True:
        socket.send(msgspec.msgpack.encode({"type": "error", **wire.to_fields(record(stage_id, number))}))
        number += 1


def spoils(socket: Any, stage_id: int) -> None:
    """Send garbage between errors."""
    for number, garbage in enumerate(GARBAGE):
        socket.send(garbage)
        socket.send(wire.encode(record(stage_id, number)))
    socket.recv()


def echoes(socket: Any, stage_id: int) -> None:
    """Send back every record, as a relay does, from its bytes."""
    socket.send(b"ready")
    while True:
        socket.send(wire.encode(wire.decode(socket.recv())))


if __name__ == "__main__":
    _, behaviour, address, stage_number = sys.argv
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(address)
    {"floods": floods, "spoils": spoils, "echoes": echoes}[behaviour](dealer, int(stage_number))


# --- the orchestrator ------------------------------------------------------------------------------------------------


@pytest.fixture
def socket() -> Iterator[Any]:
    """The socket that stages connect to; nothing waits on it for ever."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
    socket.setsockopt(zmq.SNDTIMEO, PATIENCE_MS)
    socket.bind_to_random_port("tcp://127.0.0.1", **PORTS)
    yield socket
    socket.close()
    context.term()


@contextmanager
def stage(socket: Any, behaviour: str, stage_id: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A stage process, connected to the socket."""
    address = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    process = subprocess.Popen([sys.executable, __file__, behaviour, address, str(stage_id)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def read(data: bytes) -> OmniErrorDetails | None:
    return wire.read(msgspec.msgpack.decode(data))


def test_records_arrive_whole_while_their_writer_is_killed_and_another_goes_on(socket: Any) -> None:
    for stage_id in (1, 2):
        with stage(socket, "floods", stage_id) as writer:
            received = [read(socket.recv()) for _ in range(300)]
            assert socket.poll(PATIENCE_MS)  # it is still writing
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
            while socket.poll(500):
                received.append(read(socket.recv()))
        assert len(received) > 300
        assert received == [record(stage_id, number) for number in range(len(received))]


def test_garbage_between_records_breaks_no_reader(socket: Any) -> None:
    with stage(socket, "spoils", 1):
        for number in range(len(GARBAGE)):
            assert wire.decode(socket.recv()) is wire.BROKEN
            assert wire.decode(socket.recv()) == record(1, number)


def test_records_travel_both_ways_until_the_reader_is_killed(socket: Any) -> None:
    with stage(socket, "echoes", 1) as reader:
        assert socket.recv() == b"ready"
        for number in range(100):
            sent = replace(record(1, number), stage_id=None)
            socket.send(wire.encode(sent))
            assert wire.decode(socket.recv()) == sent
        os.kill(reader.pid, signal.SIGSTOP)
        socket.send(wire.encode(record(1, 100)))
        os.kill(reader.pid, signal.SIGKILL)
        reader.wait()
    assert socket.poll(500) == 0
    with stage(socket, "echoes", 2):
        assert socket.recv() == b"ready"
        socket.send(wire.encode(record(2, 0)))
        assert wire.decode(socket.recv()) == record(2, 0)
