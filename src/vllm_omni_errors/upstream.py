# SPDX-License-Identifier: Apache-2.0
"""The only module that imports vLLM, and the short table of places inside it that must behave differently.

The baseline is vLLM PR #49665: ``vllm.exceptions.VLLMClientError`` (0.27.0). Everything newer is found by looking for
it, never by a version number. What the API server alone has is imported when it is first asked for, so that a stage
process does not load it.
"""

import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

NEEDED = "vllm_omni_errors needs vLLM 0.27.0 or later (vllm.exceptions.VLLMClientError, vLLM PR #49665)"


class UpstreamError(ImportError):
    """vLLM is missing, cannot be imported, or is too old; the text says which."""


class InstallError(RuntimeError):
    """The error contract cannot be installed into this application; the text says why and what to do."""


if TYPE_CHECKING:

    class VLLMError(Exception): ...

    class VLLMClientError(VLLMError): ...

    class VLLMServerError(VLLMError): ...

    class VLLMValidationError(VLLMClientError):
        parameter: str | None
        value: object

        def __init__(self, message: str, *, parameter: str | None = None, value: object = None) -> None: ...

    class VLLMNotFoundError(VLLMClientError): ...

    class VLLMUnprocessableEntityError(VLLMClientError):
        parameter: str | None
        value: object

        def __init__(self, message: str, *, parameter: str | None = None, value: object = None) -> None: ...

    class EngineGenerateError(VLLMServerError): ...

    class EngineDeadError(VLLMServerError): ...
else:
    try:
        from vllm.exceptions import (
            VLLMClientError,
            VLLMError,
            VLLMNotFoundError,
            VLLMServerError,
            VLLMUnprocessableEntityError,
            VLLMValidationError,
        )
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError
    except ModuleNotFoundError as error:
        missing = error.name or "a module"
        if missing == "vllm":
            raise UpstreamError(f"{NEEDED}, and no vLLM is installed.") from error
        if missing.partition(".")[0] == "vllm":
            raise UpstreamError(f"{NEEDED}; the installed one is older: it has no {missing}.") from error
        raise UpstreamError(f"{NEEDED}; the installed one cannot be imported, because {missing} is missing.") from error
    except ImportError as error:
        raise UpstreamError(f"{NEEDED}; the installed one is older, or cannot be imported: {error}.") from error

__all__ = [
    "EngineDeadError",
    "EngineGenerateError",
    "InstallError",
    "UpstreamError",
    "VLLMClientError",
    "VLLMError",
    "VLLMNotFoundError",
    "VLLMServerError",
    "VLLMUnprocessableEntityError",
    "VLLMValidationError",
]

DEAD_ENGINE_MESSAGE: str | None = getattr(EngineDeadError, "CLIENT_MESSAGE", None)
"""Upstream's public text for a dead engine, where it has one (vLLM 0.33)."""

_LAUNCHERS = ("vllm.entrypoints.launchers.launcher", "vllm.entrypoints.launcher")
_RENDERERS = (
    "vllm.entrypoints.serve.exception_handling.error_response",
    "vllm.entrypoints.serve.utils.error_response",
)
_SANITIZERS = ("vllm.entrypoints.serve.exception_handling.utils", *_RENDERERS)


def is_upstream_module(name: str | None) -> bool:
    """Whether a module is vLLM's own, by its name."""
    return name is not None and name.partition(".")[0] == "vllm"


_DECORATORS = "model_hosting_container_standards"
"""What vLLM's ``/invocations`` and ``/ping`` are wrapped with, without a trace of the function inside."""


def is_upstream_endpoint(endpoint: object) -> bool:
    """Whether a route's endpoint is vLLM's own, by the module that it says it is of."""
    module = getattr(endpoint, "__module__", None)
    return is_upstream_module(module) or (module is not None and module.partition(".")[0] == _DECORATORS)


def require_version(reviewed: str) -> None:
    """Raise InstallError unless vLLM is of that version; a part as ``+cpu`` does not matter."""
    installed = str(getattr(importlib.import_module("vllm"), "__version__", "of unknown version"))
    if installed.partition("+")[0] != reviewed:
        raise InstallError(
            f"This vLLM-Omni was migrated for vLLM {reviewed}, and vLLM is {installed}: what its code raises for a "
            f"client's mistake was reviewed for that version only. Install vLLM {reviewed}, or migrate with "
            "--phase transports."
        )


def terminate_if_errored(*, server: object, engine: object) -> None:
    """Upstream's: ask the server to exit if the engine is dead, unless ``VLLM_KEEP_ALIVE_ON_ENGINE_DEATH`` is set."""
    _import_function("terminate_if_errored", _LAUNCHERS)(server=server, engine=engine)


def share_logging(logger: logging.Logger) -> None:
    """Let a logger that nobody configured write where vLLM writes, as ``vllm_omni/logger.py:6`` does for vLLM-Omni."""
    if not logger.handlers and logger.level == logging.NOTSET:
        logger.parent = logging.getLogger("vllm")


def error_response(error: Mapping[str, object]) -> Any:
    """Upstream's ``ErrorResponse`` model of a public error object; keys that the model does not declare are kept."""
    names = _import_function("create_error_response", _RENDERERS).__globals__
    return names["ErrorResponse"](error=names["ErrorInfo"](**error))


_CONNECTORS = "vllm.multimodal.media.connector"
_CONNECTOR_METHODS = (
    "load_from_url_async",
    "fetch_image_embedding_async",
    "fetch_audio_embedding_async",
    "fetch_video_embedding_async",
)


def watch_media_connectors(watch: Callable[[Any], None]) -> None:
    """Show every media connector that vLLM makes for a message to ``watch`` first; twice is once.

    Raises:
        InstallError: vLLM's registry of connectors, or its own connector, is another.

    """
    try:
        module = importlib.import_module(_CONNECTORS)
        registry = module.MEDIA_CONNECTOR_REGISTRY
        load = getattr(registry, _ORIGINAL, registry.load)
        missing = [name for name in _CONNECTOR_METHODS if not hasattr(module.MediaConnector, name)]
    except (AttributeError, ModuleNotFoundError) as error:
        raise InstallError(f"vLLM's media connectors cannot be watched: {error}.") from error
    if missing:
        raise InstallError(f"vLLM's media connectors cannot be watched: they have no {', '.join(missing)}.")

    def loading(*arguments: Any, **options: Any) -> Any:
        connector = load(*arguments, **options)
        watch(connector)
        return connector

    setattr(registry, _ORIGINAL, load)
    registry.load = loading


# --- overrides --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Override:
    """One function of vLLM that is replaced wherever it was imported, by exchanging its code object.

    Attributes:
        name: the function.
        modules: where it is defined, newest vLLM first.
        parameters: the only signature that is known to fit.
        reason: why vLLM must behave differently.
        stand_in: whose code the function gets; it runs among upstream's globals and calls :func:`replacement`.

    """

    name: str
    modules: tuple[str, ...]
    parameters: tuple[str, ...]
    reason: str
    stand_in: Callable[..., Any]


def _sanitize_message(message: str) -> Any:
    from vllm_omni_errors.upstream import replacement

    return replacement("sanitize_message")(message)


def _create_error_response(message: Any, err_type: str, status_code: Any, param: str | None) -> Any:
    from vllm_omni_errors.upstream import replacement

    return replacement("create_error_response")(message, err_type, status_code, param)


OVERRIDES: tuple[Override, ...] = (
    Override(
        name="sanitize_message",
        modules=_SANITIZERS,
        parameters=("message",),
        reason="it is super-linear: a long run of slashes in any echoed text stalls the event loop for minutes",
        stand_in=_sanitize_message,
    ),
    Override(
        name="create_error_response",
        modules=_RENDERERS,
        parameters=("message", "err_type", "status_code", "param"),
        reason="it flattens 409, 501, 503 and 504, prints rejected values, and knows no request id",
        stand_in=_create_error_response,
    ),
)

_ORIGINAL = "__vllm_omni_errors_original__"
_replacements: dict[str, Callable[..., Any]] = {}


def replacement(name: str) -> Callable[..., Any]:
    """What an overridden function of vLLM now calls."""
    return _replacements[name]


def original(name: str) -> Callable[..., Any]:
    """An overridden function as vLLM defines it, whether or not it is overridden at the moment."""
    override = next(each for each in OVERRIDES if each.name == name)
    function = _import_function(name, override.modules)
    found: Callable[..., Any] = getattr(function, _ORIGINAL, function)
    return found


def apply_overrides(replacements: Mapping[str, Callable[..., Any]]) -> None:
    """Replace every function of :data:`OVERRIDES`, then check that the replacements are reached; twice is once.

    Raises:
        InstallError: a function is missing, has another signature, exists twice, or does not reach its replacement.

    """
    for override in OVERRIDES:
        function = _matching(override)
        if not hasattr(function, _ORIGINAL):
            setattr(function, _ORIGINAL, _copy(function))
        function.__code__ = override.stand_in.__code__
        _verify(override, function)
        _replacements[override.name] = replacements[override.name]


def _matching(override: Override) -> FunctionType:
    try:
        function = _import_function(override.name, override.modules)
    except AttributeError as error:
        _refuse(override, str(error))
    parameters = inspect.signature(getattr(function, _ORIGINAL, function)).parameters
    positional = all(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters.values())
    if tuple(parameters) != override.parameters or not positional:
        _refuse(override, f"its parameters are ({', '.join(parameters)}), not ({', '.join(override.parameters)})")
    if function.__closure__:
        _refuse(override, "it is a closure")
    return function


def _verify(override: Override, function: FunctionType) -> None:
    reached = object()
    _replacements[override.name] = lambda *arguments: reached
    if function(*override.parameters) is not reached:  # any argument will do
        _refuse(override, "calling it does not reach the replacement")
    for name, module in list(sys.modules.items()):
        if is_upstream_module(name) and module is not None:
            found = vars(module).get(override.name)
            if isinstance(found, FunctionType) and found is not function:
                _refuse(override, f"{name} has a second one")


def _refuse(override: Override, why: str) -> NoReturn:
    raise InstallError(
        f"vLLM's {override.name} cannot be replaced: {why}. It must be, because {override.reason}. "
        "This vLLM does not match this version of vllm-omni-errors: update the one that is older."
    )


def _copy(function: FunctionType) -> FunctionType:
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _import_function(name: str, modules: tuple[str, ...]) -> FunctionType:
    """The first of the modules' functions of that name. Raises AttributeError if no module has one."""
    for each in modules:
        try:
            found = getattr(importlib.import_module(each), name, None)
        except ModuleNotFoundError as error:
            if is_upstream_module(error.name):
                continue
            raise
        if isinstance(found, FunctionType):
            return found
    raise AttributeError(f"no {name} in {' or '.join(modules)}")
