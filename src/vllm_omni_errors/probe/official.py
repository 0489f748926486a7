# SPDX-License-Identifier: Apache-2.0
"""What the official OpenAI client makes of an answer: the judge that users have (contract, sections 2 and 5)."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vllm_omni_errors.probe.answer import Answer, Asked
from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.canaries import Canaries
from vllm_omni_errors.probe.contract import Contract
from vllm_omni_errors.probe.record import Finding
from vllm_omni_errors.probe.rules import ACCEPTED, Expect, Judgement, shown

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Method = Callable[..., Awaitable[Any]]

CLASSES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}
"""Status → the client's exception; from 500 on `InternalServerError`."""

RETRIES_HEADER = "x-stainless-retry-count"
FIELDS = ("status_code", "code", "type", "param", "request_id")
OWN_FIELDS = ("model", "messages", "prompt", "input", "stream", "max_tokens", "temperature", "size", "n")


def _methods(client: "AsyncOpenAI") -> Mapping[tuple[str, str], Method]:
    return {
        ("POST", "/v1/chat/completions"): client.chat.completions.create,
        ("POST", "/v1/completions"): client.completions.create,
        ("POST", "/v1/responses"): client.responses.create,
        ("POST", "/v1/images/generations"): client.images.generate,
        ("GET", "/v1/models/{model}"): client.models.retrieve,
        ("GET", "/v1/videos/{video_id}"): client.videos.retrieve,
        ("GET", "/v1/videos/{video_id}/content"): client.videos.download_content,
    }


async def ask(root: str, call: Call, headers: Mapping[str, str], deadline_s: float, *, proxied: bool) -> Answer:
    """Let the client send `call` as its users do, with its own repetitions, and see what it raises."""
    from openai import APIConnectionError, APIError, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient

    began = time.monotonic()
    client = AsyncOpenAI(
        base_url=f"{root}/v1", api_key="none", default_headers=dict(headers), timeout=deadline_s,
        http_client=DefaultAsyncHttpxClient(trust_env=proxied),
    )  # fmt: skip
    answer = Asked(call, 0.0)
    raised: APIError | None = None
    try:
        async with client:
            result = await _methods(client)[call.method, call.route or call.path](**_arguments(call))
            events = [event async for event in result] if _streams(call) else [result]
            body = json.dumps([_dumped(event) for event in events], default=repr).encode()
            answer = replace(answer, status=200, body=body)
    except APIStatusError as error:
        head = {name.lower(): value for name, value in error.response.headers.items()}
        attempts = int(error.response.request.headers.get(RETRIES_HEADER, 0)) + 1
        answer = replace(answer, status=error.status_code, headers=head, body=error.response.content, attempts=attempts)
        raised = error
    except APIConnectionError as error:
        answer = replace(answer, failure="dropped", problem=f"{type(error).__name__}: {error}")
        raised = error
    except APIError as error:
        answer = replace(answer, status=200, body=json.dumps(error.body, default=repr).encode())
        raised = error
    seen = {name: getattr(raised, name, None) for name in FIELDS} if raised else {}
    name = type(raised).__name__ if raised else None
    return replace(answer, seconds=time.monotonic() - began, raised=name, seen=seen)


def _streams(call: Call) -> bool:
    return isinstance(call.json, dict) and bool(call.json.get("stream"))


def _dumped(event: Any) -> Any:
    return event.model_dump() if hasattr(event, "model_dump") else repr(event)


def _arguments(call: Call) -> dict[str, Any]:
    if call.json is None:
        return {"model" if call.path.startswith("/v1/models") else "video_id": call.path.split("/")[3]}
    own = {key: value for key, value in call.json.items() if key in OWN_FIELDS}
    return own | {"extra_body": {key: value for key, value in call.json.items() if key not in OWN_FIELDS}}


@dataclass(frozen=True, slots=True)
class Raises:
    """The exception of the client that goes with the error; `once`: a repetition cannot help, so it sends no second."""

    error: Expect
    once: bool = False

    @property
    def success(self) -> bool:
        return self.error.success

    def describe(self) -> str:
        classes = " or ".join(dict.fromkeys(map(class_for, sorted(self.error.statuses))))
        return f"{classes}: {self.error.describe()}{', after one request' if self.once else ''}"

    def judge(self, answer: Answer, canaries: Canaries, contract: Contract) -> Judgement:
        if answer.status is None or not isinstance(answer, Asked):
            return Judgement((Finding("official client", answer.problem or "no answer"),))
        if answer.status in self.error.unserved:
            return Judgement(skip=f"not served here: {answer.status}")
        if answer.raised is None:
            accepted = self.error.accepted or (ACCEPTED if self.error.lenient and contract is Contract.OPENAI else None)
            if accepted:
                return Judgement(skip=accepted)
            return Judgement((Finding("official client", f"raised nothing, expected {self.describe()}"),))
        return Judgement(tuple(_wrong(answer, self.error, self.once)))


def class_for(status: int) -> str:
    """Name of the client's exception for a status."""
    return CLASSES.get(status, "InternalServerError" if status >= 500 else "APIStatusError")


def _wrong(answer: Asked, expect: Expect, once: bool) -> list[Finding]:
    def finding(text: str, contract: Contract) -> Finding:
        return Finding("official client", text, contract.word)

    found, seen = [], answer.seen
    classes = {class_for(status) for status in expect.statuses}
    if answer.raised not in classes:
        is_client = answer.status is not None and 400 <= answer.status < 500
        alike = is_client == (min(expect.statuses) < 500)
        least = Contract.VLLM if alike else Contract.OPENAI
        found.append(finding(f"{answer.raised} was raised, expected {' or '.join(sorted(classes))}", least))
    elif str(seen["code"]) != str(seen["status_code"]):
        found.append(finding(f".code is {shown(seen['code'])}, not {seen['status_code']}", Contract.VLLM))
    if not seen["type"]:
        found.append(finding(f".type is {shown(seen['type'])}", Contract.VLLM))
    elif expect.types and seen["type"] not in expect.types and answer.status in expect.statuses:
        found.append(finding(f".type is {shown(seen['type'])}, expected {' or '.join(expect.types)}", Contract.VLLM))
    if expect.param and str(seen["param"]).rpartition(".")[2] != expect.param:
        found.append(finding(f".param is {shown(seen['param'])}, expected {expect.param}", Contract.OMNI))
    if not seen["request_id"]:
        found.append(finding(".request_id is not known", Contract.OMNI))
    if once and answer.attempts != 1:
        found.append(finding(f"it sent the request {answer.attempts} times", Contract.OMNI))
    return found
