# SPDX-License-Identifier: Apache-2.0
"""The words of the audit: which exception types are raw, and what a review can decide (RFC; contract, section 1)."""

import builtins
from dataclasses import dataclass
from typing import Literal

from vllm_omni_errors.catalogue import CATALOGUE

Kind = Literal["raise", "except", "response"]
KINDS: tuple[Kind, ...] = ("raise", "except", "response")

CONTROL_FLOW = frozenset(
    {"StopIteration", "StopAsyncIteration", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "CancelledError"}
)
SEMANTIC = frozenset(row.exception for row in CATALOGUE) - {"HTTPException", "RequestValidationError"}

BUILTIN_PARENTS: dict[str, tuple[str, ...]] = {
    name: tuple(parent.__name__ for parent in value.__mro__ if issubclass(parent, BaseException))
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
"""Each built-in exception, with itself and its parents."""

ALIASES = {"IOError": "OSError", "EnvironmentError": "OSError"}

EXTERNAL_PARENTS: dict[str, tuple[str, ...]] = {
    "CancelledError": ("BaseException",),
    "JSONDecodeError": ("ValueError", "Exception", "BaseException"),
    "ValidationError": ("ValueError", "Exception", "BaseException"),
    "TimeoutExpired": ("Exception", "BaseException"),
    "UnidentifiedImageError": ("OSError", "Exception", "BaseException"),
}
"""Parents of exceptions from elsewhere that vLLM-Omni raises or catches; any other is taken for an ``Exception``."""

STOCK_PARENTS: dict[str, tuple[str, ...]] = {
    "EngineGenerateError": ("VLLMServerError", "VLLMError", "Exception", "BaseException"),
    "EngineDeadError": ("VLLMServerError", "VLLMError", "Exception", "BaseException"),
    "VLLMClientError": ("VLLMError", "Exception", "BaseException"),
    "VLLMServerError": ("VLLMError", "Exception", "BaseException"),
    "VLLMValidationError": ("VLLMClientError", "VLLMError", "Exception", "BaseException"),
    "VLLMUnprocessableEntityError": ("VLLMClientError", "VLLMError", "Exception", "BaseException"),
    "VLLMNotFoundError": ("VLLMClientError", "VLLMError", "Exception", "BaseException"),
}
"""Parents of vLLM's own classes since 0.27."""

BROAD = frozenset({"Exception", "BaseException", "ValueError", "ExceptionGroup", "BaseExceptionGroup"})
"""Types whose except clauses the review decides: they catch what somebody else raised, a client's error too."""

CLIENT_CATCHING = frozenset({"ValueError", "Exception", "BaseException"})
"""What catches an `OmniClientError` of stock, which is a ``ValueError``."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a review can decide.

    Attributes:
        kinds: kinds of sites that it is for.
        meaning: one sentence.
        status: what a client sees afterwards; None if it depends, or if no client sees it.
        parameter: whether a row may name the request's parameter.
    """

    kinds: tuple[Kind, ...]
    meaning: str
    status: int | None = None
    parameter: bool = False


_MAKES: tuple[Kind, ...] = ("raise", "response")

DECISIONS: dict[str, Decision] = {
    "validation": Decision(_MAKES, "The client can correct a parameter.", 400, parameter=True),
    "not-found": Decision(_MAKES, "A model, LoRA, voice, job or artifact does not exist.", 404),
    "unprocessable": Decision(_MAKES, "Media is permanently inaccessible, or does not decode.", 422, parameter=True),
    "media": Decision(_MAKES, "Media failed; what was caught decides: 422 or 500.", None, parameter=True),
    "guardrail": Decision(_MAKES, "A guardrail rejects the content.", 400),
    "conflict": Decision(_MAKES, "A job is in a state that does not allow it.", 409),
    "not-implemented": Decision(_MAKES, "The server does not implement the operation.", 501),
    "unavailable": Decision(_MAKES, "A handler, pipeline or stage is not there now.", 503),
    "unsupported": Decision(_MAKES, "This server will never have the handler; do not retry.", 503),
    "stage-timeout": Decision(_MAKES, "A deadline of a stage or of a generation expired.", 504),
    "engine-generate": Decision(_MAKES, "One request failed in a stage; the stage goes on.", 500),
    "engine-dead": Decision(_MAKES, "The engine or replica that served the request is gone.", 500),
    "internal": Decision(_MAKES, "Not the client's fault, and no better type: a server error.", 500),
    "validator": Decision(_MAKES, "Stays raw inside a pydantic validator, which names the field.", 400, parameter=True),
    "configuration": Decision(_MAKES, "Start-up, command line or deployment; no request gets here."),
    "control-flow": Decision(_MAKES, "Caught on purpose nearby; no client sees it."),
    "keep": Decision(
        ("raise", "response", "except"), "Stays as it is, such as 403, 410, 413 and 429; the reason says why."
    ),
    "propagate": Decision(("except",), "The clause goes: what it translates is rendered at the boundary."),
    "narrow": Decision(("except",), "The clause catches only what it means to."),
}


def parents_of(name: str, defined: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """A type with all its parents, most specific first.

    Args:
        name: the last name of the type.
        defined: bases of the classes that the tree defines, by their last names.
    """
    seen: list[str] = []
    open_names = [ALIASES.get(name, name)]
    while open_names:
        current = open_names.pop(0)
        if current in seen:
            continue
        seen.append(current)
        if current in BUILTIN_PARENTS:
            open_names += BUILTIN_PARENTS[current]
        elif current in defined:
            open_names += defined[current]
        elif current in STOCK_PARENTS:
            open_names += STOCK_PARENTS[current]
        else:
            open_names += EXTERNAL_PARENTS.get(current, ("Exception",))
    return tuple(seen)


def is_raw(name: str, parents: tuple[str, ...]) -> bool:
    """Whether a raised type says nothing about whose fault it is."""
    if not name[:1].isalpha():
        return False
    return not (set(parents[:-1]) & (SEMANTIC | CONTROL_FLOW))
