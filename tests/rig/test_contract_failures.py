# SPDX-License-Identifier: Apache-2.0
"""What the migrated server makes of every exception that can be raised in it (failures_table.py)."""

from collections.abc import Mapping

import pytest
from contract import verify
from failures_table import MIGRATED, calls
from support import Answers, send_all

from vllm_omni_rig.server import Server

ROUTES = ("images", "chat")


@pytest.fixture(scope="module")
def front(migrated: Server) -> Mapping[str, Answers]:
    return {route: send_all(migrated.url, calls(route, "front")) for route in ROUTES}


@pytest.mark.parametrize("name", MIGRATED)
@pytest.mark.parametrize("route", ROUTES)
def test_an_exception_at_the_front_has_its_own_status_and_type(
    front: Mapping[str, Answers], route: str, name: str
) -> None:
    verify(front[route].by_name[name], MIGRATED[name])


@pytest.mark.parametrize("route", ROUTES)
def test_every_exception_is_counted_by_its_status(front: Mapping[str, Answers], route: str) -> None:
    """X01: a handler for each class is not enough, subclasses count too."""
    classes = {name: row.counted for name, row in MIGRATED.items()}
    assert front[route].counted == front[route].expected(classes)


@pytest.mark.parametrize(
    "name", ["KeyError", "RuntimeError", "OutOfMemoryError", "NativeKVHandoffError", "ExceptionGroup"]
)
def test_what_nobody_typed_is_the_servers_failure_and_its_text_is_not_public(
    front: Mapping[str, Answers], name: str
) -> None:
    """M05, M30, Z05: a raw `ValueError` of the engine is not the client's, 500."""
    for answers in front.values():
        answer = answers.by_name[name]
        assert (answer.status, answer.error["message"]) == (500, "Internal server error")
