# SPDX-License-Identifier: Apache-2.0
"""What a check may know about the server: found out from outside, by asking it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.canaries import Canaries
from vllm_omni_errors.probe.client import Client
from vllm_omni_errors.probe.contract import Contract, recognise
from vllm_omni_errors.probe.counters import Counters
from vllm_omni_errors.probe.media import MediaServer
from vllm_omni_errors.probe.record import ProbeError

# The routes that checks are made for. Asked one by one where the server has no OpenAPI document.
ROUTES = (
    ("GET", "/health"),
    ("GET", "/v1/models"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/images/generations"),
    ("POST", "/v1/images/edits"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/tokenize"),
)
RIG_MODEL = "tiny"


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the probe waits, in seconds; `attempts` is how often a measurement of a counter is repeated.

    `deadline_s`: for an answer that needs no generation. `generation_s`: for one that does. `ready_s`: for each
    question about what is there. `document_s`: for the OpenAPI document, which some servers make only when asked.
    `recovery_s`: for a server that does not answer any more to come back. `poll_s`: between two questions about a job.
    `requests_per_second`: at most, of all kinds together.
    """

    deadline_s: float = 15.0
    generation_s: float = 120.0
    ready_s: float = 10.0
    recovery_s: float = 90.0
    recovery_pause_s: float = 1.0
    attempts: int = 3
    requests_per_second: float = 20.0
    document_s: float = 60.0
    poll_s: float = 0.2


@dataclass
class Context:
    """One run's view of the server."""

    client: Client
    canaries: Canaries
    media: MediaServer
    pace: Pace
    model: str = ""
    routes: frozenset[tuple[str, str]] = frozenset()
    unserved: dict[str, str] = field(default_factory=dict)
    counters: Counters | None = None
    maximum_tokens: int | None = None
    rig_missing: str | None = None
    faults_in_front: bool = False
    scripted: bool = False
    contract: Contract = Contract.OMNI
    read_only: bool = False
    destructive: bool = False
    server: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def without_tokens(self, field: str) -> str | None:
        """Why a server may take a wrong ``field`` without a word: nothing reads it where no model samples tokens."""
        return f"no model here samples tokens, so nothing reads {field}" if self.maximum_tokens is None else None

    def missing_route(self, method: str, path: str) -> str | None:
        """Why requests to a route say nothing here, or `None` when they do."""
        if (method, path) not in self.routes:
            return f"the server has no {method} {path}"
        return self.unserved.get(path)


async def discover(context: Context, model: str | None, contract: Contract | None = None) -> None:
    """Fill `context` from what the server says of itself; `contract` is found out where it is not given.

    Raises `ProbeError` when nothing answers HTTP there, or when there is no model to ask for.
    """
    await _find_routes(context)
    context.contract = recognise({path for _, path in context.routes}) if contract is None else contract
    await _find_model(context, model)
    version = await _get(context, "/version")
    if isinstance(version, dict):
        context.server |= {key: value for key, value in version.items() if isinstance(value, str) and len(value) <= 128}
    counters = Counters(context.client)
    if await counters.offered():
        context.counters = counters
    else:
        context.notes.append("The server shows no http_requests_total under /metrics: what it counts was not judged.")


async def _get(context: Context, path: str) -> Any:
    answer = await context.client.send(Call("GET", path), context.pace.ready_s)
    return answer.json() if answer.status == 200 else None


async def _find_routes(context: Context) -> None:
    call = Call("GET", "/openapi.json")
    answer = await context.client.send(call, context.pace.document_s)
    if answer.status is None:
        raise ProbeError(f"{context.client.root} could not be probed: {answer.problem}. Is the server running there?")
    document = answer.json()
    paths = document.get("paths") if isinstance(document, dict) else None
    if answer.status == 200 and isinstance(paths, dict):
        context.routes = frozenset(
            (method.upper(), path) for path, item in paths.items() if isinstance(item, dict) for method in item
        )
        return
    context.notes.append("The server has no OpenAPI document: each route was asked for with a GET.")
    found = set()
    for method, path in ROUTES:
        reply = await context.client.send(Call("GET", path), context.pace.ready_s)
        if reply.status is not None and reply.status != 404:
            found.add((method, path))
    context.routes = frozenset(found)


async def _find_model(context: Context, wanted: str | None) -> None:
    listed = await _get(context, "/v1/models")
    data = listed.get("data") if isinstance(listed, dict) else None
    models: dict[str, Mapping[str, Any]] = {}
    if isinstance(data, list):
        models = {item["id"]: item for item in data if isinstance(item, dict) and isinstance(item.get("id"), str)}
    if models and wanted and wanted not in models:
        raise ProbeError(f"The server has no model {wanted!r}; it lists {', '.join(models)}.")
    if not models and not wanted:
        raise ProbeError(
            f"{context.client.root} lists no model under /v1/models; name one with --model, or give the server's root "
            "as URL, without /v1."
        )
    context.model = wanted or next(iter(models))
    limit = models.get(context.model, {}).get("max_model_len")
    if isinstance(limit, int) and limit > 0:
        context.maximum_tokens = limit
