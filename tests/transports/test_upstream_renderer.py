# SPDX-License-Identifier: Apache-2.0
"""vLLM's own renderer and sanitizer, after install(): what upstream's modules really call."""

import importlib
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from error_site import Site
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.background import BackgroundTask

from vllm_omni_errors import convert, exceptions, seams, upstream
from vllm_omni_errors.catalogue import GENERIC

pytestmark = pytest.mark.usefixtures("upstream_site")

BASES = "VLLM\\w*Error|GenerationError|GracefulHTTPError|EngineDeadError|EngineGenerateError"


@pytest.fixture
def create_error_response() -> Callable[..., Any]:
    from vllm.entrypoints.serve import create_error_response

    return create_error_response  # type: ignore[no-any-return]


def defining_modules() -> Iterator[str]:
    """Modules of the installed vLLM in whose source a class derives from an error of vLLM's."""
    import vllm

    root = Path(vllm.__file__).parent
    for path in root.rglob("*.py"):
        if re.search(rf"^class \w+\([^)]*\b(?:{BASES})\b", path.read_text(errors="replace"), re.MULTILINE):
            yield ".".join(("vllm", *path.relative_to(root).with_suffix("").parts))


def subclasses(cls: type[Exception]) -> Iterator[type[Exception]]:
    yield cls
    for each in cls.__subclasses__():
        yield from subclasses(each)


def make(cls: type[Exception]) -> Exception:
    """An instance of a class, whatever its constructor asks for."""
    for arguments in ((), ("text",), ("text", HTTPStatus.TOO_MANY_REQUESTS), (1, 2)):
        try:
            exc = cls(*arguments)
            str(exc)
        except Exception:
            continue
        return exc
    raise AssertionError(f"no way to make a {cls.__name__}")


def installed_classes() -> list[type[Exception]]:
    for name in defining_modules():
        importlib.import_module(name)
    found = [cls for cls in subclasses(upstream.VLLMError) if cls.__module__.startswith("vllm.")]
    return [cls for cls in dict.fromkeys(found) if getattr(sys.modules[cls.__module__], cls.__name__, None) is cls]


def test_every_class_of_the_installed_vllm_has_upstreams_status_type_and_parameter() -> None:
    """A class that a newer vLLM adds is found here, not missed. The contract names no difference for any of them."""
    original = upstream.original("create_error_response")
    classes = installed_classes()
    assert {"VLLMValidationError", "EngineDeadError", "QueueOverflowError", "HTTPResponseSizeExceededError"} <= {
        cls.__name__ for cls in classes
    }
    for cls in classes:
        exc = make(cls)
        theirs = original(exc).error
        ours = convert.to_details(exc)
        assert (ours.status_code, ours.error_type, ours.parameter) == (theirs.code, theirs.type, theirs.param), cls


def test_the_original_is_still_upstreams() -> None:
    assert upstream.original("create_error_response")(exceptions.OmniConflictError("no")).error.code == 400
    assert upstream.original("sanitize_message")("see /home/a/b") == "see <path>"


@pytest.mark.parametrize("name", ["sanitize_message", "create_error_response"])
def test_every_module_of_vllm_that_imported_the_function_calls_ours(name: str) -> None:
    holders = [
        module.__name__
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("vllm.") and isinstance(vars(module).get(name), FunctionType)
    ]
    override = next(each for each in upstream.OVERRIDES if each.name == name)
    assert len(holders) >= 4
    for holder in holders:
        assert vars(sys.modules[holder])[name].__code__ is override.stand_in.__code__, holder


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (exceptions.OmniConflictError("busy"), (409, "ConflictError", None, "busy")),
        (exceptions.OmniNotImplementedError("not here"), (501, "NotImplementedError", None, "not here")),
        (exceptions.OmniServiceUnavailableError("later"), (503, "ServiceUnavailableError", None, "later")),
        (exceptions.OmniStageTimeoutError("late"), (504, "GatewayTimeoutError", None, "late")),
        (
            upstream.VLLMValidationError("n is bad", parameter="n", value="prompt"),
            (400, "BadRequestError", "n", "n is bad"),
        ),
        (ValueError("n is bad"), (400, "BadRequestError", None, "n is bad")),
        (RuntimeError("private"), (500, "InternalServerError", None, GENERIC)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_exception_is_rendered_by_the_catalogue(
    create_error_response: Callable[..., Any], exc: Exception, expected: tuple[int, str, str | None, str]
) -> None:
    error = create_error_response(exc).error
    assert (error.code, error.type, error.param, error.message) == expected


def test_a_text_keeps_its_status_type_and_parameter(create_error_response: Callable[..., Any]) -> None:
    error = create_error_response("no such model", "NotFoundError", HTTPStatus.NOT_FOUND, "model").error
    assert (error.code, error.type, error.param, error.message) == (404, "NotFoundError", "model", "no such model")
    assert create_error_response("bad (parameter=n, value=private)").error.model_dump() == {
        "message": "bad",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
        "request_id": None,
        "error_stage_id": None,
    }


def test_case_i11_the_stage_is_in_the_object(create_error_response: Callable[..., Any]) -> None:
    error = create_error_response(exceptions.OmniEngineGenerateError("raw", stage_id=1)).error
    assert error.error_stage_id == 1


def serving(site: Site, answer: Callable[..., Any]) -> None:
    """Put a serving class in the place of vLLM's, so that its own route runs."""
    from vllm.entrypoints.serve.engine.serving import BaseServing

    class Serving:
        create_error_response = staticmethod(BaseServing.create_error_response)

        async def create_completion(self, request: Any, raw_request: Request) -> Any:
            return answer(self, request)

    site.app.state.openai_serving_completion = Serving()


@pytest.mark.timeout(60)
def test_a_model_name_of_16_000_characters_does_not_stall_vllms_own_route(upstream_site: Site) -> None:
    """Upstream's sanitizer needs more than 40 s for it."""
    serving(
        upstream_site,
        lambda self, request: self.create_error_response(
            message=f"The model `{request.model}` does not exist.",
            err_type="NotFoundError",
            status_code=HTTPStatus.NOT_FOUND,
            param="model",
        ),
    )
    answer = upstream_site.client.post("/v1/completions", json={"model": "/a" * 8_000, "prompt": "x"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"], error["param"]) == (404, 404, "NotFoundError", "model")
    assert len(error["message"]) <= 2_000
    assert error["request_id"] == answer.headers["x-request-id"]


def test_an_error_that_vllms_route_returns_has_the_headers_too(upstream_site: Site) -> None:
    serving(upstream_site, lambda self, request: self.create_error_response(exceptions.OmniConflictError("busy")))
    answer = upstream_site.client.post(
        "/v1/completions", json={"model": "m", "prompt": "x"}, headers={"x-request-id": "r"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, 409)
    assert answer.json()["error"]["request_id"] == answer.headers["x-request-id"] == "r"
    assert answer.headers["x-should-retry"] == "false"


def test_an_error_that_was_rendered_and_not_sent_leaves_no_header(
    plain: Callable[..., Site], create_error_response: Callable[..., Any]
) -> None:
    app = FastAPI()

    @app.get("/recovers")
    async def recovers() -> str:
        create_error_response(exceptions.OmniConflictError("busy"))
        return "well"

    answer = plain(app).client.get("/recovers")
    assert (answer.status_code, "x-should-retry" in answer.headers) == (200, False)


@pytest.mark.parametrize(("module", "expected"), [("vllm_omni.x", 500), ("vllm.x", 400)])
def test_a_rendered_raw_exception_is_mapped_by_its_route(
    plain: Callable[..., Site], create_error_response: Callable[..., Any], module: str, expected: int
) -> None:
    async def endpoint() -> JSONResponse:
        answer = create_error_response(ValueError("n is bad"))
        return JSONResponse(answer.model_dump(), answer.error.code)

    endpoint.__module__ = module
    app = FastAPI()
    app.add_api_route("/route", endpoint)
    assert plain(app, raw_mapping=False).client.get("/route").status_code == expected


def test_what_the_renderer_renders_is_logged(
    create_error_response: Callable[..., Any], log: list[logging.LogRecord]
) -> None:
    create_error_response(upstream.VLLMNotFoundError("no"))
    create_error_response(RuntimeError("private"))
    create_error_response("no")
    assert [(record.levelname, bool(record.exc_info)) for record in log] == [
        ("INFO", False),
        ("ERROR", True),
        ("INFO", False),
    ]


def test_what_is_rendered_and_then_raised_is_logged_once(
    plain: Callable[..., Site], create_error_response: Callable[..., Any], log: list[logging.LogRecord]
) -> None:
    """A helper of vLLM's returns an answer, and its caller raises it."""
    app = FastAPI()

    @app.get("/route")
    async def route() -> None:
        raise seams.response_error(create_error_response("no such model", "NotFoundError", 404))

    assert plain(app).client.get("/route").status_code == 404
    assert [record.levelname for record in log] == ["INFO"]


def test_what_is_rendered_when_all_is_answered_is_not_logged(
    plain: Callable[..., Site], create_error_response: Callable[..., Any], log: list[logging.LogRecord]
) -> None:
    """A batch that failed cancels its other parts, and vLLM renders that for nobody."""
    app = FastAPI()

    @app.get("/route")
    async def route() -> JSONResponse:
        return JSONResponse({}, background=BackgroundTask(create_error_response, "Client disconnected"))

    assert plain(app).client.get("/route").status_code == 200
    assert log == []


def test_every_path_of_vllms_application_is_readable(upstream_site: Site) -> None:
    paths = [route.path for route in upstream_site.app.routes if hasattr(route, "path")]
    assert len(paths) > 20
    text = json.dumps([path for path in paths if path])
    sanitize = convert.public_text.sanitize
    assert [path for path in json.loads(text) if sanitize(f"see {path}.") != f"see {path}."] == []
