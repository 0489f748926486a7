# SPDX-License-Identifier: Apache-2.0
"""What an application's OpenAPI document says about its errors."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
from error_site import Site
from fastapi import FastAPI
from fastapi.openapi.models import OpenAPI
from hypothesis import given
from pydantic import BaseModel
from record_strategies import records

from vllm_omni_errors import catalogue, install
from vllm_omni_errors.details import OmniErrorDetails
from vllm_omni_errors.transports import envelope, openapi, sse


class Problem(BaseModel):
    title: str


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()

    @app.get("/nothing")
    async def nothing() -> str:
        return ""

    @app.get("/things/{number}", responses={404: {"model": Problem}, "5XX": {"description": "mine"}})
    async def thing(number: int) -> dict[str, int]:
        return {}

    @app.post("/v1/images/generations")
    async def images(body: Problem) -> Problem:
        return body

    return app


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def responses(app: FastAPI, path: str, method: str = "get") -> dict[str, Any]:
    return app.openapi()["paths"][path][method]["responses"]  # type: ignore[no-any-return]


def body_schema(document: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    if reference := response.get("$ref"):
        response = document["components"]["responses"][reference.rpartition("/")[2]]
    return response["content"]["application/json"]["schema"]  # type: ignore[no-any-return]


def test_every_operation_can_fail_and_one_that_reads_something_can_be_asked_wrongly(app: FastAPI) -> None:
    install(app)
    assert list(responses(app, "/nothing")) == ["200", "500"]
    assert list(responses(app, "/things/{number}")) == ["200", "404", "5XX", "400", "500"]


def test_a_failed_validation_is_documented_as_the_400_that_it_is(app: FastAPI) -> None:
    assert "422" in responses(app, "/things/{number}")
    install(app)
    document = app.openapi()
    assert body_schema(document, document["paths"]["/things/{number}"]["get"]["responses"]["400"]) == {
        "$ref": "#/components/schemas/OmniErrorResponse"
    }
    assert not {"HTTPValidationError", "ValidationError"} & document["components"]["schemas"].keys()


def test_a_route_that_waits_for_a_stage_documents_every_status_of_the_catalogue(app: FastAPI) -> None:
    install(app)
    documented = responses(app, "/v1/images/generations", "post")
    assert {int(status) for status in documented} == {200} | {row.status for row in catalogue.CATALOGUE}
    text = json.dumps(app.openapi()["components"]["responses"])
    assert [row.error_type for row in catalogue.CATALOGUE if row.error_type and f"`{row.error_type}`" not in text] == []


def test_what_an_author_says_about_a_route_stays(app: FastAPI) -> None:
    before = copy.deepcopy(responses(app, "/things/{number}"))
    install(app)
    after = responses(app, "/things/{number}")
    assert [after[status] for status in ("200", "404", "5XX")] == [before[status] for status in ("200", "404", "5XX")]


def test_an_authors_model_that_is_called_like_vllms_stays() -> None:
    app = FastAPI()
    own = type("ErrorResponse", (Problem,), {})

    @app.get("/own", responses={404: {"model": own}})
    async def own_errors() -> str:
        return ""

    install(app)
    assert body_schema(app.openapi(), responses(app, "/own")["404"]) == {"$ref": "#/components/schemas/ErrorResponse"}
    assert app.openapi()["components"]["schemas"]["ErrorResponse"]["properties"].keys() == {"title"}


def test_successful_answers_stay_as_they_are(app: FastAPI) -> None:
    before = copy.deepcopy(app.openapi())
    install(app)
    after = app.openapi()
    for path, method, operation in operations(before):
        now = after["paths"][path][method]
        assert now["responses"]["200"] == operation["responses"]["200"]
        assert [now[key] for key in operation if key != "responses"] == [
            operation[key] for key in operation if key != "responses"
        ]
    assert after["components"]["schemas"]["Problem"] == before["components"]["schemas"]["Problem"]


def test_routes_that_come_after_install_are_documented(app: FastAPI) -> None:
    install(app)

    @app.get("/late")
    async def late() -> str:
        return ""

    assert list(responses(app, "/late")) == ["200", "500"]


def test_installing_twice_documents_once(app: FastAPI) -> None:
    install(app)
    once = app.openapi()
    install(app)
    assert app.openapi() == once


@given(records())
def test_the_schema_is_that_of_every_error(details: OmniErrorDetails) -> None:
    jsonschema.validate(envelope.body(details), openapi.envelope_schema())


@pytest.mark.parametrize("key", envelope.FIELDS)
def test_the_schema_has_no_error_without_its_six_keys(key: str) -> None:
    body = envelope.body(OmniErrorDetails("no", "client", 400, "BadRequestError"))
    del body["error"][key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, openapi.envelope_schema())


def data(event: str) -> Any:
    return json.loads(event.partition("data: ")[2])


EVENTS: dict[str, Callable[[OmniErrorDetails], Any]] = {
    "/v1/chat/completions": lambda details: data(sse.nested_error(details)),
    "/v1/images/edits": lambda details: data(sse.typed_error(details)),
    "/v1/audio/speech": lambda details: data(sse.typed_error(details, "speech.audio.error")),
    "/v1/responses": lambda details: sse.failed_response(details, {"id": "resp_1"}, 3),
}


def shown(path: str) -> dict[str, Any]:
    components = {"schemas": {openapi.ENVELOPE: openapi.envelope_schema()}}
    return {**(openapi.routes_of(path, "post").event or {}), "components": components}


@pytest.mark.parametrize("path", EVENTS)
@given(details=records())
def test_a_stream_ends_in_the_event_that_its_route_shows(path: str, details: OmniErrorDetails) -> None:
    jsonschema.validate(EVENTS[path](details), shown(path))


@pytest.mark.parametrize("path", ["/v1/images/edits", "/v1/responses"])
def test_an_event_without_its_type_is_none(path: str) -> None:
    event = EVENTS[path](OmniErrorDetails("no", "server", 500, "InternalServerError"))
    del event["type"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(event, shown(path))


def test_the_document_is_valid_and_every_reference_leads_somewhere(upstream_site: Site) -> None:
    document = upstream_site.app.openapi()
    OpenAPI.model_validate(document)
    for kind, name in re.findall(r'"\$ref": "#/components/(\w+)/([^"]+)"', json.dumps(document)):
        assert name in document["components"][kind], f"{kind}/{name}"


def test_vllms_own_routes_document_the_one_envelope(upstream_site: Site) -> None:
    document = upstream_site.app.openapi()
    ours, anthropic = ({"$ref": f"#/components/schemas/{name}"} for name in (openapi.ENVELOPE, openapi.ANTHROPIC))
    found = 0
    for path, method, operation in operations(document):
        for status, response in operation["responses"].items():
            if int(status) >= 400 and int(status) not in openapi.routes_of(path, method).bare:
                expected = {"anyOf": [anthropic, ours]} if path.startswith("/v1/messages") else ours
                assert body_schema(document, response) == expected, (method, path, status)
                found += 1
    assert found > len(document["paths"])
    assert "ErrorResponse" not in document["components"]["schemas"]


def test_the_longest_row_that_fits_counts() -> None:
    assert openapi.routes_of("/v1/chat/completions/batch", "post").event is None
    assert openapi.routes_of("/v1/videos/{video_id}", "delete").statuses == (404, 409, 503)
    assert openapi.routes_of("/v1/videos/{video_id}", "get").statuses == (404, 503)
    assert openapi.routes_of("/of/somebody", "get").statuses == ()


def test_a_document_without_components_gets_them(plain: Callable[..., Site]) -> None:
    assert openapi.ENVELOPE in plain().app.openapi()["components"]["schemas"]
