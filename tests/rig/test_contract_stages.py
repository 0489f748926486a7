# SPDX-License-Identifier: Apache-2.0
"""A failure is classified once, where it happens, and arrives whole; one request's failure is one request's."""

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from calls import chat, images
from cases import now
from contract import verify
from failures_table import MIGRATED, MIGRATED_INPUT, NAMES, Table, calls
from support import Answers, send, send_all

from vllm_omni_rig.failures import CANARIES
from vllm_omni_rig.server import Server

ROUTES = ("images", "chat")
PLACES: Mapping[str, tuple[int, int, Table]] = {
    "stage0": (1, 0, MIGRATED),
    "stage1": (2, 1, MIGRATED),
    "input": (2, 1, MIGRATED_INPUT),
}
"""Place → how many stages the server has, the stage that the answer names, and the answers."""


@pytest.fixture(scope="module")
def server_of(migrated: Server, migrated_inline: Server) -> Mapping[int, Server]:
    return {1: migrated_inline, 2: migrated}


@pytest.fixture(scope="module")
def answers(server_of: Mapping[int, Server]) -> Mapping[tuple[str, str], Answers]:
    return {
        (route, place): send_all(server_of[stages].url, calls(route, place))
        for place, (stages, _, _) in PLACES.items()
        for route in ROUTES
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("route", ROUTES)
def test_an_exception_in_a_stage_arrives_with_status_type_parameter_and_stage(
    answers: Mapping[tuple[str, str], Answers], route: str, place: str, name: str
) -> None:
    """I01, I04, I13, M07: no class of exception is known on the way, and none has to be."""
    _, stage, table = PLACES[place]
    answer = answers[route, place].by_name[name]
    verify(answer, table[name])
    assert answer.error["error_stage_id"] == stage


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("route", ROUTES)
def test_it_is_counted_by_its_status(answers: Mapping[tuple[str, str], Answers], route: str, place: str) -> None:
    table = PLACES[place][2]
    found = answers[route, place]
    assert found.counted == found.expected({name: row.counted for name, row in table.items()})


@pytest.mark.parametrize("name", ["GuardrailViolationError", "VLLMValidationError", "VLLMUnprocessableEntityError"])
def test_the_same_failure_has_the_same_text_on_every_way(answers: Mapping[tuple[str, str], Answers], name: str) -> None:
    """What somebody typed for the client is what the client reads, whatever lies between."""
    texts = {place: answers["images", place].by_name[name].error["message"] for place in PLACES}
    assert {text.replace(f"injected at {place}", "injected") for place, text in texts.items()} == {
        re.sub("injected at stage1", "injected", texts["stage1"])
    }
    assert texts["stage1"].startswith(f"{name} injected at stage1")
    assert all(answers[route, "stage1"].by_name[name].error["message"] == texts["stage1"] for route in ROUTES)


@pytest.mark.parametrize("name", ["KeyError", "RuntimeError", "OutOfMemoryError", "NativeKVHandoffError"])
def test_what_nobody_typed_stays_in_the_log_of_its_stage(
    answers: Mapping[tuple[str, str], Answers], migrated: Server, name: str
) -> None:
    """Z11, I04: class, text and traceback are there; the client reads a fixed sentence."""
    assert answers["images", "stage1"].by_name[name].error["message"] == "Internal server error"
    log = migrated.log.read_text(errors="replace")
    assert f"{name} injected at stage1" in log
    assert CANARIES["path"] in log


def test_a_clients_mistake_is_one_line_of_the_log(migrated: Server) -> None:
    before = len(migrated.log.read_text(errors="replace"))
    assert send(migrated.url, images("FAULT:raise=VLLMValidationError@stage1")).status == 400
    written = migrated.log.read_text(errors="replace")[before:]
    assert "VLLMValidationError: VLLMValidationError injected at stage1" in written
    assert "Traceback" not in written


@pytest.mark.parametrize("stages", [1, 2])
def test_the_id_of_the_answer_is_in_the_log_of_the_stage(server_of: Mapping[int, Server], stages: int) -> None:
    """I11: who has the answer finds the cause."""
    server = server_of[stages]
    answer = send(server.url, images("FAULT:runtime"))
    logged = re.findall(r"ERROR .*request '([^']+)'", server.log.read_text(errors="replace"))
    assert any(each.startswith(answer.error["request_id"]) for each in logged), (answer.text, logged[-3:])


SICK = (
    "FAULT:runtime@stage1",
    "FAULT:raise=VLLMValidationError@stage1",
    "FAULT:s1input",
    "FAULT:raise=VLLMNotFoundError@input",
    "FAULT:guard@input",
    "FAULT:raise=MemoryError@input",
    "FAULT:wire=bytes",
    "FAULT:wire=shape",
)
"""The last two are messages of a stage that cannot be decoded. On stock they end the server, as does a raw exception of
the stage input processor, which runs in the orchestrator."""


def test_a_failing_request_harms_no_neighbour(migrated: Server) -> None:
    """L13: every second request fails, in the stage and before it; the others are answered."""
    prompts = [prompt for number, sick in enumerate(SICK * 2) for prompt in (sick, f"neighbour {number}")]

    def status(prompt: str) -> int:
        return send(migrated.url, images(prompt)).status

    with ThreadPoolExecutor(8) as pool:
        statuses = dict(zip(prompts, pool.map(status, prompts), strict=True))
    assert {
        prompt: found for prompt, found in statuses.items() if prompt.startswith("neighbour") and found != 200
    } == {}
    assert [statuses[sick] for sick in SICK] == [500, 400, 500, 404, 400, 500, 500, 500]


def test_a_request_whose_next_stage_gets_no_input_fails_with_the_stage_that_gave_none(migrated: Server) -> None:
    answer = send(migrated.url, images("FAULT:noinput"))
    verify(answer, now(500, "InternalServerError"))
    assert answer.error["error_stage_id"] == 0
    assert send(migrated.url, images("hi")).status == 200


@pytest.mark.parametrize("request_id", ["a/b", "é x", "c" * 300], ids=["slash", "not ASCII", "long"])
def test_a_failure_finds_its_request_by_any_id_that_the_client_chose(migrated: Server, request_id: str) -> None:
    """The engine knows the request by the id as it came; a record's id is cleaned, and nobody waits for that one."""
    call = chat("FAULT:value@stage1", modalities=["image"], request_id=request_id)
    answer = send(migrated.url, call, deadline_s=20)
    assert (answer.status, answer.error["error_stage_id"]) == (500, 1)
    assert request_id not in answer.text


@pytest.mark.parametrize("length", [128, 7_000])
def test_a_failure_finds_its_request_by_a_long_id_in_the_header(migrated: Server, length: int) -> None:
    call = replace(chat("FAULT:value@stage1", modalities=["image"]), headers={"X-Request-Id": "x" * length})
    assert send(migrated.url, call, deadline_s=20).status == 500
