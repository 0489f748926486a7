# SPDX-License-Identifier: Apache-2.0
"""The table of the contract, section 1: exception → category, status, type, text, close code, retry. Imports no vLLM.

Rows name classes instead of holding them: the class's name and its top-level package, looked up through the MRO. So
the table is the same for every vLLM version, and classes that a version does not have simply never match.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal

GENERIC = "Internal server error"
CLIENT_CLOSE, SERVER_CLOSE, RETRY_CLOSE = 1008, 1011, 1013

Category = Literal["client", "server"]
Text = Literal["authored", "ours", "generic", "detail", "fields", "raw"]
"""Where the public text comes from: the exception's first argument; a fixed sentence; ``GENERIC``; the ``detail`` of an
``HTTPException``; the field errors of a validation; the text of a raw exception."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one exception class, and those of its subclasses that have no row, become.

    Attributes:
        exception: name of the class.
        packages: top-level packages that may define it; empty for any.
        category: whose error it is; ``"status"`` if only the number says so.
        status: HTTP status, or the default of ``status_attribute``.
        error_type: public ``type``; None for the HTTP phrase of the status.
        parameter: whether ``param`` is the exception's ``parameter``.
        text: where the public text comes from.
        sentence: the text, if it is ours; ``{who}`` becomes the stage or "The engine".
        status_attribute: the exception's attribute that holds its own status.
        own_type: whether the exception's ``error_type`` replaces the row's.
        retry: False if the answer carries ``x-should-retry: false``; None if the client decides.
        final_attribute: attribute of the exception that, when true, has the same effect.
        fatal: whether the engine or replica that served the request is gone.

    """

    exception: str
    packages: tuple[str, ...]
    category: Category | Literal["status"]
    status: int
    error_type: str | None
    parameter: bool = False
    text: Text = "authored"
    sentence: str = ""
    status_attribute: str | None = None
    own_type: bool = False
    retry: Literal[False] | None = None
    final_attribute: str | None = None
    fatal: bool = False

    @property
    def close_code(self) -> int | None:
        """WebSocket close code; None if it depends on the status."""
        return None if self.category == "status" else close_code(self.category, self.status)


_VLLM = ("vllm",)
_OMNI = ("vllm_omni_errors", "vllm_omni")
_WEB = ("starlette", "fastapi")

CATALOGUE: tuple[Row, ...] = (
    Row("VLLMValidationError", _VLLM, "client", 400, "BadRequestError", parameter=True),
    Row("GuardrailViolationError", _OMNI, "client", 400, "GuardrailViolationError"),
    Row("VLLMNotFoundError", _VLLM, "client", 404, "NotFoundError"),
    Row(
        "LoRAAdapterNotFoundError",
        _VLLM,
        "client",
        404,
        "NotFoundError",
        text="ours",
        sentence="The requested LoRA adapter does not exist.",
    ),
    Row("OmniConflictError", _OMNI, "client", 409, "ConflictError", retry=False),
    Row("VLLMUnprocessableEntityError", _VLLM, "client", 422, "UnprocessableEntityError", parameter=True),
    Row("VLLMClientError", _VLLM, "client", 400, "BadRequestError"),
    Row(
        "OmniClientError",
        _OMNI,
        "client",
        400,
        "BadRequestError",
        parameter=True,
        status_attribute="status_code",
        own_type=True,
    ),
    Row(
        "EngineGenerateError",
        _VLLM,
        "server",
        500,
        "InternalServerError",
        text="ours",
        sentence="{who} failed to process the request.",
    ),
    Row(
        "EngineDeadError",
        _VLLM,
        "server",
        500,
        "InternalServerError",
        text="ours",
        sentence="{who} stopped working and cannot process the request.",
        fatal=True,
    ),
    Row("GenerationError", _VLLM, "server", 500, "InternalServerError", status_attribute="status_code"),
    Row("RetryableRequestError", _VLLM, "server", 503, "ServiceUnavailableError"),
    Row("OmniNotImplementedError", _OMNI, "server", 501, "NotImplementedError", retry=False),
    Row("OmniServiceUnavailableError", _OMNI, "server", 503, "ServiceUnavailableError", final_attribute="permanent"),
    Row("OmniStageTimeoutError", _OMNI, "server", 504, "GatewayTimeoutError", retry=False),
    Row("GracefulHTTPError", _VLLM, "status", 500, None, status_attribute="http_status"),
    Row(
        "VLLMServerError",
        _VLLM,
        "server",
        500,
        "InternalServerError",
        parameter=True,
        status_attribute="status_code",
        own_type=True,
    ),
    Row(
        "OmniServerError",
        _OMNI,
        "server",
        500,
        "InternalServerError",
        parameter=True,
        status_attribute="status_code",
        own_type=True,
    ),
    Row("HTTPException", _WEB, "status", 500, None, text="detail", status_attribute="status_code"),
    Row("RequestValidationError", _WEB, "client", 400, None, parameter=True, text="fields"),
    Row("WebSocketRequestValidationError", _WEB, "client", 400, None, parameter=True, text="fields"),
    Row("BaseException", ("builtins",), "server", 500, "InternalServerError", text="generic"),
)
"""Every row of the contract; the last one is "anything else"."""

RAW: tuple[Row, ...] = (
    Row("ValueError", ("builtins",), "client", 400, "BadRequestError", text="raw"),
    Row("TypeError", ("builtins",), "client", 400, "BadRequestError", text="raw"),
    Row("OverflowError", ("builtins",), "client", 400, "BadRequestError", text="raw"),
    Row("NotImplementedError", ("builtins",), "server", 501, "NotImplementedError", text="raw"),
    Row("TemplateError", (), "client", 400, "BadRequestError", text="raw"),
)
"""Upstream's mapping of exceptions that nobody typed, which some routes keep (contract, section 4)."""

ANYTHING_ELSE = CATALOGUE[-1]


def _index(rows: tuple[Row, ...]) -> dict[str, Row]:
    return {row.exception: row for row in rows}


_ROWS, _RAW_ROWS = _index(CATALOGUE), _index(RAW)


def _find(rows: dict[str, Row], exception: type[BaseException]) -> Row | None:
    for cls in exception.__mro__:
        row = rows.get(cls.__name__)
        if row is not None and (not row.packages or cls.__module__.partition(".")[0] in row.packages):
            return row
    return None


def row_for(exception: type[BaseException]) -> Row:
    """The most specific row of a class."""
    return _find(_ROWS, exception) or ANYTHING_ELSE


def raw_row_for(exception: type[BaseException]) -> Row:
    """The row of a class where raw exceptions keep upstream's mapping; typed ones have the row they always have."""
    row = row_for(exception)
    return row if row is not ANYTHING_ELSE else _find(_RAW_ROWS, exception) or row


def close_code(category: Category, status: int) -> int:
    """The code that a WebSocket is closed with after an error."""
    if category == "client":
        return CLIENT_CLOSE
    return RETRY_CLOSE if status == HTTPStatus.SERVICE_UNAVAILABLE else SERVER_CLOSE


def phrase(status: int) -> str:
    """The HTTP phrase of a status, "Client Error" or "Server Error" for one that ``http.HTTPStatus`` does not know."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Client Error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "Server Error"


_NEVER_RETRIED = {(row.status, row.error_type) for row in CATALOGUE if row.retry is False}


def may_be_retried(status: int, error_type: str) -> bool:
    """False where a repetition cannot help, or would run work twice: the answer says ``x-should-retry: false``."""
    return (status, error_type) not in _NEVER_RETRIED
