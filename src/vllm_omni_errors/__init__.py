# SPDX-License-Identifier: Apache-2.0
"""Errors as one contract for vLLM-Omni.

The public names are imported when they are first used: the record and the sanitizer need neither vLLM nor a web
framework, and the command line must not pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .convert import to_details, to_exception
    from .details import OmniErrorDetails
    from .exceptions import (
        GuardrailViolationError,
        OmniClientError,
        OmniConflictError,
        OmniEngineDeadError,
        OmniEngineGenerateError,
        OmniNotImplementedError,
        OmniServerError,
        OmniServiceUnavailableError,
        OmniStageTimeoutError,
    )
    from .public_text import sanitize
    from .transports.http import install
    from .wire import decode, encode

__all__ = [
    "GuardrailViolationError",
    "OmniClientError",
    "OmniConflictError",
    "OmniEngineDeadError",
    "OmniEngineGenerateError",
    "OmniErrorDetails",
    "OmniNotImplementedError",
    "OmniServerError",
    "OmniServiceUnavailableError",
    "OmniStageTimeoutError",
    "decode",
    "encode",
    "install",
    "sanitize",
    "to_details",
    "to_exception",
]

_HOMES = {
    "OmniErrorDetails": "details",
    "decode": "wire",
    "encode": "wire",
    "install": "transports.http",
    "sanitize": "public_text",
    "to_details": "convert",
    "to_exception": "convert",
}
_WITHOUT_VLLM = ("details", "public_text", "wire")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "exceptions")
    if home not in _WITHOUT_VLLM:
        import_module(f"{__name__}.upstream")  # says what is missing; vLLM brings the web framework too
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
