# SPDX-License-Identifier: Apache-2.0
"""Every transport tells every failure the same way (matrix.py; contract, section 5)."""

import re
from collections.abc import Mapping

import matrix
import pytest
from contract import nothing_leaks
from failures_table import MIGRATED
from matrix import BATCHES, BROKEN_OFF, FAILURES, PART, TABLE, Fields, Row, Told
from offline import CONCURRENT, LATE, Offline

from vllm_omni_rig.server import Server

CELLS = [
    pytest.param(row, failure, moment, id=f"{row.title}-{failure}-{moment}")
    for row in TABLE
    for failure in FAILURES
    for moment in ("before", "after")
    if not matrix.is_reason(getattr(row, moment))
]
CLOSES = {"unavailable": 1013}
"""The code with which a server's failure closes a socket, where it is not 1011."""


@pytest.fixture(scope="module")
def reference(migrated: Server) -> Mapping[str, Fields]:
    """What the image route of two real stages says of each failure."""
    return {
        failure: matrix.ask_for_an_image(migrated.url, f"FAULT:raise={name}").fields
        for failure, name in FAILURES.items()
    }


def without_stage(fields: Fields) -> Fields:
    """Servers differ in the number of their last stage, and a stage that raises does not know its own."""
    return {name: re.sub(r"^(Stage \d|The engine)", "Somebody", str(value)) for name, value in fields.items()}


def expected_how(row: Row, failure: str, moment: str) -> str:
    """How the client of a cell is told."""
    told: str = getattr(row, moment)
    status = MIGRATED[FAILURES[failure]].status
    if told == matrix.STATUS:
        return str(status)
    if told == matrix.SOCKET and status < 500:
        return "open"
    if told in (matrix.SOCKET, matrix.SESSION):
        return f"close {1008 if status < 500 else CLOSES.get(failure, 1011)}"
    return told


def same(told: Told, reference: Fields, failure: str) -> None:
    """The fields that an envelope has are those of the reference, whose type and parameter are the table's."""
    expected = MIGRATED[FAILURES[failure]]
    assert (reference["code"], reference["type"], reference["param"]) == (
        expected.status,
        expected.type,
        expected.param,
    )
    fields = without_stage(told.fields)
    assert fields == {name: without_stage(reference)[name] for name in fields}
    nothing_leaks(str(told.fields))


@pytest.mark.parametrize(("row", "failure", "moment"), CELLS)
def test_a_failure_is_told_alike_on_every_transport(
    request: pytest.FixtureRequest, reference: Mapping[str, Fields], row: Row, failure: str, moment: str
) -> None:
    """S01, S04, S09, S11, S13, W04, W10, J05: before the first byte a status, after it the transport's last word."""
    if row.server in ("two stages", "speakers"):
        server = request.getfixturevalue("migrated" if row.server == "two stages" else row.server)
    else:
        server = request.getfixturevalue("scripted")(row.server, "migrated")
    text = f"{PART if moment == 'after' else ''}FAULT:raise={FAILURES[failure]}"
    told = row.ask(server.url, text)
    assert told.how == expected_how(row, failure, moment)
    assert told.begun in (None, moment == "after")
    assert bool(told.fields) is (told.how != BROKEN_OFF)
    same(told, reference[failure], failure)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("form", ["list", "generator"])
def test_a_failure_is_told_alike_offline(
    offline: Offline, reference: Mapping[str, Fields], form: str, failure: str
) -> None:
    same(matrix.of_an_exception(offline(form)[BATCHES[failure]]["error"]), reference[failure], failure)


@pytest.mark.parametrize("failure", [failure for failure, name in FAILURES.items() if name in LATE])
def test_a_failure_after_an_output_is_told_alike_offline(
    offline: Offline, reference: Mapping[str, Fields], failure: str
) -> None:
    """A list is returned whole; a stage that dies is the last that its engine says, and has the test above."""
    found = offline("generator")[f"late {FAILURES[failure]}"]
    assert found["outputs"] == 1
    same(matrix.of_an_exception(found["error"]), reference[failure], failure)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_is_told_alike_by_async_omni(offline: Offline, reference: Mapping[str, Fields], failure: str) -> None:
    """Of a stage of the rig there is one output; after a part of it `AsyncOmni` is what the streams above read."""
    (found,) = offline("async").values()
    error = found["requests"][CONCURRENT.index(f"FAULT:raise={FAILURES[failure]}")]["error"]
    same(matrix.of_an_exception(error), reference[failure], failure)
