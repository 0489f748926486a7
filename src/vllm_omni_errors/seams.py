# SPDX-License-Identifier: Apache-2.0
"""Seams: the few places where a raw exception, or an error response, becomes a typed exception."""

import contextlib
import dataclasses
import functools
import math
import types
import typing
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar

import msgspec

from . import catalogue, convert, field_errors, public_text, upstream
from .exceptions import OmniServiceUnavailableError

__all__ = [
    "check_codec_options",
    "check_frame_rate",
    "check_integer",
    "check_side",
    "check_stage_parameters",
    "check_text",
    "fill_missing_handlers",
    "invalid_fields",
    "on_chosen_device",
    "payload_error",
    "reads_request",
    "reads_stage_parameters",
    "reads_stream",
    "request_error",
    "response_error",
    "with_codec_options_of",
]

UNREADABLE = convert.UNREADABLE

_P = ParamSpec("_P")
_T = TypeVar("_T")


def request_error(exc: Exception, *, parameter: str | None = None) -> Exception:
    """For a seam: what an exception of vLLM's request-reading code becomes. The caller raises it ``from exc``.

    A typed exception passes unchanged, and so does one that no request-reading code is known to raise; raw
    ``ValueError``, ``TypeError``, ``OverflowError`` and ``TemplateError`` become ``VLLMValidationError``.
    """
    if catalogue.raw_row_for(type(exc)).category != "client" or isinstance(exc, upstream.VLLMError):
        return exc
    return upstream.VLLMValidationError(convert.raw_text(exc) or UNREADABLE, parameter=parameter)


def invalid_fields(exc: Exception) -> Exception:
    """What a pydantic ``ValidationError`` about a client's message becomes: 400, with the fields and what is wrong.

    The caller raises it ``from exc``, or sends it.
    """
    text, parameter = field_errors.describe(field_errors.errors_of(exc))
    return upstream.VLLMValidationError(public_text.sanitize(text), parameter=parameter)


_DECODER_ERRORS = (
    ArithmeticError,
    LookupError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
UNREADABLE_PAYLOAD = "The payload must be a msgpack map with valid array markers."


def payload_error(exc: Exception) -> Exception:
    """What decoding the msgpack of a client raised, as the client's mistake; everything else, and typed, passes."""
    if isinstance(exc, upstream.VLLMError):
        return exc
    return upstream.VLLMValidationError(UNREADABLE_PAYLOAD) if isinstance(exc, _DECODER_ERRORS) else exc


class _ErrorInfo(Protocol):
    message: str
    type: str
    param: str | None
    code: int


class _ErrorResponse(Protocol):
    @property
    def error(self) -> _ErrorInfo: ...


def response_error(response: _ErrorResponse) -> Exception:
    """The exception of an ``ErrorResponse`` that a helper of vLLM returned, for the caller to raise.

    Status, type and parameter are the response's; it is rendered at the boundary, which knows the request.
    """
    error = response.error
    return convert.to_exception(convert.worded(error.message, error.type, error.code, error.param))


def reads_request(
    function: Callable[_P, _T], *, parameter: str | None = None, also: tuple[type[Exception], ...] = ()
) -> Callable[_P, _T]:
    """A function that reads the request: a raw exception that it raises is the client's mistake.

    What `request_error` does not know as such, unless it is one of `also`, and typed exceptions pass unchanged. If the
    function is a model that is made of the request's fields, the first field that it refuses is the parameter.
    """
    is_model = isinstance(function, type)

    @functools.wraps(function)
    def reading(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except also as exc:
            raise upstream.VLLMValidationError(UNREADABLE, parameter=parameter) from exc
        except Exception as exc:
            field = field_errors.describe(field_errors.errors_of(exc))[1] if is_model else None
            error = request_error(exc, parameter=parameter or field)
            if error is exc:
                raise
            raise error from exc

    return reading


async def reads_stream(stream: AsyncGenerator[_T, None], *, parameter: str) -> AsyncGenerator[_T, None]:
    """The items of a stream that reads what the client sends meanwhile; its errors are `request_error`'s."""
    async with contextlib.aclosing(stream):
        try:
            async for item in stream:
                yield item
        except Exception as exc:
            error = request_error(exc, parameter=parameter)
            if error is exc:
                raise
            raise error from exc


STAGE_PARAMETERS = "sampling_params_list"
_SCALARS = {bool, float, int, str, type(None)}


def check_stage_parameters(given: object, *, stages: int) -> None:
    """Raise VLLMValidationError unless ``given`` is a list with at most as many entries as there are stages."""
    if not isinstance(given, list | tuple):
        raise upstream.VLLMValidationError(f"{STAGE_PARAMETERS} must be a list.", parameter=STAGE_PARAMETERS)
    if stages and len(given) > stages:
        message = f"{STAGE_PARAMETERS} has {len(given)} entries, and the pipeline {stages} stages."
        raise upstream.VLLMValidationError(message, parameter=STAGE_PARAMETERS)


def reads_stage_parameters(cls: Callable[..., _T]) -> Callable[..., _T]:
    """A class of sampling parameters that is made of a client's object: what it does not take is the client's mistake.

    Neither class checks types. A stage that cannot decode what arrives ends the thread that reads its requests, so
    what is made has to survive the way there, as the same: encoded and decoded as the stage will.
    """

    def make(**values: object) -> _T:
        try:
            _check_scalars(cls, values)
            made = cls(**values)
            _check_travels(made)
        except upstream.VLLMValidationError as exc:
            if exc.parameter:
                raise
            raise upstream.VLLMValidationError(convert.authored(exc), parameter=STAGE_PARAMETERS) from exc
        except upstream.VLLMError:
            raise
        except Exception as exc:
            message = f"A stage's parameters in {STAGE_PARAMETERS} are unknown, or have a wrong type or value."
            raise upstream.VLLMValidationError(message, parameter=STAGE_PARAMETERS) from exc
        return made

    return make


def _check_scalars(cls: Any, values: dict[str, object]) -> None:
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, TypeError):  # names that only a type checker imports
        return
    for name, value in values.items():
        hint = hints.get(name)
        union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        kinds = set(typing.get_args(hint)) if union else {hint}
        if kinds <= _SCALARS:
            msgspec.convert(value, hint)
        elif isinstance(value, dict) and all(isinstance(kind, type) and not issubclass(kind, dict) for kind in kinds):
            raise TypeError(f"{name} is an object")  # in the place of a class that nothing makes of it


def _check_travels(made: object) -> None:
    if not isinstance(made, msgspec.Struct):
        return
    arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=type(made))
    for field in msgspec.structs.fields(made):
        sent, got = getattr(made, field.name), getattr(arrived, field.name)
        if isinstance(sent, dict) is not isinstance(got, dict):  # an object in the place of another class
            raise TypeError(f"{field.name} is an object")


def check_integer(value: object, *, parameter: str) -> None:
    """Raise ``VLLMValidationError`` if a value of the request, where there is one, is nothing that ``int()`` reads."""
    if value is None:
        return
    try:
        int(value)  # type: ignore[call-overload]
    except (ValueError, TypeError, OverflowError) as exc:
        raise upstream.VLLMValidationError(f"{parameter} must be an integer.", parameter=parameter) from exc


def check_side(value: object, *, parameter: str) -> None:
    """Raise ``VLLMValidationError`` if a side in pixels, where there is one, is no integer, or is negative.

    Text of digits and a float that is whole are integers, as for ``int()``; a boolean and any other float are not.
    """
    check_integer(value, parameter=parameter)
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise upstream.VLLMValidationError(f"{parameter} must be an integer.", parameter=parameter)
    if value is not None and int(value) < 0:  # type: ignore[call-overload]
        raise upstream.VLLMValidationError(f"{parameter} must not be negative.", parameter=parameter)


def check_text(request_id: str, prompt: object, params: Iterable[object]) -> None:
    """Raise ``VLLMValidationError`` if text of a request, on its way to the stages, is no valid Unicode.

    JSON may hold half a character (``"\\ud800"``), which no message to a stage can. Looked at is the id, each field of
    the parameters with all that is in it, and of a prompt that is a dict its own text; the first that is wrong is the
    parameter.
    """
    given: list[tuple[str, object]] = [("request_id", request_id)]
    if isinstance(prompt, dict):
        given += [(name, value) for name, value in prompt.items() if isinstance(value, str)]
    given += [pair for each in params for pair in _fields_of(each)]
    if _has_half_a_character([value for _, value in given]):
        name = next(name for name, value in given if _has_half_a_character(value))
        raise upstream.VLLMValidationError(f"{name} is not valid Unicode.", parameter=name)


def _fields_of(value: object) -> list[tuple[str, object]]:
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    elif dataclasses.is_dataclass(value):
        names = tuple(field.name for field in dataclasses.fields(value))
    else:
        return []
    return [(name, getattr(value, name, None)) for name in names]


def _has_half_a_character(value: object) -> bool:
    rest, seen = [value], set[int]()
    while rest:  # not recursive: it may be nested as deep as JSON can be
        item = rest.pop()
        if item is None or isinstance(item, int | float):
            continue
        if isinstance(item, str):
            try:
                item.encode()
            except UnicodeEncodeError:
                return True
        elif id(item) not in seen:  # objects of the server may refer to each other
            seen.add(id(item))
            if isinstance(item, Mapping):
                rest += [*item, *item.values()]
            elif isinstance(item, list | tuple | set):
                rest += item
            else:
                rest += [inner for _, inner in _fields_of(item)]
    return False


_MOST_FRAMES_PER_SECOND = 2**31 - 1
_FRACTION_OF_A_RATE = 10_000


def check_frame_rate(fps: float | None, *, parameter: str) -> None:
    """Raise ``VLLMValidationError`` if the encoder of videos cannot hold a frame rate, where the client gave one.

    It is a fraction of C ints there, whose denominator is at most 10,000 (``diffusion/utils/media_utils.py:390``).
    """
    if fps is None:
        return
    if math.isfinite(fps) and Fraction(fps).limit_denominator(_FRACTION_OF_A_RATE).numerator <= _MOST_FRAMES_PER_SECOND:
        return
    raise upstream.VLLMValidationError(f"{parameter} is more than the encoder can hold.", parameter=parameter)


_CODEC_OPTIONS = "video_codec_options"
_CODEC_PARAMETER = f"extra_params.{_CODEC_OPTIONS}"


def check_codec_options(extra_params: Mapping[str, object]) -> None:
    """Raise ``VLLMValidationError`` unless the codec's options, where the client chose some, map text to text."""
    options = extra_params.get(_CODEC_OPTIONS)
    if options is None:
        return
    if not isinstance(options, dict) or not all(isinstance(text, str) for pair in options.items() for text in pair):
        message = f"{_CODEC_OPTIONS} must be an object whose values are strings."
        raise upstream.VLLMValidationError(message, parameter=_CODEC_PARAMETER)


def with_codec_options_of(encode: Callable[_P, _T], extra_params: Mapping[str, object] | None) -> Callable[_P, _T]:
    """An encoder of videos: what its library refuses is the client's mistake, if the client chose the options."""

    @functools.wraps(encode)
    def encoding(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return encode(*args, **kwargs)
        except Exception as exc:
            if _CODEC_OPTIONS not in (extra_params or {}) or type(exc).__module__ != "av.error":
                raise
            message = f"The encoder does not take these {_CODEC_OPTIONS}."
            raise upstream.VLLMValidationError(message, parameter=_CODEC_PARAMETER) from exc

    return encoding


_DEVICE = "generator_device"
_NOT_OF_THE_CHOICE = {"AcceleratorError", "OutOfMemoryError"}


def on_chosen_device(make: Callable[..., _T], chosen: object) -> Callable[..., _T]:
    """``torch.Generator``: if the client chose its device, one that torch does not have here is the client's mistake.

    Only the stage knows which devices it has; torch raises ``RuntimeError`` or ``TypeError`` for others.
    """

    def making(*args: Any, **kwargs: Any) -> _T:
        try:
            return make(*args, **kwargs)
        except (RuntimeError, TypeError) as exc:
            if chosen is None or _NOT_OF_THE_CHOICE & {cls.__name__ for cls in type(exc).__mro__}:
                raise
            message = f"{_DEVICE} must be a device that the stage has, such as cpu."
            raise upstream.VLLMValidationError(message, parameter=_DEVICE) from exc

    return making


# Handlers in the application's state; where one is None its route in vLLM answers 501, where it is absent it fails.
_OPTIONAL_HANDLERS = (
    "anthropic_serving_messages",
    "openai_serving_completion",
    "openai_serving_responses",
    "openai_serving_transcription",
    "openai_serving_translation",
    "serving_generative_scoring",
    "serving_tokens",
)


class _MissingHandler:
    """A handler that this server will never have: using it is 503."""

    def __getattr__(self, name: str) -> NoReturn:
        raise OmniServiceUnavailableError("This server's model has no tokenizer.", permanent=True)


def fill_missing_handlers(state: Any) -> None:
    """Let vLLM's routes answer 501 or 503 where a handler that they rely on is missing (contract, section 4).

    ``state`` is the application's, after its handlers were made.
    """
    for name in _OPTIONAL_HANDLERS:
        setattr(state, name, getattr(state, name, None))
    if getattr(state, "serving_tokenization", None) is None:
        state.serving_tokenization = _MissingHandler()
