# SPDX-License-Identifier: Apache-2.0
"""The one handler of an application, on vLLM's real one and on plain ones."""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from error_site import Site, build_upstream
from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from inline_snapshot import snapshot
from pydantic import BaseModel, ConfigDict, field_validator, model_validator
from starlette.applications import Starlette
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.exceptions import WebSocketException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.routing import Mount, Route
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from vllm_omni_errors import catalogue, exceptions, install, upstream
from vllm_omni_errors.details import OmniErrorDetails
from vllm_omni_errors.transports.http import Boundary, error_response
from vllm_omni_errors.upstream import InstallError

Plain = Callable[..., Site]


def upstream_class(name: str, *bases: type) -> Any:
    return type(name, bases, {"__module__": "vllm.exceptions"})


def graceful(status: object) -> Exception:
    from vllm.exceptions import GracefulHTTPError

    return GracefulHTTPError("wait a little", status)  # type: ignore[no-any-return]


def generation() -> Exception:
    from vllm.exceptions import GenerationError

    return GenerationError("generation failed")  # type: ignore[no-any-return]


def retryable() -> Exception:
    from vllm.exceptions import GenerationError

    return upstream_class("RetryableRequestError", GenerationError)("try again")  # type: ignore[no-any-return]


def lora() -> Exception:
    from vllm.exceptions import LoRAAdapterNotFoundError

    return LoRAAdapterNotFoundError("adapter", "/secret/place")  # type: ignore[no-any-return]


def template() -> Exception:
    import jinja2

    return jinja2.TemplateSyntaxError("unexpected 'end of template'", 1)


RAISED: dict[str, tuple[Callable[[], BaseException], int, str, str | None]] = {
    "validation": (
        lambda: upstream.VLLMValidationError("n is bad", parameter="n", value="my prompt"),
        400,
        "BadRequestError",
        "n",
    ),
    "guardrail": (lambda: exceptions.GuardrailViolationError("no"), 400, "GuardrailViolationError", None),
    "not found": (lambda: upstream.VLLMNotFoundError("no"), 404, "NotFoundError", None),
    "LoRA not found": (lora, 404, "NotFoundError", None),
    "conflict": (lambda: exceptions.OmniConflictError("no"), 409, "ConflictError", None),
    "unprocessable": (
        lambda: upstream.VLLMUnprocessableEntityError("no", parameter="image"),
        422,
        "UnprocessableEntityError",
        "image",
    ),
    "other client": (lambda: upstream.VLLMClientError("no"), 400, "BadRequestError", None),
    "Omni client": (
        lambda: exceptions.OmniClientError("no", status_code=429, error_type="Slow", parameter="p"),
        429,
        "Slow",
        "p",
    ),
    "engine generate": (lambda: upstream.EngineGenerateError("raw"), 500, "InternalServerError", None),
    "Omni engine generate": (
        lambda: exceptions.OmniEngineGenerateError("raw", stage_id=1),
        500,
        "InternalServerError",
        None,
    ),
    "engine dead": (upstream.EngineDeadError, 500, "InternalServerError", None),
    "Omni engine dead": (lambda: exceptions.OmniEngineDeadError("raw", stage_id=1), 500, "InternalServerError", None),
    "generation": (generation, 500, "InternalServerError", None),
    "retryable": (retryable, 503, "ServiceUnavailableError", None),
    "not implemented": (lambda: exceptions.OmniNotImplementedError("no"), 501, "NotImplementedError", None),
    "unavailable": (lambda: exceptions.OmniServiceUnavailableError("no"), 503, "ServiceUnavailableError", None),
    "stage timeout": (lambda: exceptions.OmniStageTimeoutError("no"), 504, "GatewayTimeoutError", None),
    "graceful": (lambda: graceful(HTTPStatus.SERVICE_UNAVAILABLE), 503, "Service Unavailable", None),
    "graceful, plain number": (lambda: graceful(429), 429, "Too Many Requests", None),
    "other server": (lambda: upstream.VLLMServerError("no"), 500, "InternalServerError", None),
    "Omni server": (
        lambda: exceptions.OmniServerError("no", status_code=502, error_type="Bad"),
        502,
        "Bad",
        None,
    ),
    "inconsistent": (lambda: exceptions.OmniClientError("no", status_code=503), 500, "InternalServerError", None),
    "FastAPI's HTTPException": (lambda: HTTPException(403, "no"), 403, "Forbidden", None),
    "Starlette's HTTPException": (lambda: StarletteHTTPException(413, "no"), 413, "Content Too Large", None),
    "HTTPException 5xx": (lambda: HTTPException(502, "private"), 502, "Bad Gateway", None),
    "HTTPException, dict detail": (lambda: HTTPException(400, {"a": "b"}), 400, "Bad Request", None),
    "HTTPException, unknown 4xx": (lambda: HTTPException(499, "no"), 499, "Client Error", None),
    "HTTPException, unknown 5xx": (lambda: HTTPException(599, "no"), 599, "Server Error", None),
    "HTTPException, no status at all": (lambda: HTTPException(700, "no"), 500, "Internal Server Error", None),
    "ValueError": (lambda: ValueError("no"), 400, "BadRequestError", None),
    "TypeError": (lambda: TypeError("no"), 400, "BadRequestError", None),
    "OverflowError": (lambda: OverflowError("no"), 400, "BadRequestError", None),
    "UnicodeDecodeError": (lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), 400, "BadRequestError", None),
    "NotImplementedError": (lambda: NotImplementedError("no"), 501, "NotImplementedError", None),
    "TemplateError": (template, 400, "BadRequestError", None),
    "RuntimeError": (lambda: RuntimeError("private"), 500, "InternalServerError", None),
    "KeyError": (lambda: KeyError("private"), 500, "InternalServerError", None),
    "TimeoutError": (lambda: TimeoutError(), 500, "InternalServerError", None),
    "MemoryError": (lambda: MemoryError(), 500, "InternalServerError", None),
    "client group": (lambda: ExceptionGroup("g", [upstream.VLLMNotFoundError("no")]), 404, "NotFoundError", None),
    "mixed group": (
        lambda: ExceptionGroup("g", [upstream.VLLMNotFoundError("no"), KeyError("private")]),
        500,
        "InternalServerError",
        None,
    ),
}

if HTTPStatus(413).phrase != "Content Too Large":  # up to Python 3.12
    RAISED["Starlette's HTTPException"] = (*RAISED["Starlette's HTTPException"][:2], HTTPStatus(413).phrase, None)


@pytest.mark.parametrize(("failure", "status", "error_type", "parameter"), RAISED.values(), ids=RAISED)
def test_case_x01_status_equals_code_equals_what_is_counted(
    upstream_site: Site, failure: Callable[[], BaseException], status: int, error_type: str, parameter: str | None
) -> None:
    upstream_site.failure = failure
    before = upstream_site.counted()
    answer = upstream_site.client.get("/raise")
    after = upstream_site.counted()
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"], error["param"]) == (status, status, error_type, parameter)
    assert after - before == {f"{status // 100}xx": 1}
    assert error["message"]
    assert "private" not in error["message"]
    assert "raw" not in error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]
    assert list(error) == ["message", "type", "param", "code", "request_id", "error_stage_id"]


def test_every_row_of_the_catalogue_is_raised_here() -> None:
    raised = {catalogue.row_for(type(failure())).exception for failure, *_ in RAISED.values()}
    validated = {"RequestValidationError", "WebSocketRequestValidationError"}  # FastAPI raises these itself, below
    assert raised | validated == {row.exception for row in catalogue.CATALOGUE}


def test_a_handler_that_is_registered_the_ordinary_way_never_runs() -> None:
    """Why install() reaches into the built stack. If this fails, vLLM has changed and install() may become simpler."""
    site = Site(build_upstream())
    hits = []

    @site.app.exception_handler(exceptions.OmniConflictError)
    async def handler(request: object, exc: Exception) -> None:
        hits.append(exc)

    site.failure = lambda: exceptions.OmniConflictError("no")
    site.client.get("/raise")
    assert hits == []
    with pytest.raises(RuntimeError, match="after an application has started"):
        site.app.add_middleware(Middleware)  # type: ignore[arg-type]

    install(site.app)
    assert site.client.get("/raise").json()["error"]["code"] == 409


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("PUT", "/v1/models", 405)])
def test_an_unknown_route_and_a_wrong_method_have_the_envelope(
    upstream_site: Site, method: str, path: str, status: int
) -> None:
    before = upstream_site.counted("none")["4xx"]
    answer = upstream_site.client.request(method, path)
    assert answer.status_code == answer.json()["error"]["code"] == status
    assert answer.json()["error"]["type"] == HTTPStatus(status).phrase
    assert upstream_site.counted("none")["4xx"] == before + 1


def test_the_headers_of_an_http_exception_are_kept(upstream_site: Site) -> None:
    upstream_site.failure = lambda: HTTPException(429, "slow", headers={"Retry-After": "3", "Content-Type": "text/x"})
    answer = upstream_site.client.get("/raise")
    assert answer.headers["retry-after"] == "3"
    assert answer.headers["content-type"] == "application/json"
    assert upstream_site.client.put("/v1/models").headers["allow"] == "GET"


def test_headers_that_cannot_be_sent_break_nothing(upstream_site: Site) -> None:
    for headers in ({"a": "日本"}, {"a": None}, ["a"]):
        upstream_site.failure = lambda headers=headers: HTTPException(400, "no", headers=headers)  # type: ignore[misc]
        assert upstream_site.client.get("/raise").json()["error"]["message"] == "no"


@pytest.mark.parametrize("status", [204, 304, 307])
def test_an_http_exception_that_is_no_error_is_answered_as_it_says(upstream_site: Site, status: int) -> None:
    upstream_site.failure = lambda: HTTPException(status, "see there", headers={"location": "/there"})
    answer = upstream_site.client.get("/raise", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (status, "/there")
    assert answer.text == ("" if status != 307 else "see there")


@pytest.mark.parametrize("status", [401, 403, 404, 413, 429])
def test_case_m28_a_known_client_status_stays(upstream_site: Site, status: int) -> None:
    for failure in (HTTPException(status), exceptions.OmniClientError(status_code=status)):
        upstream_site.failure = lambda failure=failure: failure  # type: ignore[misc]
        answer = upstream_site.client.get("/raise")
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, status)


@pytest.mark.parametrize(
    ("failure", "retry"),
    [
        (exceptions.OmniConflictError, "false"),
        (exceptions.OmniNotImplementedError, "false"),
        (exceptions.OmniStageTimeoutError, "false"),
        (exceptions.OmniServiceUnavailableError, None),
        (lambda: exceptions.OmniServiceUnavailableError(permanent=True), "false"),
        (exceptions.OmniServerError, None),
        (upstream.VLLMClientError, None),
    ],
)
def test_case_m35_says_where_a_repetition_cannot_help(
    upstream_site: Site, failure: Callable[[], Exception], retry: str | None
) -> None:
    upstream_site.failure = failure
    assert upstream_site.client.get("/raise").headers.get("x-should-retry") == retry


async def test_case_m35_the_official_client_asks_once_for_a_conflict_and_reads_the_request_id(plain: Plain) -> None:
    app = FastAPI()
    asked: list[int] = []

    @app.post("/v1/chat/completions")
    async def chat() -> None:
        asked.append(1)
        raise exceptions.OmniConflictError("busy")

    plain(app)
    transport = httpx.ASGITransport(app)
    async with openai.AsyncOpenAI(
        api_key="x", base_url="http://here/v1", http_client=httpx.AsyncClient(transport=transport), max_retries=2
    ) as client:
        with pytest.raises(openai.ConflictError) as raised:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    assert len(asked) == 1
    assert raised.value.request_id == raised.value.response.json()["error"]["request_id"]
    assert raised.value.body["type"] == "ConflictError"  # type: ignore[index]


# --- request bodies ---


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    n: int
    names: list[int] = []

    @field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("n must be even")
        return n

    @model_validator(mode="after")
    def positive(self) -> "Strict":
        if self.n < 0:
            raise upstream.VLLMValidationError("n must not be negative", parameter="n", value=self.n)
        return self


@pytest.fixture
def strict(plain: Plain) -> Site:
    app = FastAPI()

    @app.post("/strict")
    async def strict(body: Strict) -> int:
        return body.n

    return plain(app)


def refused(site: Site, **request: Any) -> dict[str, Any]:
    answer = site.client.post("/strict", **request)
    error: dict[str, Any] = answer.json()["error"]
    assert answer.status_code == error["code"] == 400
    assert len(answer.content) < 4_000
    return error


def test_an_invalid_body_says_where_and_what(strict: Site) -> None:
    error = refused(strict, json={"n": "my private prompt", "names": ["secret"]})
    integer = "Input should be a valid integer, unable to parse string as an integer"
    assert error["message"] == f"body.n: {integer}; body.names.0: {integer}"
    assert (error["type"], error["param"]) == ("Bad Request", "body.n")


def test_case_m20_a_semantic_error_of_a_validator_keeps_its_parameter(strict: Site) -> None:
    error = refused(strict, json={"n": -2})
    assert (error["message"], error["type"], error["param"]) == ("n must not be negative", "BadRequestError", "n")


class Careless(BaseModel):
    parts: Any

    @model_validator(mode="before")
    @classmethod
    def first(cls, data: Any) -> Any:
        return {"parts": data["parts"][0].strip()}


@pytest.mark.parametrize(("raw_mapping", "statuses"), [(False, (400, 400, 400)), (True, (500, 400, 500))])
def test_a_body_that_breaks_the_code_which_checks_it_is_the_clients(
    plain: Plain, raw_mapping: bool, statuses: tuple[int, ...]
) -> None:
    """Where raw exceptions keep upstream's mapping, it decides: only a TypeError is the client's there."""
    app = FastAPI()

    @app.post("/careless")
    async def careless(body: Careless) -> Any:
        return [].strip() if body.parts == "fail" else body.parts  # type: ignore[attr-defined]

    site = plain(app, raw_mapping=raw_mapping)
    wrong = ({"parts": [5]}, {"parts": 5}, {})  # AttributeError, TypeError, KeyError
    answers = [site.client.post("/careless", json=body) for body in wrong]
    assert tuple(answer.status_code for answer in answers) == statuses
    assert site.client.post("/careless", json={"parts": [" ok "]}).json() == "ok"
    assert site.client.post("/careless", json={"parts": ["fail"]}).status_code == 500


def test_case_m37_an_error_whose_context_holds_an_exception_is_rendered(strict: Site) -> None:
    error = refused(strict, json={"n": 3})
    assert (error["message"], error["param"]) == ("body.n: Value error, n must be even", "body.n")


def test_case_z03_thousands_of_errors_are_ten_and_a_number(strict: Site) -> None:
    error = refused(strict, json={"n": 2, "names": ["CANARY"] * 5_000})
    assert error["message"].count("body.names") == 10
    assert error["message"].endswith("and 4990 more")
    assert "CANARY" not in error["message"]


def test_names_that_the_client_chose_are_not_repeated_if_they_are_no_names(strict: Site) -> None:
    error = refused(strict, json={"n": 2, "my private prompt": 1, "x" * 100_000: 2})
    assert "private" not in json.dumps(error)


@pytest.mark.parametrize(
    "body",
    [
        b"\x89PNG\r\n\x1a\nCANARY",
        b"\xff\xfeCANARY",
        b'{"n": CANARY}',
        b'{"n": NaN, "names": "CANARY"}',
        b"CANARY",
        b'"CANARY"',
        b"[" * 100_000 + b"CANARY",
        b"",
    ],
    ids=["PNG", "not UTF-8", "not JSON", "NaN", "text", "string", "deep", "empty"],
)
@pytest.mark.parametrize(
    "content_type", ["application/json", "application/octet-stream", "multipart/form-data; boundary=x", ""]
)
def test_case_z07_a_body_that_is_not_json_is_refused_without_being_quoted(
    strict: Site, body: bytes, content_type: str
) -> None:
    error = refused(strict, content=body, headers={"content-type": content_type})
    assert "CANARY" not in json.dumps(error)
    assert error["message"]


def test_vllms_own_check_of_the_content_type_is_a_sentence(upstream_site: Site) -> None:
    answer = upstream_site.client.post("/tokenize", content=b"\x89PNG", headers={"content-type": "image/png"})
    assert answer.json()["error"]["message"] == "Unsupported Media Type: Only 'application/json' is allowed"


@pytest.mark.parametrize("module", ["vllm.entrypoints", "vllm_omni.entrypoints"])
@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"\xff secret", b"{ secret"], ids=["nested", "not UTF-8", "no JSON"]
)
def test_case_z07_a_body_that_an_endpoint_reads_by_itself_is_the_clients_too(
    plain: Plain, content: bytes, module: str
) -> None:
    """As where FastAPI reads it; but a failure after the body was read is not of the body."""

    async def endpoint(request: Request) -> Any:
        return (await request.json()).real.upper()

    endpoint.__module__ = module
    app = FastAPI()
    app.add_api_route("/own", endpoint, methods=["POST"])
    client = plain(app, raw_mapping=False).client
    answer = client.post("/own", content=content)
    assert answer.status_code == answer.json()["error"]["code"] == 400
    assert "secret" not in answer.text
    assert "codec" not in answer.text
    assert client.post("/own", content=b"5").status_code == 500


# --- raw exceptions, by route ---


def route_of(module: str, failure: Callable[[], Exception]) -> APIRouter:
    async def endpoint() -> None:
        raise failure()

    endpoint.__module__ = module
    router = APIRouter()
    router.add_api_route("/route", endpoint)
    return router


@pytest.mark.parametrize(
    ("failure", "mapped"),
    [(ValueError, 400), (TypeError, 400), (OverflowError, 400), (NotImplementedError, 501), (template, 400)],
)
@pytest.mark.parametrize(
    "module",
    [
        "vllm_omni.entrypoints.openai.api_server",
        "vllm.entrypoints.serve.tokenize.api_router",
        "model_hosting_container_standards.common.transforms.base_factory",  # around vLLM's /invocations
    ],
)
@pytest.mark.parametrize("raw_mapping", [True, False])
def test_raw_exceptions_keep_upstreams_mapping_as_long_as_they_may(
    plain: Plain, failure: Callable[[], Exception], mapped: int, module: str, raw_mapping: bool
) -> None:
    app = FastAPI()
    app.include_router(route_of(module, failure))
    answer = plain(app, raw_mapping=raw_mapping).client.get("/route")
    expected = mapped if raw_mapping or not module.startswith("vllm_omni.") else 500
    assert answer.status_code == answer.json()["error"]["code"] == expected


@pytest.mark.parametrize("installed", ["0.30.0", "0.30.0+cpu"])
def test_seams_of_the_vllm_that_is_there_are_accepted(monkeypatch: pytest.MonkeyPatch, installed: str) -> None:
    monkeypatch.setattr("vllm.__version__", installed)
    install(Starlette(), raw_mapping=False, seams="0.30.0")


@pytest.mark.parametrize("installed", ["0.30.1", "0.31.0+cpu", "0.30"])
def test_seams_of_another_vllm_refuse_the_start(monkeypatch: pytest.MonkeyPatch, installed: str) -> None:
    """Contract, section 4: its mistakes of a client would be 500."""
    monkeypatch.setattr("vllm.__version__", installed)
    app = Starlette()
    with pytest.raises(InstallError, match=f"migrated for vLLM 0.30.0, and vLLM is {re.escape(installed)}: .* Install"):
        install(app, raw_mapping=False, seams="0.30.0")
    assert app.middleware_stack is None


@pytest.mark.parametrize("failure", [ValueError, TypeError, OverflowError, NotImplementedError, template])
@pytest.mark.parametrize(("reviewed", "expected"), [(("endpoint",), {500}), (("another",), {400, 501})])
def test_raw_exceptions_of_a_reviewed_endpoint_are_unknown_failures(
    plain: Plain, failure: Callable[[], Exception], reviewed: tuple[str, ...], expected: set[int]
) -> None:
    app = FastAPI()
    app.include_router(route_of("vllm_omni.entrypoints.openai.api_server", failure))
    assert plain(app, reviewed=reviewed).client.get("/route").status_code in expected


def test_reviewing_does_not_touch_vllms_own_endpoints(plain: Plain) -> None:
    app = FastAPI()
    app.include_router(route_of("vllm.entrypoints.serve.tokenize.api_router", ValueError))
    assert plain(app, reviewed=("endpoint",)).client.get("/route").status_code == 400


def test_case_m30_an_unknown_failure_is_never_the_clients(plain: Plain) -> None:
    site = plain()
    site.failure = lambda: RuntimeError("cannot parse the response")
    answer = site.client.get("/raise")
    assert (answer.status_code, answer.json()["error"]["message"]) == (500, "Internal server error")


def test_case_z05_an_unknown_failures_traceback_stays_in_the_log(plain: Plain, log: list[logging.LogRecord]) -> None:
    site = plain(raw_mapping=False)
    site.failure = lambda: ValueError('File "/private/x.py", line 3\nTraceback (most recent call last): private')
    answer = site.client.get("/raise")
    assert "private" not in answer.text
    assert "Traceback" not in answer.text
    assert log[0].exc_info is not None


# --- hostile exceptions ---


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class LyingError(upstream.VLLMClientError):
    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise MemoryError(name)


@pytest.mark.parametrize(
    "failure",
    [
        UnspeakableError,
        lambda: LyingError("x"),
        lambda: ValueError(UnspeakableError()),
        lambda: Exception(*["x" * 1_000] * 1_000),
        lambda: upstream.VLLMValidationError("x" * 5_000_000, parameter="y" * 5_000_000),
        lambda: upstream.VLLMValidationError("n", value=UnspeakableError()),
        lambda: StopAsyncIteration("x"),
    ],
)
def test_a_hostile_exception_gets_an_ordinary_answer(upstream_site: Site, failure: Callable[[], Exception]) -> None:
    upstream_site.failure = failure
    answer = upstream_site.client.get("/raise")
    assert answer.status_code == answer.json()["error"]["code"]
    assert len(answer.content) < 4_000


async def test_cancellation_passes_through(plain: Plain) -> None:
    site = plain()
    site.failure = asyncio.CancelledError
    async with httpx.AsyncClient(transport=httpx.ASGITransport(site.app), base_url="http://here") as client:
        with pytest.raises(asyncio.CancelledError):
            await client.get("/raise")


def test_a_client_that_is_gone_is_one_line_and_no_error(upstream_site: Site, log: list[logging.LogRecord]) -> None:
    upstream_site.failure = ClientDisconnect
    upstream_site.client.get("/raise")
    assert [(record.levelname, record.getMessage()) for record in log] == [("INFO", "GET /raise: the client is gone")]


def test_a_stream_that_fails_is_not_ended_as_if_it_were_whole(plain: Plain) -> None:
    app = FastAPI()

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def chunks() -> Any:
            yield b"one"
            raise exceptions.OmniConflictError("too late")

        return StreamingResponse(chunks())

    plain(app)
    with pytest.raises(RuntimeError, match="response already started"):
        TestClient(app).get("/stream")


def test_what_a_middleware_outside_of_the_boundary_raises_has_the_envelope() -> None:
    class Failing:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            raise exceptions.OmniServiceUnavailableError("no")

    app = FastAPI(middleware=[Middleware(Failing)])
    install(app)
    answer = TestClient(app, raise_server_exceptions=False).get("/")
    assert answer.status_code == answer.json()["error"]["code"] == 503


def test_a_function_middleware_between_does_not_lose_the_request(plain: Plain) -> None:
    app = FastAPI()

    @app.middleware("http")
    async def passes(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    site = plain(app)
    site.failure = exceptions.OmniConflictError
    answer = site.client.get("/raise")
    assert answer.headers.get_list("x-request-id") == [answer.json()["error"]["request_id"]]


def test_an_answer_of_ours_that_does_not_fit_its_model_is_not_the_clients_fault(plain: Plain) -> None:
    app = FastAPI()

    @app.get("/misfit", response_model=Strict)
    async def misfit() -> dict[str, str]:
        return {"n": "private"}

    answer = plain(app).client.get("/misfit")
    assert (answer.status_code, answer.json()["error"]["message"]) == (500, "Internal server error")


async def test_a_client_that_is_gone_outside_of_the_boundary_breaks_nothing(plain: Plain) -> None:
    answer = await plain().app.state.vllm_omni_errors.outside(HTTPConnection({"type": "http"}), ClientDisconnect())
    assert answer.status_code == 500


# --- several applications ---


def test_case_x03_a_mounted_application_has_the_same_handler(upstream_site: Site) -> None:
    async def fails() -> None:
        raise upstream.VLLMValidationError("n is bad", parameter="n")

    inner, outer = FastAPI(), FastAPI()
    inner.add_api_route("/fails", fails)
    bare = Starlette(
        routes=[Route("/fails", lambda request: (_ for _ in ()).throw(exceptions.OmniConflictError("no")))]
    )
    outer.mount("/inner", inner)
    outer.router.routes.append(Mount("/group", routes=[Mount("/bare", app=bare)]))
    install(outer)
    client = TestClient(outer)
    assert client.get("/inner/fails").json()["error"]["param"] == "n"
    assert client.get("/group/bare/fails").json()["error"]["code"] == 409
    assert client.get("/inner/nowhere").json()["error"]["code"] == 404


def test_case_x03_a_mounted_applications_errors_are_counted_by_their_class(upstream_site: Site) -> None:
    async def fails() -> None:
        raise upstream.VLLMValidationError("n is bad", parameter="n")

    inner = FastAPI()
    inner.add_api_route("/fails", fails)
    upstream_site.app.mount("/inner", inner)
    install(upstream_site.app)

    def counted() -> int:
        labels = ("/inner", "/inner/fails", "none")
        return sum(upstream_site.counted(label)["4xx"] for label in labels)

    before = counted()
    assert upstream_site.client.get("/inner/fails").status_code == 400
    assert counted() == before + 1


def test_two_applications_in_one_process_do_not_share_their_options(plain: Plain) -> None:
    lenient, strict = plain(raw_mapping=True), plain(raw_mapping=False)
    for site in (lenient, strict):
        site.failure = ValueError
    assert lenient.client.get("/raise").status_code == 400
    assert strict.client.get("/raise").status_code == 500


def test_installing_twice_is_installing_once(plain: Plain) -> None:
    site = plain()
    once = [type(layer).__name__ for layer in layers(site.app)]
    install(site.app, raw_mapping=False)
    assert [type(layer).__name__ for layer in layers(site.app)] == once
    site.failure = ValueError
    answer = site.client.get("/raise", headers={"x-request-id": "r"})
    assert answer.status_code == 500
    assert answer.headers.get_list("x-request-id") == ["r"]


def layers(app: Any) -> Iterator[Any]:
    node = app.middleware_stack
    while node is not None:
        yield node
        node = getattr(node, "app", None)


def test_a_handler_for_a_status_is_replaced_too(plain: Plain) -> None:
    app = FastAPI(exception_handlers={404: lambda request, exc: None, ValueError: lambda request, exc: None})
    site = plain(app)
    assert site.client.get("/nowhere").json()["error"]["code"] == 404
    site.failure = ValueError
    assert site.client.get("/raise").json()["error"]["code"] == 400


def test_a_stack_that_is_built_again_later_keeps_the_handler(plain: Plain) -> None:
    site = plain()
    site.app.middleware_stack = site.app.build_middleware_stack()
    site.failure = exceptions.OmniConflictError
    assert site.client.get("/raise").json()["error"]["code"] == 409
    site.failure = RuntimeError
    assert site.client.get("/raise").json()["error"]["code"] == 500


# --- refusing ---


def test_refuses_what_is_no_application() -> None:
    with pytest.raises(InstallError, match="needs a FastAPI or Starlette application, not a dict"):
        install({})  # type: ignore[arg-type]


def test_refuses_a_stack_whose_inside_it_cannot_reach() -> None:
    app = FastAPI()
    stack = app.build_middleware_stack()

    async def opaque(scope: Any, receive: Any, send: Any) -> None:
        await stack(scope, receive, send)

    app.middleware_stack = opaque
    with pytest.raises(InstallError, match=r"No ExceptionMiddleware is reachable .* \(function\)"):
        install(app)


def test_refuses_a_starlette_that_keeps_its_handlers_elsewhere() -> None:
    app = FastAPI()
    app.middleware_stack = app.build_middleware_stack()
    inner = next(layer for layer in layers(app) if hasattr(layer, "_exception_handlers"))
    del inner._exception_handlers
    with pytest.raises(InstallError, match="keeps its exception handlers elsewhere"):
        install(app)


def test_refuses_a_vllm_that_does_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "OVERRIDES", (upstream.Override("nothing", ("vllm.logger",), (), "why", lambda: 0),))
    with pytest.raises(InstallError, match="nothing cannot be replaced"):
        install(FastAPI())


# --- the engine ---


class Engine:
    errored, is_running = True, False

    def __init__(self, alive: bool = False) -> None:
        self.engine = SimpleNamespace(is_alive=lambda: alive)


@pytest.fixture
def served(plain: Plain) -> Site:
    site = plain()
    site.app.state.engine_client = Engine()
    site.app.state.server = SimpleNamespace(should_exit=False)
    return site


@pytest.mark.parametrize("failure", [exceptions.OmniEngineDeadError, exceptions.OmniEngineGenerateError])
def test_an_engine_error_asks_the_server_to_exit_if_the_engine_is_dead(
    served: Site, failure: Callable[[], Exception]
) -> None:
    served.failure = failure
    assert served.client.get("/raise").status_code == 500
    assert served.app.state.server.should_exit


def test_the_server_stays_while_the_engine_is_running(served: Site) -> None:
    served.app.state.engine_client.is_running = True
    served.failure = exceptions.OmniEngineDeadError
    served.client.get("/raise")
    assert not served.app.state.server.should_exit


def test_other_errors_do_not_look_at_the_engine(served: Site) -> None:
    served.failure = lambda: exceptions.OmniServerError("no")
    served.client.get("/raise")
    assert not served.app.state.server.should_exit


def test_a_dead_engines_health_is_logged(served: Site, log: list[logging.LogRecord]) -> None:
    served.failure = lambda: exceptions.OmniEngineDeadError("raw", stage_id=1)
    answer = served.client.get("/raise", headers={"x-request-id": "r"})
    assert answer.json()["error"] == snapshot(
        {
            "message": "Stage 1 stopped working and cannot process the request.",
            "type": "InternalServerError",
            "param": None,
            "code": 500,
            "request_id": "r",
            "error_stage_id": 1,
        }
    )
    assert "orchestrator_alive=False errored=True request_id=r stage_id=1" in log[-1].getMessage()


def test_an_engine_whose_state_cannot_be_read_does_not_change_the_answer(served: Site) -> None:
    served.app.state.engine_client = object()
    served.failure = exceptions.OmniEngineDeadError
    assert served.client.get("/raise").json()["error"]["message"].startswith("The engine stopped working")


def test_a_relayed_record_of_a_dead_stage_is_an_engine_error_too(served: Site) -> None:
    def failure() -> Exception:
        exc = exceptions.OmniServerError("gone")
        exc.details = OmniErrorDetails("gone", "server", 500, "InternalServerError", stage_id=1, fatal=True)
        return exc

    served.failure = failure
    assert served.client.get("/raise").json()["error"]["error_stage_id"] == 1
    assert served.app.state.server.should_exit


# --- logging ---


def test_a_client_error_is_one_line_without_traceback(plain: Plain, log: list[logging.LogRecord]) -> None:
    site = plain()
    site.failure = lambda: upstream.VLLMValidationError("n is\nbad", parameter="n", value="private")
    site.client.get("/raise?prompt=private", headers={"x-request-id": "r"})
    [record] = log
    assert (record.levelname, record.exc_info) == ("INFO", None)
    assert record.getMessage() == "GET /raise: 400 BadRequestError: n is bad (request_id=r stage_id=None)"


def test_a_server_error_is_one_record_with_traceback(plain: Plain, log: list[logging.LogRecord]) -> None:
    site = plain()
    site.failure = lambda: exceptions.OmniEngineGenerateError("raw text of the stage", stage_id=1)
    site.client.get("/raise", headers={"x-request-id": "r"})
    [record] = log
    assert record.levelname == "ERROR"
    assert record.getMessage().endswith("(request_id=r stage_id=1)")
    assert record.exc_info is not None
    assert record.exc_info[1] is not None
    assert "raw text of the stage" in str(record.exc_info[1])


def test_a_path_cannot_forge_a_line_of_the_log(plain: Plain, log: list[logging.LogRecord]) -> None:
    plain().client.get("/a%0AERROR forged")
    [record] = log
    assert "\n" not in record.getMessage()


# --- WebSockets ---


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (lambda: upstream.VLLMValidationError("n is bad", parameter="n", value="private"), 400, 1008),
        (lambda: exceptions.OmniConflictError("no"), 409, 1008),
        (lambda: HTTPException(403, "no"), 403, 1008),
        (lambda: RuntimeError("private"), 500, 1011),
        (lambda: exceptions.OmniStageTimeoutError("no"), 504, 1011),
        (lambda: exceptions.OmniServiceUnavailableError("no"), 503, 1013),
    ],
)
class TestWebSocket:
    def test_before_accept_the_client_sees_the_http_status(
        self, upstream_site: Site, failure: Callable[[], Exception], status: int, code: int
    ) -> None:
        upstream_site.failure = failure
        with pytest.raises(WebSocketDenialResponse) as denied, upstream_site.client.websocket_connect("/socket"):
            pass
        assert denied.value.status_code == denied.value.json()["error"]["code"] == status
        assert denied.value.headers["x-request-id"] == denied.value.json()["error"]["request_id"]

    def test_case_w08_after_accept_it_gets_one_event_and_the_close_code(
        self, upstream_site: Site, failure: Callable[[], Exception], status: int, code: int
    ) -> None:
        upstream_site.failure = failure
        with upstream_site.client.websocket_connect("/socket?accept=1") as socket:
            event = socket.receive_json()
            with pytest.raises(WebSocketDisconnect) as closed:
                socket.receive_json()
        assert (event["type"], event["error"]["code"]) == ("error", status)
        assert "private" not in json.dumps(event)
        assert (closed.value.code, closed.value.reason) == (code, event["error"]["message"])


async def test_before_accept_a_server_without_denial_responses_closes(plain: Plain) -> None:
    site = plain()
    site.failure = lambda: upstream.VLLMNotFoundError("no")
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/socket", "headers": [], "query_string": b"", "subprotocols": []}
    await site.app(scope, receive, send)  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": "no"}]


async def test_a_websocket_client_that_is_gone_breaks_nothing(plain: Plain, log: list[logging.LogRecord]) -> None:
    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        if message["type"] != "websocket.accept":
            raise OSError("gone")

    boundary = plain().app.state.vllm_omni_errors
    socket = WebSocket({"type": "websocket", "path": "/socket", "headers": []}, receive, send)
    await socket.accept()
    await boundary(socket, RuntimeError("no"))
    assert log[-1].getMessage() == "WebSocket /socket: the client is gone"


def test_a_disconnect_is_no_error(plain: Plain, log: list[logging.LogRecord]) -> None:
    site = plain()
    site.failure = lambda: WebSocketDisconnect(1001)
    with site.client.websocket_connect("/socket?accept=1"):
        pass
    assert [record.levelname for record in log] == ["INFO"]


def test_a_close_that_an_endpoint_asks_for_is_left_to_starlette(plain: Plain) -> None:
    site = plain()
    site.failure = lambda: WebSocketException(3000, "bye")
    with site.client.websocket_connect("/socket?accept=1") as socket, pytest.raises(WebSocketDisconnect) as closed:
        socket.receive_json()
    assert (closed.value.code, closed.value.reason) == (3000, "bye")


def test_an_invalid_parameter_of_a_websocket_is_refused_with_400(plain: Plain) -> None:
    app = FastAPI()

    @app.websocket("/numbered")
    async def numbered(websocket: WebSocket, n: int) -> None:
        await websocket.accept()

    site = plain(app)
    with pytest.raises(WebSocketDenialResponse) as denied, site.client.websocket_connect("/numbered?n=private"):
        pass
    assert denied.value.json()["error"]["param"] == "query.n"
    assert "private" not in denied.value.text


# --- the answer alone ---


def test_an_answer_is_made_of_a_record() -> None:
    details = OmniErrorDetails("no", "client", 409, "ConflictError", request_id="r", stage_id=1)
    answer = error_response(details, {"Retry-After": "1", "x-request-id": "other"})
    assert answer.status_code == 409
    assert json.loads(bytes(answer.body)) == snapshot(
        {
            "error": {
                "message": "no",
                "type": "ConflictError",
                "param": None,
                "code": 409,
                "request_id": "r",
                "error_stage_id": 1,
            }
        }
    )
    assert {name: answer.headers[name] for name in ("x-request-id", "x-should-retry", "retry-after")} == {
        "x-request-id": "r",
        "x-should-retry": "false",
        "retry-after": "1",
    }


def test_every_application_has_its_boundary_in_its_state(plain: Plain) -> None:
    assert isinstance(plain().app.state.vllm_omni_errors, Boundary)
