# SPDX-License-Identifier: Apache-2.0
"""Every exception of the rig's catalogue, raised at each place: what stock makes of it, and what it is by the contract.

A table names the exceptions that differ from the place's ordinary answer.
"""

from collections.abc import Mapping

from calls import chat, images
from cases import Seen, now, was
from support import Call

from vllm_omni_rig.failures import FAILURES

CONTROL_FLOW = {"CancelledError"}
"""Never an error of anybody's: what it does is pinned apart."""

NAMES = tuple(name for name in FAILURES if name not in CONTROL_FLOW)

Table = Mapping[str, Seen]


def calls(route: str, place: str) -> dict[str, Call]:
    """One request for each exception, by its name."""
    make = {"images": images, "chat": chat}[route]
    return {name: make(f"FAULT:raise={name}@{place}") for name in NAMES}


def whole(ordinary: Seen, **others: Seen) -> Table:
    """The answer for each exception; ``others`` must be names of the catalogue."""
    assert others.keys() <= set(NAMES), others.keys() - set(NAMES)
    return {name: others.get(name, ordinary) for name in NAMES}


_ENGINE = was(500, "InternalServerError", shape="six")
_ENGINE_TYPES = dict.fromkeys(
    ("EngineGenerateError", "EngineDeadError", "OmniEngineGenerateError", "OmniEngineDeadError"), _ENGINE
)

STOCK: Mapping[tuple[str, str], Table] = {
    ("images", "front"): whole(
        was(500, "Internal Server Error"),
        **_ENGINE_TYPES,
        OmniClientError=was(400, "Bad Request"),
        OmniClientError404=was(404, "Not Found"),
        OmniClientError503=was(503, "Service Unavailable"),
        GuardrailViolationError=was(400, "Bad Request"),
        ValueError=was(400, "Bad Request"),
        HTTPException=was(418, "I'm a Teapot"),
    ),
    ("chat", "front"): whole(
        was(500, "Internal Server Error"),
        **_ENGINE_TYPES,
        OmniClientError=was(400, "BadRequestError"),
        OmniClientError404=was(400, "BadRequestError"),
        OmniClientError503=was(400, "BadRequestError"),
        GuardrailViolationError=was(400, "BadRequestError"),
        ValueError=was(400, "BadRequestError"),
    ),
    ("images", "stage1"): whole(was(500, "Internal Server Error")),
    ("chat", "stage1"): whole(was(500, "Internal Server Error")),
}
"""With two stages, by route and place."""

STOCK_ONE_STAGE: Mapping[str, Table] = {
    "images": whole(was(500, "Internal Server Error")),
    "chat": whole(was(500, "BadRequestError")),
}
"""With one stage, raised in it, by route."""

MIGRATED = whole(
    now(500, "InternalServerError"),
    GuardrailViolationError=now(400, "GuardrailViolationError"),
    HTTPException=now(418, "I'm a Teapot"),
    LoRAAdapterNotFoundError=now(404, "NotFoundError"),
    OmniClientError=now(400, "BadRequestError"),
    OmniClientError404=now(404, "NotFoundError"),
    OmniConflictError=now(409, "ConflictError"),
    OmniNotImplementedError=now(501, "NotImplementedError"),
    OmniServiceUnavailableError=now(503, "ServiceUnavailableError"),
    OmniStageTimeoutError=now(504, "GatewayTimeoutError"),
    QueueOverflowError=now(503, "Service Unavailable"),
    StageUnavailableError=now(503, "ServiceUnavailableError"),
    VLLMClientError=now(400, "BadRequestError"),
    VLLMNotFoundError=now(404, "NotFoundError"),
    VLLMUnprocessableEntityError=now(422, "UnprocessableEntityError", "size"),
    VLLMValidationError=now(400, "BadRequestError", "size"),
)
"""The migrated server's answers: one table, whatever the route, the place and the number of stages."""

_UNAVAILABLE = now(503, "ServiceUnavailableError")

MIGRATED_INPUT: Table = {
    **MIGRATED,
    "EngineDeadError": _UNAVAILABLE,
    "OmniEngineDeadError": _UNAVAILABLE,
    "OverflowError": now(400, "BadRequestError"),
}
"""Raised where a request is handed to the next stage: there a dead engine means that it cannot be placed, and a number
that does not fit is one of the client's."""
