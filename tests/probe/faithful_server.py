# SPDX-License-Identifier: Apache-2.0
"""A small server that keeps the error contract, in this process, and made to be broken one way at a time.

A test subclasses `Faithful` and overrides the one method whose behaviour it breaks.
"""

import asyncio
import base64
import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import uvicorn
from asgi_server import serving_app
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from vllm_omni_errors.probe import Pace

# Long enough for a busy machine: only a server that hangs on purpose makes a test wait for them.
QUICK = Pace(
    deadline_s=4.0, generation_s=4.0, ready_s=4.0, recovery_s=4.0, recovery_pause_s=0.05, attempts=2,
    requests_per_second=1_000.0, document_s=4.0,
)  # fmt: skip

MODEL = "tiny"
MAXIMUM_TOKENS = 256
INT64 = 2**63
ROUTES = {
    "/health": "GET",
    "/v1/models": "GET",
    "/openapi.json": "GET",
    "/metrics": "GET",
    "/version": "GET",
    "/v1/chat/completions": "POST",
    "/v1/completions": "POST",
    "/v1/responses": "POST",
    "/v1/images/generations": "POST",
    "/v1/images/edits": "POST",
    "/tokenize": "POST",
}
UNCOUNTED = {"/health", "/metrics", "/version"}


@dataclass
class Problem(Exception):  # noqa: N818
    status: int
    type: str
    message: str
    param: str | None = None
    stage: int | None = None
    allow: str | None = None


def invalid(message: str, param: str | None = None) -> Problem:
    return Problem(400, "BadRequestError", message, param)


INTERNAL = "Internal server error"
PNG = base64.b64encode(b"\x89PNG").decode()


class Faithful:
    """The whole of a server; `app` is the ASGI application."""

    model = MODEL
    maximum_tokens: int | None = MAXIMUM_TOKENS

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.server: uvicorn.Server | None = None
        self.seen: list[str] = []

    # What tests break.

    def status(self, problem: Problem, path: str) -> int:
        return problem.status

    def error(self, problem: Problem, path: str, request_id: str, body: bytes) -> Any:
        error = {
            "message": problem.message,
            "type": problem.type,
            "param": problem.param,
            "code": problem.status,
            "request_id": request_id,
            "error_stage_id": problem.stage,
        }
        return {"error": error}

    def headers(self, problem: Problem, request_id: str) -> dict[str, str]:
        headers = {"x-request-id": request_id} | ({"x-should-retry": "false"} if problem.status == 501 else {})
        return headers | ({"Allow": problem.allow} if problem.allow else {})

    def counted(self, path: str, status: int) -> str | None:
        """The class under which a request is counted; `None`: not at all."""
        return f"{status // 100}xx"

    async def before(self, scope: Scope, send: Send) -> bool:
        """Called before a request is read; true when it has been dealt with."""
        return False

    def images(self, body: dict[str, Any]) -> Any:
        return {"created": 1, "data": [{"b64_json": PNG}]}

    def fault(self, word: str) -> Any:
        internal = Problem(500, "InternalServerError", INTERNAL, stage=1)
        faults: dict[str, Problem] = {
            "FAULT:guard": Problem(400, "GuardrailViolationError", "The request was rejected.", stage=1),
            "FAULT:raise=VLLMValidationError": replace(invalid("The size is not valid.", "size"), stage=1),
        }
        raise faults.get(word, internal)

    # The rest.

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        if scope["type"] != "http":
            return
        path, method = scope["path"], scope["method"]
        self.seen.append(path)
        if await self.before(scope, send):
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        response = await self.respond(scope, path, method, body)
        known = path in ROUTES
        if path not in UNCOUNTED and (status := self.counted(path, response.status_code)):
            self.counts[path if known else "none", method, status] += 1
        await response(scope, receive, send)

    async def respond(self, scope: Scope, path: str, method: str, body: bytes) -> Response:
        request_id = f"req-{uuid4().hex}"
        try:
            if path not in ROUTES:
                raise Problem(404, "Not Found", "Not Found")
            if ROUTES[path] != method:
                raise Problem(405, "Method Not Allowed", "Method Not Allowed", allow=ROUTES[path])
            if path == "/metrics":
                return PlainTextResponse(self.exposition())
            answer = await self.answer(scope, path, body)
            if b'"stream": true' in body or b'name="stream"' in body:
                return self.stream(path, answer)
            return JSONResponse(answer, headers={"x-request-id": request_id})
        except Problem as problem:
            content = self.error(problem, path, request_id, body)
            headers = self.headers(problem, request_id)
            return JSONResponse(content, self.status(problem, path), headers=headers)

    def stream(self, path: str, answer: Any) -> Response:
        events = [answer] if path != "/v1/responses" else [{"type": "response.completed", "response": answer}]
        data = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        end = "" if path == "/v1/responses" else "data: [DONE]\n\n"
        return Response(data + end, media_type="text/event-stream")

    def exposition(self) -> str:
        lines = ["# HELP http_requests_total Total.", "# TYPE http_requests_total counter"]
        for (handler, method, status), count in self.counts.items():
            lines.append(f'http_requests_total{{handler="{handler}",method="{method}",status="{status}"}} {count}.0')
        return "\n".join(lines) + "\n"

    async def answer(self, scope: Scope, path: str, body: bytes) -> Any:
        match path:
            case "/health":
                return {}
            case "/version":
                return {"version": "0.0.1"}
            case "/v1/models":
                return {"data": [{"id": self.model, "max_model_len": self.maximum_tokens}]}
            case "/openapi.json":
                return {"paths": {path: {method.lower(): {}} for path, method in ROUTES.items()}}
            case "/v1/images/edits":
                return await self.edit(scope, body)
        return self.generate(path, self.read(scope, body))

    def read(self, scope: Scope, body: bytes) -> dict[str, Any]:
        kind = dict(scope["headers"]).get(b"content-type", b"")
        if kind != b"application/json":
            raise Problem(400, "Bad Request", "The content type must be application/json.")
        try:
            value = json.loads(body)
        except ValueError as error:
            raise Problem(400, "Bad Request", "The body is not JSON.") from error
        if not isinstance(value, dict):
            raise Problem(400, "Bad Request", "The body is not an object.")
        return value

    def generate(self, path: str, body: dict[str, Any]) -> Any:
        if body.get("model", self.model) != self.model:
            raise Problem(404, "NotFoundError", "The model does not exist.")
        if not -INT64 <= body.get("seed", 0) < INT64:
            raise invalid("seed is out of range", "seed")
        match path:
            case "/v1/chat/completions":
                return self.chat(body)
            case "/v1/completions":
                self.check_temperature(body)
                return {"choices": [{"text": "x", "finish_reason": "length"}]}
            case "/v1/responses":
                if not isinstance(body.get("input"), str):
                    raise invalid("input is not valid", "input")
                return {"object": "response"}
            case "/tokenize":
                if "chat_template" in body:
                    raise invalid("The chat template is broken.", "chat_template")
                return {"tokens": [1, 2]}
        return self.image(body)

    def chat(self, body: dict[str, Any]) -> Any:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise Problem(400, "Bad Request", "messages is not valid", "messages")
        self.check_temperature(body)
        if not isinstance(body.get("modalities", []), list):
            raise invalid("modalities must be a list", "modalities")
        if "response_format" in body:
            raise invalid("The schema is not valid.", "response_format")
        if any(token >= INT64 for token in body.get("stop_token_ids", [])):
            raise invalid("stop_token_ids is out of range", "stop_token_ids")
        self.check_length(messages[0]["content"])
        self.check_word(messages[0]["content"])
        return {"choices": [{"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}

    def check_temperature(self, body: dict[str, Any]) -> None:
        if body.get("temperature", 0) < 0:
            raise invalid("temperature must not be negative", "temperature")

    def check_word(self, prompt: str) -> None:
        if prompt.split()[-1].startswith("FAULT:"):
            self.fault(prompt.split()[-1])

    def check_length(self, prompt: str) -> None:
        if self.maximum_tokens and len(prompt.split()) > self.maximum_tokens:
            raise invalid("The prompt is too long.", "prompt")

    def image(self, body: dict[str, Any]) -> Any:
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            raise Problem(400, "Bad Request", "prompt is missing", "prompt")
        width, _, height = body.get("size", "1x1").partition("x")
        if not (width.isdigit() and height.isdigit()):
            raise invalid("size must look like 64x64", "size")
        if not 1 <= body.get("n", 1) <= 10:
            raise invalid("n is out of range", "n")
        if body.get("layers", 1) < 1:
            raise invalid("layers is out of range", "layers")
        self.check_length(prompt)
        word = prompt.split()[-1]
        return self.fault(word) if word.startswith("FAULT:") else self.images(body)

    async def edit(self, scope: Scope, body: bytes) -> Any:
        form = await read_form(scope, body)
        if form.get("model", self.model) != self.model:
            raise Problem(404, "NotFoundError", "The model does not exist.")
        if int(str(form.get("seed", "0"))) >= INT64:
            raise invalid("seed is out of range", "seed")
        self.check_word(str(form.get("prompt", "x")))
        url = form.get("url")
        if url is not None:
            await self.fetch(str(url))
        upload = form.get("image")
        if isinstance(upload, UploadFile) and not (await upload.read()).startswith(b"\x89PNG"):
            raise self.unprocessable()
        return self.images({})

    def unprocessable(self) -> Problem:
        return Problem(422, "UnprocessableEntityError", "The image cannot be read.", "image")

    async def fetch(self, url: str) -> None:
        if not url.startswith("http"):
            raise self.unprocessable()
        try:
            await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read())
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise self.unprocessable() from error
            raise Problem(500, "InternalServerError", "The media could not be fetched; try again.") from error
        except urllib.error.URLError as error:
            raise Problem(500, "InternalServerError", "The media could not be fetched; try again.") from error


async def read_form(scope: Scope, body: bytes) -> Any:
    from starlette.requests import Request

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    return await Request(scope, receive).form()


@contextmanager
def serving(faithful: Faithful) -> Iterator[str]:
    """The server at a loopback URL, in a thread, until the block ends."""
    with serving_app(faithful.app) as (url, faithful.server):
        yield url
