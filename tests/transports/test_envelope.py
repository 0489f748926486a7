# SPDX-License-Identifier: Apache-2.0
"""The public error object, the headers and the close reason of a record."""

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from vllm_omni_errors.details import OmniErrorDetails
from vllm_omni_errors.transports import envelope

DETAILS = OmniErrorDetails("n is bad", "client", 400, "BadRequestError", "n", "chatcmpl-1", 0)


def test_the_error_object_has_vllms_keys_and_vllm_omnis() -> None:
    assert envelope.body(DETAILS) == snapshot(
        {
            "error": {
                "message": "n is bad",
                "type": "BadRequestError",
                "param": "n",
                "code": 400,
                "request_id": "chatcmpl-1",
                "error_stage_id": 0,
            }
        }
    )


def test_an_event_carries_a_type_beside_the_same_object() -> None:
    assert envelope.event(DETAILS) == {"type": "error", **envelope.body(DETAILS)}


def test_case_j09_a_message_is_never_empty() -> None:
    assert envelope.error_object(OmniErrorDetails("", "server", 503, "x"))["message"] == "Service Unavailable"


def test_headers_say_the_id_and_whether_a_repetition_can_help() -> None:
    assert envelope.headers(DETAILS) == {"x-request-id": "chatcmpl-1"}
    conflict = OmniErrorDetails("no", "client", 409, "ConflictError", request_id="a\r\nb")
    assert envelope.headers(conflict) == {"x-request-id": "ab", "x-should-retry": "false"}


def test_an_exceptions_headers_do_not_describe_our_body() -> None:
    foreign = {"Content-Length": "1", "Content-Type": "text/plain", "X-Request-Id": "other", "Retry-After": "3"}
    assert envelope.merged({"x-request-id": "r"}, foreign) == {"x-request-id": "r", "retry-after": "3"}


@given(st.text())
def test_a_close_reason_fits_into_its_frame(message: str) -> None:
    details = OmniErrorDetails(message, "client", 400, "x")
    assert len(envelope.close_reason(details).encode()) <= 123
    assert details.message.startswith(envelope.close_reason(details))
