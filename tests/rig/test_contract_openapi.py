# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of a migrated server is what it does.

schemathesis makes requests from it, and the document knows every answer of the tables of wrong requests.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cases
import httpx
import jsonschema
import pytest
import schemathesis
import seam_cases
import speaking
import test_contract_control as control
import test_contract_speech as speech
import test_contract_videos as videos
import test_contract_workers as workers
from calls import chat, images, responses
from contract import nothing_leaks
from failures_table import MIGRATED
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CheckFunction
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from support import handler_of, send
from video_calls import content, step, video

from vllm_omni_errors.transports import openapi
from vllm_omni_rig.server import Server

Start = Callable[..., Server]

EXAMPLES = 3
"""Requests for each operation that fit its schema, and as many that do not."""

DEADLINE_S = 20.0
FIRST_S = 60.0
"""vLLM makes the document when it is first asked for it, which takes the whole of a core for some seconds."""

CHECKS: Sequence[CheckFunction] = (
    status_code_conformance,
    response_headers_conformance,
    response_schema_conformance,
)

IN_VAIN = ("/v1/audio/generate", "/v1/audio/speech", "/v1/completions", "/v1/messages", "/v1/responses")
"""Routes that work and answer 500, for the rig's pipelines give them an image instead of a text or speech."""

NOT_ASKED = ("/v1/omni/sleep",)
"""It does what it is asked to: a list of no stages is a success after which no request is admitted, nor any wake-up."""

ONLY_VIDEO = ("/v1/images/", "/v1/realtime/sessions", "/v1/videos")
"""What a server of one diffusion stage is asked; the other one serves the rest."""


def document_of(server: Server) -> Any:
    return httpx.get(f"{server.url}/openapi.json", timeout=FIRST_S).json()


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """One generated request and its answer; ``wrong`` is what the document does not allow."""

    kind: str
    operation: str
    path: str
    answer: schemathesis.Response
    wrong: Sequence[Failure]

    def __str__(self) -> str:
        titles = [failure.title for failure in self.wrong]
        return f"{self.kind}: {self.operation}: {self.answer.status_code} {titles} {self.answer.text[:300]}"


def fuzz(kind: str, server: Server) -> Iterator[Fuzzed]:
    """Ask every operation of a server, the same questions in every run."""
    for found in schemathesis.openapi.from_dict(document_of(server)).get_all_operations():
        operation = found.ok()
        if operation.path in NOT_ASKED or (kind == "video" and not operation.path.startswith(ONLY_VIDEO)):
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            yield from _asked(kind, server, operation, mode)


def _asked(kind: str, server: Server, operation: Any, mode: GenerationMode) -> list[Fuzzed]:
    answers = []

    def ask(case: schemathesis.Case) -> None:
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body["model"] = "tiny"  # a model that is not served hides every other mistake
        answer = case.call(base_url=server.url, timeout=DEADLINE_S)
        answers.append(Fuzzed(kind, operation.label, operation.path, answer, _wrong(case, answer)))

    if mode is GenerationMode.POSITIVE or operation.body or operation.query:
        bounded = settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        bounded(given(operation.as_strategy(mode))(ask))()
    return answers


def _wrong(case: schemathesis.Case, answer: Any) -> Sequence[Failure]:
    try:
        case.validate_response(answer, checks=list(CHECKS))
    except FailureGroup as group:
        return [each for each in group.exceptions if isinstance(each, Failure)]
    return []


@pytest.fixture(scope="module")
def fuzzed(scripted: Start) -> Sequence[Fuzzed]:
    return [each for kind in ("multi", "video") for each in fuzz(kind, scripted(kind, "migrated"))]


def test_every_operation_is_asked(scripted: Start, fuzzed: Sequence[Fuzzed]) -> None:
    document = document_of(scripted("multi", "migrated"))
    asked = {path: item for path, item in document["paths"].items() if path not in NOT_ASKED}
    operations = {f"{method.upper()} {path}" for path, item in asked.items() for method in item}
    assert {each.operation for each in fuzzed if each.kind == "multi"} == operations
    assert sum(each.answer.status_code >= 400 for each in fuzzed) > len(operations)


def test_no_answer_is_undocumented(fuzzed: Sequence[Fuzzed]) -> None:
    """Neither its status, nor its headers, nor the shape of its body."""
    assert [str(each) for each in fuzzed if each.wrong] == []


def test_no_answer_is_a_servers_error_that_nobody_asked_for(fuzzed: Sequence[Fuzzed]) -> None:
    """An answer that this server will never serve the route is the client's to know, and says so."""

    def expected(each: Fuzzed) -> bool:
        never = each.answer.status_code in (501, 503) and "false" in each.answer.headers.get("x-should-retry", ())
        return never or (each.path in IN_VAIN and each.answer.status_code == 500)

    assert [str(each) for each in fuzzed if each.answer.status_code >= 500 and not expected(each)] == []


def test_no_error_leaks(fuzzed: Sequence[Fuzzed]) -> None:
    for each in fuzzed:
        if each.answer.status_code >= 400:
            nothing_leaks(each.answer.text)


def test_an_errors_code_is_its_status(fuzzed: Sequence[Fuzzed]) -> None:
    failed = [(each.answer.status_code, each) for each in fuzzed if each.answer.status_code >= 400]
    assert [str(each) for status, each in failed if each.answer.json()["error"].get("code", status) != status] == []


TABLES = (
    cases.TWO_STAGES,
    cases.ONE_STAGE,
    seam_cases.TWO_STAGES,
    seam_cases.ONE_STAGE,
    speech.WRONG,
    speech.WRONG_DIFFUSION,
    videos.REQUESTS,
    videos.FAILURES,
    control.REQUESTS,
    control.STEPS,
)
FAULTY = (images, chat, speaking.speech, video, lambda text: step("x", prompt=text))
"""Requests that tests let fail with every exception of failures_table.py; its `HTTPException` is a teapot."""

KNOWN = (
    *((case.call, case.now.status) for table in TABLES for case in table),
    *((make("x"), row.status) for make in FAULTY for name, row in MIGRATED.items() if name != "HTTPException"),
    *((call, 503) for call in workers.ONE_WORKER_ONLY.values()),
    *((content("x"), row.status) for prompt, row in videos.JOBS.items() if "HTTPException" not in prompt),
    (speech.FULL[-1], 409),
)
"""Every wrong request that tests send to a server from a table, and the status of the answer."""


def test_the_document_knows_every_answer_of_the_tables(scripted: Start) -> None:
    document = document_of(scripted("multi", "migrated"))
    undocumented = set()
    for call, status in KNOWN:
        path = handler_of(call.path.replace("//", "/x/"), document["paths"])
        operation = document["paths"].get(path, {}).get(call.method.lower())
        if operation is not None and str(status) not in operation["responses"]:
            undocumented.add((call.method, path, status))
    assert undocumented == set()


def test_a_stream_that_fails_ends_in_the_event_that_the_document_shows(scripted: Start) -> None:
    """The one stream of this server that fails after it began; tests/transports/test_openapi.py has the others."""
    server = scripted("multi", "migrated")
    document = document_of(server)
    shown = document["paths"]["/v1/responses"]["post"][openapi.EVENT_EXTENSION]
    jsonschema.validate(send(server.url, responses(input="hi", stream=True)).events()[-1], shown)
