# SPDX-License-Identifier: Apache-2.0
"""What holds for every error of a migrated server (contract, sections 1 to 4), whatever its status."""

import re
from collections.abc import Iterable

import httpx
import openai
from calls import LONG, PNG, data_url
from support import Answer, Call, Seen, seen

from vllm_omni_rig.failures import CANARIES

NEVER_PUBLIC = (*CANARIES.values(), LONG[:130], data_url(PNG)[-40:], "(parameter=", "Traceback", "site-packages")
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
SMALL = 4_000
"""Bytes: the longest error body, ten field errors with their locations."""

RETRY_CANNOT_HELP = ("ConflictError", "NotImplementedError", "GatewayTimeoutError")
"""Types whose answers carry `x-should-retry: false`."""

CLIENT_ERRORS: dict[int, type[openai.APIStatusError]] = {
    400: openai.BadRequestError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    422: openai.UnprocessableEntityError,
    500: openai.InternalServerError,
    501: openai.InternalServerError,
    503: openai.InternalServerError,
    504: openai.InternalServerError,
}
"""Status → what the official client raises; any other is an `APIStatusError`."""


def verify(answer: Answer, expected: Seen, *, permanent: bool = False) -> None:
    """The answer is the expected one, its fields agree with each other and with its headers, and nothing leaks."""
    assert seen(answer) == expected, f"{seen(answer)} is not {expected}: {answer.text}"
    nothing_leaks(answer.text)
    assert answer.headers.get("x-request-id"), f"no id in the headers: {answer.headers}"
    if expected.shape != "six":
        return
    error = answer.error
    final = permanent or error["type"] in RETRY_CANNOT_HELP
    stage = error["error_stage_id"]
    rules = {
        "code is the status": error["code"] == answer.status,
        "there is a message": bool(error["message"].strip()),
        "the id is that of the header": error["request_id"] == answer.headers["x-request-id"],
        "the stage is a number or null": stage is None or isinstance(stage, int),
        "the retry header": answer.headers.get("x-should-retry") == ("false" if final else None),
    }
    assert all(rules.values()), f"{[rule for rule, kept in rules.items() if not kept]}: {answer.text} {answer.headers}"


def nothing_leaks(text: str, more: Iterable[str] = ()) -> None:
    leaked = [each for each in (*NEVER_PUBLIC, *more) if each in text] + ADDRESS.findall(text)
    assert not leaked, f"{leaked} in {text}"
    assert len(text) < SMALL, f"{len(text)} bytes: {text[:500]}"


def logged(log: str, request_id: str) -> list[str]:
    """What the library logged about a request: the level of each line, and whether a traceback follows.

    What follows is the next line of the same process: several write into one log.
    """
    lines = log.splitlines()
    found = []
    for number, line in enumerate(lines):
        if f"(request_id={request_id} " in line:
            process = _PROCESS.match(line)[0]
            following = next((other for other in lines[number + 1 :] if other.startswith(process)), "")
            found.append(" ".join([_LEVEL.search(line)[1], *_TRACEBACK.findall(following)]))
    return found


_PROCESS = re.compile(r"(\(\w+ pid=\d+\) )?")
_LEVEL = re.compile(r"\b(INFO|WARNING|ERROR) \d\d-\d\d ")
_TRACEBACK = re.compile(r"Traceback")


def client_error(url: str, call: Call, retries: int = 0) -> openai.APIStatusError | None:
    """What the official client raises for a request; None if nothing."""
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=retries, timeout=20)
    options: dict[str, object] = {"headers": dict(call.headers)}
    body, files = call.json, None
    if call.form is not None:
        body, files = dict(call.form), [*call.files] or [("nothing", ("", b""))]
        options["headers"] = {"Content-Type": "multipart/form-data"}
    try:
        if call.method == "POST":
            client.post(call.path, body=body, files=files, options=options, cast_to=httpx.Response)
        else:
            client.request(httpx.Response, openai._models.FinalRequestOptions(method=call.method, url=call.path))
    except openai.APIStatusError as error:
        return error
    return None


def attempts(error: openai.APIStatusError) -> int:
    """How often the official client sent the request before it raised: each repetition says which it is."""
    return int(error.request.headers["x-stainless-retry-count"]) + 1


def verify_client(error: openai.APIStatusError | None, expected: Seen) -> None:
    """The official client raised the class of the status, with the error's fields and the request's id."""
    assert error is not None, "the official client raised nothing"
    wanted = CLIENT_ERRORS.get(expected.status, openai.APIStatusError)
    found = (type(error), error.status_code, error.code, error.type, error.param)
    assert found == (wanted, expected.status, str(expected.status), expected.type, expected.param), found
    assert error.request_id, "the official client has no request id"
    assert error.body["request_id"] == error.request_id, f"{error.request_id} is not in {error.body}"
