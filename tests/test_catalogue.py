# SPDX-License-Identifier: Apache-2.0
"""The table of the contract, row by row, and what every transport derives from it."""

import subprocess
import sys

import pytest
from inline_snapshot import snapshot

from vllm_omni_errors import catalogue
from vllm_omni_errors.catalogue import (
    ANYTHING_ELSE,
    CATALOGUE,
    RAW,
    close_code,
    may_be_retried,
    phrase,
    raw_row_for,
    row_for,
)


def make(name: str, module: str, *bases: type[BaseException]) -> type[BaseException]:
    return type(name, bases or (Exception,), {"__module__": module})


def test_is_the_table_of_the_contract() -> None:
    table = {
        row.exception: (row.category, row.status, row.error_type, row.parameter, row.text, row.close_code)
        for row in CATALOGUE
    }
    assert table == snapshot(
        {
            "VLLMValidationError": ("client", 400, "BadRequestError", True, "authored", 1008),
            "GuardrailViolationError": ("client", 400, "GuardrailViolationError", False, "authored", 1008),
            "VLLMNotFoundError": ("client", 404, "NotFoundError", False, "authored", 1008),
            "LoRAAdapterNotFoundError": ("client", 404, "NotFoundError", False, "ours", 1008),
            "OmniConflictError": ("client", 409, "ConflictError", False, "authored", 1008),
            "VLLMUnprocessableEntityError": ("client", 422, "UnprocessableEntityError", True, "authored", 1008),
            "VLLMClientError": ("client", 400, "BadRequestError", False, "authored", 1008),
            "OmniClientError": ("client", 400, "BadRequestError", True, "authored", 1008),
            "EngineGenerateError": ("server", 500, "InternalServerError", False, "ours", 1011),
            "EngineDeadError": ("server", 500, "InternalServerError", False, "ours", 1011),
            "GenerationError": ("server", 500, "InternalServerError", False, "authored", 1011),
            "RetryableRequestError": ("server", 503, "ServiceUnavailableError", False, "authored", 1013),
            "OmniNotImplementedError": ("server", 501, "NotImplementedError", False, "authored", 1011),
            "OmniServiceUnavailableError": ("server", 503, "ServiceUnavailableError", False, "authored", 1013),
            "OmniStageTimeoutError": ("server", 504, "GatewayTimeoutError", False, "authored", 1011),
            "GracefulHTTPError": ("status", 500, None, False, "authored", None),
            "VLLMServerError": ("server", 500, "InternalServerError", True, "authored", 1011),
            "OmniServerError": ("server", 500, "InternalServerError", True, "authored", 1011),
            "HTTPException": ("status", 500, None, False, "detail", None),
            "RequestValidationError": ("client", 400, None, True, "fields", 1008),
            "WebSocketRequestValidationError": ("client", 400, None, True, "fields", 1008),
            "BaseException": ("server", 500, "InternalServerError", False, "generic", 1011),
        }
    )


def test_says_where_a_repetition_cannot_help() -> None:
    assert {row.exception for row in CATALOGUE if row.retry is False} == {
        "OmniConflictError",
        "OmniNotImplementedError",
        "OmniStageTimeoutError",
    }
    assert {row.exception: row.final_attribute for row in CATALOGUE if row.final_attribute} == {
        "OmniServiceUnavailableError": "permanent"
    }
    assert not may_be_retried(409, "ConflictError")
    assert may_be_retried(409, "Conflict")
    assert may_be_retried(503, "ServiceUnavailableError")


def test_only_a_dead_engine_is_fatal() -> None:
    assert {row.exception for row in CATALOGUE if row.fatal} == {"EngineDeadError"}


def test_only_exceptions_without_a_side_of_their_own_let_a_number_decide() -> None:
    assert {row.exception for row in CATALOGUE if row.category == "status"} == {"GracefulHTTPError", "HTTPException"}


def test_no_class_has_two_rows() -> None:
    names = [row.exception for row in (*CATALOGUE, *RAW)]
    assert len(names) == len(set(names))


def test_our_own_texts_are_sentences() -> None:
    for row in CATALOGUE:
        assert (row.text == "ours") == bool(row.sentence)
        assert not row.sentence or row.sentence.endswith(".")


def test_the_most_specific_row_wins() -> None:
    client = make("VLLMClientError", "vllm.exceptions")
    missing = make("VLLMNotFoundError", "vllm.exceptions", client)
    assert row_for(make("VoiceNotFoundError", "somewhere", missing)).status == 404
    assert row_for(make("SomethingNew", "vllm.new", client)).status == 400


def test_a_foreign_class_of_the_same_name_is_anything_else() -> None:
    assert row_for(make("HTTPException", "http.client")) is ANYTHING_ELSE
    assert row_for(make("VLLMNotFoundError", "vllm_lookalike.exceptions")) is ANYTHING_ELSE
    assert row_for(make("ValueError", "mine")) is ANYTHING_ELSE


@pytest.mark.parametrize(
    "exception", [ValueError, TypeError, OverflowError, NotImplementedError, KeyError, MemoryError]
)
def test_a_raw_exception_is_anything_else(exception: type[Exception]) -> None:
    assert row_for(exception) is ANYTHING_ELSE


def test_raw_exceptions_have_upstreams_mapping_where_they_keep_it() -> None:
    template = make("TemplateError", "jinja2.exceptions")
    syntax = make("TemplateSyntaxError", "jinja2.exceptions", template)
    statuses = {
        cls.__name__: raw_row_for(cls).status
        for cls in (ValueError, UnicodeDecodeError, TypeError, OverflowError, NotImplementedError, syntax, RuntimeError)
    }
    assert statuses == {
        "ValueError": 400,
        "UnicodeDecodeError": 400,
        "TypeError": 400,
        "OverflowError": 400,
        "NotImplementedError": 501,
        "TemplateSyntaxError": 400,
        "RuntimeError": 500,
    }


def test_a_typed_exception_is_never_raw() -> None:
    typed = make("VLLMServerError", "vllm.exceptions")
    assert raw_row_for(make("Odd", "somewhere", typed, ValueError)).status == 500


@pytest.mark.parametrize(
    ("category", "status", "code"),
    [("client", 400, 1008), ("client", 499, 1008), ("server", 500, 1011), ("server", 503, 1013)],
)
def test_close_codes(category: catalogue.Category, status: int, code: int) -> None:
    assert close_code(category, status) == code


def test_phrases_are_those_of_http_and_never_missing() -> None:
    assert phrase(400) == "Bad Request"
    assert phrase(499) == "Client Error"
    assert phrase(599) == "Server Error"
    assert phrase(500) == "Internal Server Error"


def test_needs_neither_vllm_nor_torch_nor_a_web_framework() -> None:
    program = (
        "import sys\n"
        "import vllm_omni_errors\n"
        "from vllm_omni_errors import OmniErrorDetails, catalogue, sanitize\n"
        "sanitize('x'), OmniErrorDetails('x', 'client', 400, 'x')\n"
        "print(*sorted({'vllm', 'torch', 'fastapi', 'starlette', 'pydantic', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""


def test_the_package_lists_its_public_names() -> None:
    import vllm_omni_errors

    assert set(vllm_omni_errors.__all__) <= set(dir(vllm_omni_errors))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        vllm_omni_errors.nothing  # type: ignore[attr-defined] # noqa: B018
