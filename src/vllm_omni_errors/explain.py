# SPDX-License-Identifier: Apache-2.0
"""What an error means, in words for whoever operates the server; `omni-errors explain` and ``docs/errors.md`` say it.

python -m vllm_omni_errors.explain > docs/errors.md
"""

import difflib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any, NamedTuple

from vllm_omni_errors.catalogue import CATALOGUE, Category, Row, may_be_retried, phrase
from vllm_omni_errors.details import LOWEST_STATUS


class Meaning(NamedTuple):
    """What a public type says, where it comes from, and what to look at."""

    meaning: str
    origin: str
    look_at: str


MEANINGS: dict[str, Meaning] = {
    "BadRequestError": Meaning(
        "The request is wrong, and the client can correct it: `param` names the parameter, if one is at fault.",
        "The API process or the stage that read the request. Nothing was generated.",
        "The request. A rise after an upgrade of clients or of the server: compare what they send with the API.",
    ),
    "GuardrailViolationError": Meaning(
        "A guardrail rejected the content of the request, or of the answer.",
        "The guardrail of a pipeline, usually in a stage process.",
        "The guardrail's configuration, if ordinary content is rejected.",
    ),
    "NotFoundError": Meaning(
        "The model, LoRA adapter, voice, job or artifact that the request names does not exist here.",
        "The API process.",
        "What the server serves: `GET /v1/models`, its voices, its jobs. Jobs are kept in the process that made them.",
    ),
    "ConflictError": Meaning(
        "The job, session or store is in a state that does not allow the operation now.",
        "The API process, or a session's state machine.",
        "The state of what the request names; the same request at once again cannot help.",
    ),
    "UnprocessableEntityError": Meaning(
        "Media of the request is permanently inaccessible or does not decode; `param` names the field.",
        "Fetching and decoding, before anything is generated.",
        "The URL, the size and the format of the media. A source that only failed for the moment is a 500 instead.",
    ),
    "InternalServerError": Meaning(
        "The server failed. The text is never that of the exception; `error_stage_id` says which stage, if one did.",
        "Any process of the server.",
        "The log of the stage's process, or of the API process without a stage, for the request id: class, text and "
        "traceback are there. Out of memory and a lost engine come out like this as well.",
    ),
    "NotImplementedError": Meaning(
        "This server does not implement the operation.",
        "The API process, or a pipeline.",
        "Whether the model serves this route at all; a repetition cannot help.",
    ),
    "ServiceUnavailableError": Meaning(
        "A handler, stage or replica is not there now. With `x-should-retry: false` this server will never have it.",
        "The API process when it starts the request, or the orchestrator when no replica of a stage is alive.",
        "`/health`, the stage processes, and whether the model is served by this deployment.",
    ),
    "GatewayTimeoutError": Meaning(
        "A stage did not finish within its deadline, and the work was given up.",
        "The deadline of a stage (`VLLM_OMNI_STAGE_TIMEOUT_S`), of a generation, or of a call that controls stages.",
        "The stage's load and log. The client does not repeat it by itself: the work would run twice.",
    ),
}
_BY_STATUS = Meaning(
    "The status says it: an error that the web framework, or a route of vLLM's own, answers.",
    "Routing, reading the body, authentication, or vLLM's own routes.",
    "The request's path, method and body.",
)


@dataclass(frozen=True)
class Explanation:
    """One kind of error.

    Attributes:
        exceptions: classes that become it.
        error_type: public `type`.
        status: HTTP status, or the default of a class that has its own.
        own_status: whether the class may have another status.
        owner: `client`, `server`, or `status` if only the number tells.
        retry: whether a repetition may help.
        fatal: whether the engine or replica that served the request is gone.
        close_code: of a WebSocket.
        meaning, origin, look_at: sentences.
    """

    exceptions: tuple[str, ...]
    error_type: str
    status: int
    own_status: bool
    owner: str
    retry: str
    fatal: bool
    close_code: int | None
    meaning: str
    origin: str
    look_at: str


def _explanation(rows: list[Row]) -> Explanation:
    row = rows[0]
    error_type = row.error_type or phrase(row.status)
    meaning = MEANINGS[row.error_type] if row.error_type else _BY_STATUS
    return Explanation(
        exceptions=tuple(each.exception for each in rows),
        error_type=error_type,
        status=row.status,
        own_status=row.status_attribute is not None,
        owner=row.category,
        retry=_retry(row, error_type),
        fatal=row.fatal,
        close_code=row.close_code,
        meaning=meaning.meaning,
        origin=meaning.origin,
        look_at=meaning.look_at,
    )


def _retry(row: Row, error_type: str) -> str:
    if row.final_attribute:
        return "yes, unless the answer says `x-should-retry: false`"
    if not may_be_retried(row.status, error_type):
        return "no: the answer says `x-should-retry: false`"
    if row.category == "client":
        return "no: not before the request is corrected"
    return "yes" if row.category == "server" else "by the status"


def everything() -> tuple[Explanation, ...]:
    """Every kind of error, clients' first, by status."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in CATALOGUE:
        key = (row.category, row.status, row.error_type, row.status_attribute is None, row.fatal, row.final_attribute)
        groups.setdefault(key, []).append(row)
    order = {"client": 0, "server": 1, "status": 2}
    found = map(_explanation, groups.values())
    return tuple(sorted(found, key=lambda each: (order[each.owner], each.status, each.own_status, each.fatal)))


def explain(word: str) -> tuple[Explanation, ...]:
    """The kinds of error that a status, a public type or an exception class stands for; case does not matter.

    A status or phrase that only the web framework uses is explained by its number. Empty if there is none; `alike`
    names what may have been meant.
    """
    wanted = word.strip().lower()
    found = tuple(
        each
        for each in everything()
        if wanted in (str(each.status), each.error_type.lower(), *(name.lower() for name in each.exceptions))
    )
    statuses = [
        status for status in HTTPStatus if status >= 400 and wanted in (str(int(status)), status.phrase.lower())
    ]
    return found or tuple(map(_by_status, statuses))


def _by_status(status: HTTPStatus) -> Explanation:
    owner: Category = "client" if status < LOWEST_STATUS["server"] else "server"
    row = Row("HTTPException", (), owner, int(status), None)
    return _explanation([row])


def alike(word: str) -> list[str]:
    """Words that `explain` knows and that look like this one."""
    known = {str(each.status) for each in everything()} | {each.error_type for each in everything()}
    known |= {name for each in everything() for name in each.exceptions}
    lower = {name.lower(): name for name in known}
    return [lower[name] for name in difflib.get_close_matches(word.strip().lower(), lower, n=2)]


def fields(each: Explanation) -> dict[str, Any]:
    """An explanation as JSON."""
    return asdict(each)


def lines(each: Explanation) -> Iterable[tuple[str, str]]:
    """An explanation as pairs of a word and a sentence."""
    other = ", or the status that the exception carries" if each.own_status else ""
    yield "Owner", {"client": "the client", "server": "the server"}.get(each.owner, "by the status")
    yield "Meaning", each.meaning
    yield "Retry", each.retry + "."
    yield "From", each.origin
    yield "Look at", each.look_at
    yield "Status", f"{each.status}{other}; WebSocket close code {each.close_code or 'by the status'}."
    if each.fatal:
        yield "Fatal", "The engine or replica that served the request is gone; the server may go on."
    yield "Exceptions", ", ".join(each.exceptions)


def markdown() -> str:
    """The reference of all errors."""
    parts = ["# Errors\n\nMade from the catalogue by `make docs`; `omni-errors explain WORD` prints one of them.\n"]
    for each in everything():
        title = f"{each.status} {each.error_type}" + (", fatal" if each.fatal else "")
        title += ", or its own status" if each.own_status else ""
        rows = "\n".join(f"| {word} | {sentence} |" for word, sentence in lines(each))
        parts.append(f"## {title}\n\n| | |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(markdown(), end="")
