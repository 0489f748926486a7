# SPDX-License-Identifier: Apache-2.0
"""OpenAPI: what an application says about its errors, made from the record, the catalogue and the table of routes.

Every operation documents the envelope under each status that it may answer with; successful answers are left as they
are. FastAPI's own 422 goes, for a request that fails validation is 400 here, and so does vLLM's narrower envelope.
What middlewares outside of the boundary answer themselves (401, 503 while scaling) is not documented.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import FastAPI

from vllm_omni_errors import catalogue, explain, public_text
from vllm_omni_errors.details import OmniErrorDetails

from . import envelope

ENVELOPE = "OmniErrorResponse"
"""The component that is the envelope."""

ANTHROPIC = "AnthropicErrorResponse"
"""vLLM's component for Anthropic's envelope."""

EVENT_EXTENSION = "x-error-event"
"""Key of an operation: the schema of the event that ends a stream which fails after it began (contract, section 5)."""

Schema = dict[str, Any]

WORK = tuple(sorted({row.status for row in catalogue.CATALOGUE}))
"""Of a route that waits for a stage: a stage's error may have any status of the catalogue."""


def _reference(kind: str, name: str) -> Schema:
    return {"$ref": f"#/components/{kind}/{name}"}


_NESTED = _reference("schemas", ENVELOPE)
_TYPED = {"allOf": [_NESTED, {"properties": {"type": {"const": "error"}}, "required": ["type"]}]}
_FAILED_RESPONSE = {
    "type": "object",
    "properties": {
        "type": {"const": "response.failed"},
        "response": {
            "type": "object",
            "properties": {
                "status": {"const": "failed"},
                "error": {"type": "object", "required": ["code", "message"]},
            },
            "required": ["status", "error"],
        },
    },
    "required": ["type", "response"],
}


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes whose path begins alike, and how they fail.

    Attributes:
        path: how the path begins; of several that fit, the longest counts.
        statuses: of their errors, beside 500 and, where a request has parameters or a body, 400.
        methods: HTTP methods, in lower case; empty for any.
        event: schema of the event that ends a stream, if they stream events.
        envelope: component that some of their errors come in instead.
        bare: statuses that a route answers with a body of its own.

    """

    path: str
    statuses: tuple[int, ...]
    methods: tuple[str, ...] = ()
    event: Mapping[str, Any] | None = None
    envelope: str | None = None
    bare: tuple[int, ...] = ()


ROUTES: tuple[Routes, ...] = (
    Routes("/v1/chat/completions", WORK, event=_NESTED),
    Routes("/v1/chat/completions/batch", WORK),
    Routes("/v1/completions", WORK, event=_NESTED),
    Routes("/v1/responses", WORK, event=_FAILED_RESPONSE),
    Routes("/v1/responses/{response_id}/cancel", WORK),
    Routes("/v1/messages", WORK, event=_reference("schemas", ANTHROPIC), envelope=ANTHROPIC),
    Routes("/v1/messages/count_tokens", WORK, envelope=ANTHROPIC),
    Routes("/inference/v1/generate", WORK, event=_NESTED),
    Routes("/invocations", (*WORK, 415)),
    Routes("/generative_scoring", WORK),
    Routes("/tokenize", (404, 422, 501, 503)),
    Routes("/detokenize", (404, 501, 503)),
    Routes("/v1/images/", WORK, event=_TYPED),
    Routes("/v1/audio/speech", WORK, event=_TYPED),
    Routes("/v1/audio/speech/batch", WORK),
    Routes("/v1/audio/generate", WORK),
    Routes("/v1/audio/voices", (503,)),
    Routes("/v1/audio/voices", (409, 422, 503), methods=("post",)),
    Routes("/v1/audio/voices/", (404, 503)),
    Routes("/v1/videos", (404, 422, 503)),
    Routes("/v1/videos", (503,), methods=("get",)),
    Routes("/v1/videos/{video_id}", (404, 503)),
    Routes("/v1/videos/{video_id}", (404, 409, 503), methods=("delete",)),
    Routes("/v1/videos/{video_id}/content", WORK),
    Routes("/v1/videos/sync", WORK),
    Routes("/v1/realtime/sessions", (404, 501, 503)),
    Routes("/v1/realtime/sessions/{session_id}/", (404, 410, 501)),
    Routes("/v1/realtime/sessions/{session_id}/step", (*WORK, 410)),
    Routes("/v1/omni/", (501, 503, 504)),
    Routes("/start_profile", (501, 504)),
    Routes("/stop_profile", (501, 504)),
    Routes("/v1/load_lora_adapter", (404, 501, 503)),
    Routes("/v1/unload_lora_adapter", (404, 501, 503)),
    Routes("/health", (503,), bare=(503,)),
    Routes("/ping", (503,), bare=(503,)),
)
"""What the routes of vLLM-Omni, and those of vLLM that it serves, may answer. An operation that is not here, of any
application, has 500 and 400, and what it says itself."""

_OTHERS = Routes("", ())
_RESPONSE = "OmniError"

_REPLACED = ("HTTPValidationError", "ValidationError", "ErrorResponse", "ErrorInfo")
"""Components of FastAPI and vLLM that say what errors would be without `install`."""

DESCRIPTIONS: Mapping[str, str] = {
    "message": "What went wrong, for a human. Never empty, and holds nothing of the request's content.",
    "type": "Type of the error; each status names its own.",
    "param": "The request's parameter at fault, if one is.",
    "code": "The HTTP status.",
    "request_id": "Id of the request, as in the header.",
    "error_stage_id": "Number of the stage that failed, if one did.",
}
_BOUNDS: Mapping[str, Schema] = {
    "message": {"minLength": 1, "maxLength": public_text.MAX_CHARACTERS},
    "error_type": {"maxLength": public_text.MAX_IDENTIFIER_CHARACTERS},
    "parameter": {"maxLength": public_text.MAX_IDENTIFIER_CHARACTERS},
    "status_code": {"minimum": 400, "maximum": 599},
    "request_id": {"maxLength": public_text.MAX_REQUEST_ID_CHARACTERS},
}
_HEADERS: Mapping[str, Schema] = {
    envelope.REQUEST_ID_HEADER: {
        "description": DESCRIPTIONS["request_id"].partition(",")[0] + ".",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": public_text.MAX_REQUEST_ID_CHARACTERS},
    },
    envelope.RETRY_HEADER: {
        "description": "Stands where a repetition of the request cannot help.",
        "schema": {"type": "string", "enum": [envelope.NEVER]},
    },
}


class Documented:
    """``app.openapi``: the document is made when it is asked for, so that routes which come later are in it."""

    def __init__(self, made: Callable[[], Schema]) -> None:
        self._made = made

    def __call__(self) -> Schema:
        return with_errors(self._made())


def document(app: FastAPI) -> None:
    """Let an application say in its OpenAPI document how it fails; twice is once."""
    if not isinstance(app.openapi, Documented):
        app.openapi = Documented(app.openapi)  # type: ignore[method-assign]


def with_errors(document: Mapping[str, Any]) -> Schema:
    """A copy of an OpenAPI document whose operations say how they fail."""
    paths = {
        path: {method: _operation(path, method, said) for method, said in item.items()}
        for path, item in document.get("paths", {}).items()
    }
    components = {kind: dict(named) for kind, named in document.get("components", {}).items()}
    components.setdefault("schemas", {})[ENVELOPE] = envelope_schema()
    components.setdefault("headers", {}).update(_HEADERS)
    used = {int(status) for status in re.findall(rf"responses/{_RESPONSE}(\d+)", str(paths))}
    components.setdefault("responses", {}).update(
        {f"{_RESPONSE}{status}": _response(status) for status in sorted(used)}
    )
    for name in _REPLACED:
        if f"schemas/{name}'" not in str((paths, components)):
            components["schemas"].pop(name, None)
    return {**document, "paths": paths, "components": components}


def envelope_schema() -> Schema:
    """The schema of ``{"error": {…}}``: a field of the record under each public key."""
    (_, records) = msgspec.json.schema_components([OmniErrorDetails])
    fields = records[OmniErrorDetails.__name__]["properties"]
    properties = {}
    for key, name in envelope.FIELDS.items():
        field = {word: value for word, value in fields[name].items() if word != "default"}
        properties[key] = {**field, **_BOUNDS.get(name, {}), "description": DESCRIPTIONS[key]}
    error = {"type": "object", "properties": properties, "required": list(properties)}
    return {"title": ENVELOPE, "type": "object", "properties": {"error": error}, "required": ["error"]}


def _operation(path: str, method: str, said: Any) -> Any:
    if not isinstance(said, dict) or "responses" not in said:  # a summary, or parameters that all methods share
        return said
    routes = routes_of(path, method)
    statuses = {500, *routes.statuses} | ({400} if said.keys() & {"requestBody", "parameters"} else set())
    responses = {}
    for status, response in said["responses"].items():
        named = set(re.findall(r"schemas/(\w+)'", str(response)))
        if not status.isdecimal() or not named & {*_REPLACED, routes.envelope}:
            responses[status] = response
        elif _REPLACED[0] not in named:
            statuses.add(int(status))
    for status in sorted(statuses):
        responses.setdefault(str(status), _answer(routes, status))
    event = {} if routes.event is None else {EVENT_EXTENSION: routes.event}
    return {**said, "responses": responses, **event}


def routes_of(path: str, method: str) -> Routes:
    """The row of an operation."""
    fitting = [each for each in ROUTES if path.startswith(each.path) and method in (each.methods or (method,))]
    return max(fitting, key=lambda each: (len(each.path), each.methods), default=_OTHERS)


def _answer(routes: Routes, status: int) -> Schema:
    """What an operation refers to, or says, under a status."""
    if status in routes.bare:
        return {"description": catalogue.phrase(status)}
    if routes.envelope is None:
        return _reference("responses", f"{_RESPONSE}{status}")
    return _response(status, {"anyOf": [_reference("schemas", routes.envelope), _NESTED]})


def _response(status: int, schema: Schema = _NESTED) -> Schema:
    """A response of that status: whose errors it stands for, the headers that it has, its body."""
    types = dict.fromkeys(row.error_type for row in catalogue.CATALOGUE if row.status == status and row.error_type)
    meanings = [f"`{name}`: {explain.MEANINGS[name].meaning}" for name in types]
    return {
        "description": "\n\n".join([catalogue.phrase(status), *meanings]),
        "headers": {name: _reference("headers", name) for name in _HEADERS},
        "content": {"application/json": {"schema": schema}},
    }
