# SPDX-License-Identifier: Apache-2.0
"""The exceptions that a fault can raise, by name, each with canaries in its text.

A canary is something that must never reach a client: a path of the machine, a key, a memory address, a rejected value.
One that is seen in a response has leaked.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

CANARIES: Mapping[str, str] = MappingProxyType(
    {
        "path": "/opt/rig/secret/weights-4711.safetensors",
        "key": "sk-rig0canary1234567890abcdefghijklmnop",
        "address": "0x7f5ec2e7c0de",
        "value": "rig-secret-value-81f4",
    }
)


def text(name: str, place: str) -> str:
    """The text of the exception ``name`` raised at ``place``: one sentence, with the canaries but ``value`` in it."""
    path, key, address = (CANARIES[each] for each in ("path", "key", "address"))
    return f"{name} injected at {place}: <RigWorker object at {address}> cannot read {path} with {key}"


def _plain(kind: Any, message: str) -> Any:
    return kind(message)


@dataclass(frozen=True, slots=True)
class Failure:
    """Where an exception's class is, and how to make one of it from a text."""

    module: str
    name: str
    construct: Callable[[Any, str], Any] = _plain


def _rejected(kind: Any, message: str) -> Any:
    return kind(message, parameter="size", value=CANARIES["value"])


def _silent(kind: Any, message: str) -> Any:
    return kind()  # it has a text of its own


def _adapter(kind: Any, message: str) -> Any:
    return kind("rig-lora", CANARIES["path"])


def _teapot(kind: Any, message: str) -> Any:
    return kind(status_code=418, detail=message)


def _group(kind: Any, message: str) -> Any:
    return kind(message, [ValueError(message), make("VLLMValidationError", "group")])


def _omni(status: int, error_type: str) -> Callable[[Any, str], Any]:
    return lambda kind, message: kind(message, status_code=status, error_type=error_type)


_BUILTIN = [
    "ValueError",
    "TypeError",
    "KeyError",
    "IndexError",
    "AttributeError",
    "OverflowError",
    "NotImplementedError",
    "RuntimeError",
    "TimeoutError",
    "MemoryError",
    "OSError",
    "ConnectionError",
    "AssertionError",
]

_COMPANION = [
    "OmniServerError",
    "OmniConflictError",
    "OmniNotImplementedError",
    "OmniServiceUnavailableError",
    "OmniStageTimeoutError",
    "OmniEngineGenerateError",
    "OmniEngineDeadError",
]

FAILURES: Mapping[str, Failure] = MappingProxyType(
    {name: Failure("builtins", name) for name in _BUILTIN}
    | {
        "ExceptionGroup": Failure("builtins", "ExceptionGroup", _group),
        "CancelledError": Failure("asyncio", "CancelledError"),
        "OutOfMemoryError": Failure("torch", "OutOfMemoryError"),
        "TemplateError": Failure("jinja2", "TemplateError"),
        "HTTPException": Failure("fastapi", "HTTPException", _teapot),
        "VLLMClientError": Failure("vllm.exceptions", "VLLMClientError"),
        "VLLMServerError": Failure("vllm.exceptions", "VLLMServerError"),
        "VLLMValidationError": Failure("vllm.exceptions", "VLLMValidationError", _rejected),
        "VLLMUnprocessableEntityError": Failure("vllm.exceptions", "VLLMUnprocessableEntityError", _rejected),
        "VLLMNotFoundError": Failure("vllm.exceptions", "VLLMNotFoundError"),
        "LoRAAdapterNotFoundError": Failure("vllm.exceptions", "LoRAAdapterNotFoundError", _adapter),
        "GenerationError": Failure("vllm.exceptions", "GenerationError"),
        "QueueOverflowError": Failure("vllm.exceptions", "QueueOverflowError", _silent),
        "EngineGenerateError": Failure("vllm.v1.engine.exceptions", "EngineGenerateError"),
        "EngineDeadError": Failure("vllm.v1.engine.exceptions", "EngineDeadError", _silent),
        "OmniClientError": Failure("vllm_omni.errors", "OmniClientError"),
        "OmniClientError404": Failure("vllm_omni.errors", "OmniClientError", _omni(404, "NotFoundError")),
        "OmniClientError503": Failure("vllm_omni.errors", "OmniClientError", _omni(503, "ServiceUnavailable")),
        "GuardrailViolationError": Failure("vllm_omni.errors", "GuardrailViolationError"),
        "StageUnavailableError": Failure("vllm_omni.engine.stage_pool", "StageUnavailableError"),
        "NativeKVHandoffError": Failure("vllm_omni.engine.errors", "NativeKVHandoffError"),
    }
    | {name: Failure("vllm_omni_errors", name) for name in _COMPANION}  # in an environment that has it
)


def make(name: str, place: str) -> BaseException:
    """The exception that ``FAULT:raise=<name>@<place>`` raises. Its module is imported only now.

    Raises:
        KeyError: a name that :data:`FAILURES` does not have.
        ImportError, AttributeError: this environment does not have that class.
    """
    failure = FAILURES[name]
    kind = getattr(importlib.import_module(failure.module), failure.name)
    exception: BaseException = failure.construct(kind, text(name, place))
    return exception
