# SPDX-License-Identifier: Apache-2.0
"""``install(app)``: one handler for every error of an application, inside its instrumented boundary (contract, 4).

A handler that is registered the ordinary way never runs: ``build_app`` of vLLM 0.27 and later builds the middleware
stack before it returns (``model_hosting_container_standards``), and Starlette reads the registered handlers only then.
Building it again would stop ``http_requests_total``. So ``install`` walks to the ``ExceptionMiddleware`` of the stack
that is there, which lies inside the Prometheus middleware, and replaces every handler in it: upstream's handlers for
subclasses would win over one for ``VLLMError``.
"""

import logging
import traceback
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from types import CodeType
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.utils import request_body_to_args
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException, WebSocketException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Scope
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from vllm_omni_errors import catalogue, convert, metrics, public_text, tracing, upstream
from vllm_omni_errors.details import OmniErrorDetails
from vllm_omni_errors.media import converts_media

from . import envelope, openapi, request

logger = logging.getLogger("vllm_omni_errors")

MAX_LAYERS = 100
MAX_LOGGED_PATH_CHARACTERS = 200
_ALWAYS_HANDLED: tuple[type[Exception], ...] = (
    HTTPException,
    RequestValidationError,
    WebSocketRequestValidationError,
    upstream.VLLMError,
    Exception,
)
UNREADABLE = "The request's body cannot be read."
_READS_BODY = request_body_to_args.__code__
_READS_JSON = Request.json.__code__
_BODILESS = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


def install(
    app: Starlette, *, raw_mapping: bool = True, reviewed: Collection[str] = (), seams: str | None = None
) -> None:
    """Give every error of ``app``, and of the applications mounted in it, the contract's status, body and headers.

    Call it last: after ``build_app()``, and after every middleware and mounted application is there. Doing it twice is
    safe, and so are several applications in one process. Its OpenAPI document then says how each route fails.

    Args:
        app: the application, built or not.
        raw_mapping: keep upstream's mapping of raw ``ValueError``, ``TypeError``, ``OverflowError`` and
            ``NotImplementedError`` on every route. Without it only routes whose endpoint is vLLM's own keep it, and
            elsewhere a raw exception is an unknown server failure, 500.
        reviewed: names of the endpoint functions that do without it already, because all their own errors are typed.
        seams: the version of vLLM whose request-reading code the application converts, call by call; on any other
            the server would answer 500 to mistakes of its clients.

    Raises:
        InstallError: it cannot be done, and why; the server must not start.

    """
    if not isinstance(app, Starlette):
        raise upstream.InstallError(f"install() needs a FastAPI or Starlette application, not a {type(app).__name__}.")
    if seams is not None:
        upstream.require_version(seams)
        upstream.watch_media_connectors(converts_media)
    upstream.share_logging(logger)
    upstream.apply_overrides({"sanitize_message": public_text.sanitize, "create_error_response": render})
    boundary = Boundary(app, raw_mapping=raw_mapping, reviewed=frozenset(reviewed))
    for each in _applications(app):
        _install_into(each, boundary)
    if not isinstance(app.middleware_stack, request.RequestIdentity):
        assert app.middleware_stack is not None
        app.middleware_stack = request.RequestIdentity(app.middleware_stack)


def _install_into(app: Starlette, boundary: Any) -> None:
    if app.middleware_stack is None:
        app.middleware_stack = app.build_middleware_stack()
    layers = list(_layers(app.middleware_stack))
    names = " → ".join(type(layer).__name__ for layer in layers)
    inner = next((layer for layer in layers if isinstance(layer, ExceptionMiddleware)), None)
    if inner is None:
        raise upstream.InstallError(
            f"No ExceptionMiddleware is reachable in the middleware stack ({names}): every middleware must keep "
            "the next application in its attribute `app`."
        )
    try:
        handled = {*_ALWAYS_HANDLED, *inner._exception_handlers, *inner._status_handlers} - {WebSocketException}
        for exception_or_status in handled:
            inner.add_exception_handler(exception_or_status, boundary)
            app.exception_handlers[exception_or_status] = boundary
    except (AttributeError, TypeError) as error:
        raise upstream.InstallError(f"This Starlette keeps its exception handlers elsewhere: {error}.") from error
    for layer in layers:
        if isinstance(layer, ServerErrorMiddleware):
            layer.handler = boundary.outside
    setattr(app.state, request.STATE, boundary)
    if isinstance(app, FastAPI):
        openapi.document(app)


def _layers(app: ASGIApp | None) -> Iterator[Any]:
    """The layers of a middleware stack from the outside in, as far as each keeps the next in ``.app``."""
    for _ in range(MAX_LAYERS):
        if app is None:
            return
        yield app
        app = getattr(app, "app", None)


def _applications(app: Starlette) -> Iterator[Starlette]:
    """The application, and those that are mounted below it, at any depth."""
    waiting: list[Any] = [app]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Starlette):
            yield each
        if isinstance(each, Starlette | Router):
            for route in each.routes:
                waiting.extend(_layers(getattr(route, "app", None)))


def error_response(details: OmniErrorDetails, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The HTTP answer of a record: its status, ``{"error": {…}}``, ``x-request-id`` and ``x-should-retry``.

    ``headers`` are kept where they do not describe another body.
    """
    own = envelope.headers(details)
    try:
        return JSONResponse(envelope.body(details), details.status_code, envelope.merged(own, headers))
    except (AttributeError, TypeError, ValueError):  # headers that cannot be sent
        return JSONResponse(envelope.body(details), details.status_code, own)


class Boundary:
    """The one handler of an application. It answers HTTP requests and finishes WebSockets."""

    def __init__(self, app: Starlette, *, raw_mapping: bool, reviewed: frozenset[str]) -> None:
        self.app = app
        self.raw_mapping = raw_mapping
        self.reviewed = reviewed

    async def __call__(self, connection: HTTPConnection, exc: Exception) -> Response | None:
        if isinstance(exc, ClientDisconnect | WebSocketDisconnect):
            logger.info("%s: the client is gone", _where(connection.scope))
            return None
        if isinstance(connection, WebSocket):
            if isinstance(exc, RuntimeError) and connection.application_state is WebSocketState.DISCONNECTED:
                logger.info("%s: closed before everything was sent", _where(connection.scope))
            else:
                await self._finish(connection, exc)
            return None
        return self._answer(connection, exc)

    async def outside(self, connection: HTTPConnection, exc: Exception) -> Response:
        """The handler for what a middleware outside of the boundary raises; it must answer.

        What breaks off an answer that has begun comes here too, as a `RuntimeError` of Starlette's: it is logged
        already, if the stream said what it was (`stream.Started`).
        """
        current = request.current(connection.scope)
        if current.answering and current.error is not None:
            return error_response(current.error)
        return await self(connection, exc) or Response(status_code=HTTPStatus.INTERNAL_SERVER_ERROR)

    def details(self, exc: BaseException, scope: Scope) -> OmniErrorDetails:
        """The record of an exception that reached the boundary, under the id that the client knows the request by."""
        current = request.current(scope)
        raw = self._maps_raw(scope)
        if _is_no_json(exc) or (not raw and _failed_in_the_body(exc)):
            exc = upstream.VLLMValidationError(UNREADABLE)
        details = convert.to_details(exc, raw=raw)
        current.error = details.under(current.known_id or details.request_id or current.error_id)
        tracing.mark_span(current.error)
        return current.error

    def _maps_raw(self, scope: Scope) -> bool:
        endpoint = scope.get("endpoint")
        if upstream.is_upstream_endpoint(endpoint):
            return True
        return self.raw_mapping and getattr(endpoint, "__name__", None) not in self.reviewed

    def _answer(self, connection: HTTPConnection, exc: Exception) -> Response:
        if isinstance(exc, HTTPException) and exc.status_code < HTTPStatus.BAD_REQUEST:
            content = None if exc.status_code in _BODILESS else exc.detail
            return PlainTextResponse(content, exc.status_code, exc.headers)
        return _response(self.handled(exc, connection.scope), exc)

    async def _finish(self, socket: WebSocket, exc: Exception) -> None:
        details = self.handled(exc, socket.scope)
        code = catalogue.close_code(details.category, details.status_code)
        reason = envelope.close_reason(details)
        try:
            if socket.application_state is WebSocketState.CONNECTED:
                metrics.count_error(details, "websocket")
                await request.send_event(socket, envelope.event(details))
                await socket.close(code, reason)
            elif socket.application_state is not WebSocketState.CONNECTING:
                return
            elif "websocket.http.response" in socket.scope.get("extensions", {}):
                await socket.send_denial_response(_response(details, exc))
            else:
                metrics.count_error(details, "websocket")
                await socket.close(code, reason)
        except (RuntimeError, WebSocketDisconnect):
            logger.info("%s: the client is gone", _where(socket.scope))

    def handled(self, exc: BaseException, scope: Scope) -> OmniErrorDetails:
        """The record of an exception, logged; an engine that it is about is looked after."""
        current = request.current(scope)
        details = self.details(exc, scope)
        if details != current.rendered:  # else what vLLM's code had rendered is raised now (``seams.response_error``)
            _log(details, exc, scope)
        current.rendered = None
        if details.fatal or isinstance(exc, upstream.EngineDeadError | upstream.EngineGenerateError):
            self._look_after_engine(details)
        return details

    def _look_after_engine(self, details: OmniErrorDetails) -> None:
        """Log the stages' health and end the server if the engine is gone, as ``serve/utils/errors.py:43`` does."""
        engine = getattr(self.app.state, "engine_client", None)
        server = getattr(self.app.state, "server", None)
        if engine is None:
            return
        try:
            if details.fatal:
                orchestrator = getattr(engine, "engine", None)
                alive = orchestrator.is_alive() if orchestrator is not None else "unknown"
                logger.error(
                    "The engine is dead: orchestrator_alive=%s errored=%s request_id=%s stage_id=%s",
                    alive,
                    getattr(engine, "errored", "unknown"),
                    details.request_id,
                    details.stage_id,
                )
            if server is not None:
                upstream.terminate_if_errored(server=server, engine=engine)
        except Exception:
            logger.exception("The engine's state cannot be read")


def _failed_in_the_body(exc: BaseException) -> bool:
    """Whether a raw exception comes from making the body's model, before the route was called: the body is wrong.

    vLLM's models check a body in code that takes its shape for granted. pydantic turns only ``ValueError`` and
    ``AssertionError`` into field errors, and FastAPI has no place where the others could be caught.
    """
    if catalogue.row_for(type(exc)) is not catalogue.ANYTHING_ELSE or not isinstance(exc, Exception):
        return False
    return _passed(exc, _READS_BODY)


def _is_no_json(exc: BaseException) -> bool:
    """Whether an endpoint that reads the body itself failed at it: not UTF-8, not JSON, or nested too deeply.

    FastAPI answers the same body with 400 where it reads it (``fastapi/routing.py:445``).
    """
    return isinstance(exc, ValueError | RecursionError) and _passed(exc, _READS_JSON)


def _passed(exc: BaseException, code: CodeType) -> bool:
    return any(frame.f_code is code for frame, _ in traceback.walk_tb(exc.__traceback__))


def _response(details: OmniErrorDetails, exc: Exception) -> JSONResponse:
    """The HTTP answer of an exception, with what only the exception knows: its headers, and that it is permanent."""
    answer = error_response(details, exc.headers if isinstance(exc, HTTPException) else None)
    if convert.attribute(exc, "permanent", bool):
        answer.headers[envelope.RETRY_HEADER] = envelope.NEVER
    return answer


def _where(scope: Scope) -> str:
    """Method and path of a request, for a log line."""
    path = str(scope.get("path", "(no request)"))[:MAX_LOGGED_PATH_CHARACTERS]
    return f"{scope.get('method', 'WebSocket')} {path.encode('unicode_escape').decode()}"


def _log(details: OmniErrorDetails, exc: BaseException | None, scope: Scope) -> None:
    """A client error is one line, a server error has its traceback."""
    logger.log(
        logging.INFO if details.category == "client" else logging.ERROR,
        "%s: %s %s: %s (request_id=%s stage_id=%s)",
        _where(scope),
        details.status_code,
        details.error_type,
        details.message,
        details.request_id,
        details.stage_id,
        exc_info=exc if details.category == "server" else None,
    )


def render(message: object, err_type: object, status_code: object, param: object) -> Any:
    """What upstream's ``create_error_response`` does instead of its own work: the same model, by the catalogue.

    Serving classes call it with an exception, or with a text, type, status and parameter of their own.
    """
    current = request.current()
    boundary = current.boundary
    exc = message if isinstance(message, BaseException) else None
    if exc is None:
        request_id = current.error_id if boundary is not None else None
        details = replace(convert.worded(message, err_type, status_code, param), request_id=request_id)
    elif boundary is not None:
        details = boundary.details(exc, current.scope)
    else:
        details = convert.to_details(exc, raw=True)
    current.error = current.rendered = details
    if not current.answered:  # else a part of the request that nobody waits for any more
        _log(details, exc, current.scope)
    return upstream.error_response(envelope.error_object(details))
