# SPDX-License-Identifier: Apache-2.0
"""A migrated server that has no handler for a route: 503, and the official client need not repeat (M02)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import unavailable
from cases import now
from contract import client_error, verify, verify_client
from support import send

from vllm_omni_rig.server import Server

MIGRATED = Path(__file__).parents[2] / "build" / "migrated"
UNAVAILABLE = now(503, "ServiceUnavailableError")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with unavailable.running(MIGRATED, tmp_path_factory.mktemp("log") / "migrated.log") as server:
        yield server


@pytest.mark.parametrize("route", unavailable.CALLS)
def test_a_route_without_a_handler(server: Server, route: str) -> None:
    call = unavailable.CALLS[route]
    answer = send(server.url, call)
    verify(answer, UNAVAILABLE, permanent=True)
    assert answer.counted == ("5xx",)
    verify_client(client_error(server.url, call, retries=2), UNAVAILABLE)


@pytest.mark.parametrize("route", unavailable.NOT_IMPLEMENTED)
def test_an_operation_that_the_engine_does_not_have(server: Server, route: str) -> None:
    call = unavailable.NOT_IMPLEMENTED[route]
    verify(send(server.url, call), now(501, "NotImplementedError"))
    verify_client(client_error(server.url, call, retries=2), now(501, "NotImplementedError"))
