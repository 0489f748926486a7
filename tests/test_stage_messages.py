# SPDX-License-Identifier: Apache-2.0
"""The record in vLLM-Omni's messages, and who reads it."""

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from vllm_omni_errors import (
    GuardrailViolationError,
    OmniErrorDetails,
    OmniServiceUnavailableError,
    stage_messages,
    wire,
)
from vllm_omni_errors.stage_messages import (
    call_error,
    call_fields,
    message_fields,
    output_fields,
    readable,
    received,
    rpc_error,
)

REFUSED = OmniErrorDetails("No.", "client", 400, "GuardrailViolationError", request_id="inner", stage_id=1)
GONE = OmniErrorDetails("Gone.", "server", 500, "InternalServerError", stage_id=0, fatal=True)


@pytest.fixture(autouse=True)
def propagating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_messages.logger, "propagate", True)


def output(**fields: Any) -> SimpleNamespace:
    """An output of vLLM-Omni: it has every field, whether it reports an error or not."""
    empty = {"error": None, "error_status_code": None, "error_type": None, "error_details": None}
    return SimpleNamespace(**(empty | fields))


@pytest.mark.parametrize("details", [REFUSED, GONE])
def test_a_record_survives_in_an_output_in_a_message_and_on_the_wire(details: OmniErrorDetails) -> None:
    """I13: two hops, three carriers."""
    carried = received(output(**output_fields(details)))
    carried = received(SimpleNamespace(**message_fields(carried)))
    assert received(wire.to_fields(carried)) == details


@pytest.mark.parametrize("details", [REFUSED, GONE])
def test_the_flat_fields_say_the_same_to_a_reader_of_0_30(details: OmniErrorDetails) -> None:
    flat = {name: value for name, value in message_fields(details).items() if name != wire.RECORD_FIELD}
    old = received(flat)
    assert (old.category, old.status_code, old.fatal, old.stage_id) == (
        details.category,
        details.status_code,
        details.fatal,
        details.stage_id,
    )


def test_the_receiver_knows_the_request_and_the_sender_knows_the_stage() -> None:
    found = received(output(**output_fields(REFUSED)), request_id="outer", stage_id=7)
    assert (found.request_id, found.stage_id) == ("outer", 1)
    assert received(output(error="x"), request_id="outer", stage_id=7).stage_id == 7


@pytest.mark.parametrize(
    "carrier",
    [output(error="secret"), {"error": "secret", "status_code": None}, {"error": "secret", "status_code": 503}],
)
def test_a_text_that_nobody_typed_is_logged_and_not_public(carrier: object, caplog: pytest.LogCaptureFixture) -> None:
    found = received(carrier, request_id="r", stage_id=1)
    assert (found.category, found.status_code, found.message) == ("server", 500, "Internal server error")
    assert "secret" in caplog.text


def test_a_4xx_of_0_30_is_the_clients_with_its_text(caplog: pytest.LogCaptureFixture) -> None:
    found = received({"error": "Too long.", "status_code": 400, "error_type": "BadRequestError"}, stage_id=1)
    assert (found.category, found.message, found.stage_id) == ("client", "Too long.", 1)
    assert caplog.text == ""


def test_a_record_is_not_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    received(output(**output_fields(GONE)))
    assert caplog.text == ""


@pytest.mark.parametrize("carrier", [object(), None, {}, {"error_details": b"\xc1"}, output(error=5), 17])
def test_a_carrier_that_says_nothing_is_a_failure_of_the_server(carrier: object) -> None:
    """I02, I09: the reader never raises."""
    found = received(carrier, text="raw", request_id="r", stage_id=3)
    assert (found.status_code, found.request_id) == (500, "r")


def test_the_raw_text_of_a_carrier_without_one_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    received(object(), text="the scheduler's words", stage_id=0)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the scheduler's words" in caplog.text


def test_an_answer_with_a_record_is_its_exception() -> None:
    assert isinstance(rpc_error({"status": "error", "error": "No.", "error_details": REFUSED}), GuardrailViolationError)
    assert isinstance(call_error("sleep", {"error": True, "error_details": REFUSED}), GuardrailViolationError)


def test_an_answer_without_a_record_is_known_by_its_text_as_before() -> None:
    """`is_abort_transport_shutdown` in vLLM-Omni compares it."""
    found = rpc_error(SimpleNamespace(error="RPC result router closed", error_details=None))
    assert (type(found), str(found)) == (RuntimeError, "RPC result router closed")


def test_a_failed_call_without_a_record_tells_nothing_of_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    found = call_error("sleep", {"supported": False, "error": "secret"})
    assert "secret" not in str(found)
    assert "secret" in caplog.text


def test_the_exception_of_a_record_can_be_relayed_without_loss() -> None:
    details = OmniErrorDetails("Busy.", "server", 503, "ServiceUnavailableError", request_id="r", stage_id=1)
    exc = rpc_error({"error_details": details})
    assert isinstance(exc, OmniServiceUnavailableError)
    assert exc.details == details


def broken(message: dict[str, Any]) -> bytes:
    """The message as msgpack, with one byte that msgpack does not have."""
    return msgspec.msgpack.encode({**message, "broken": msgspec.Raw(b"\xc1")})


@pytest.mark.parametrize("request_id", ["a", "x" * 31, "x" * 32, "x" * 300, "é x"])
def test_a_message_that_cannot_be_decoded_is_the_failure_of_its_request(request_id: str) -> None:
    """I02: the reader goes on, and the request is answered."""
    message = {"type": "result", "output": {"images": [], "request_id": request_id}}
    told = readable(msgspec.msgpack.decode)(broken(message))
    assert (told["type"], told["request_id"], told["rpc_id"]) == ("error", request_id, None)
    details = received(told, request_id=request_id, stage_id=1)
    assert (details.status_code, details.message, details.stage_id) == (500, "Internal server error", 1)


def test_a_result_that_cannot_be_decoded_is_the_failure_of_its_call() -> None:
    told = readable(msgspec.msgpack.decode)(broken({"type": "rpc_result", "rpc_id": "call", "request_id": None}))
    assert (told["type"], told["request_id"], told["rpc_id"]) == ("error", None, "call")


def test_a_message_that_can_be_decoded_is_as_it_was() -> None:
    message = {"type": "result", "output": {"request_id": "a"}}
    assert readable(msgspec.msgpack.decode)(msgspec.msgpack.encode(message)) == message


@pytest.mark.parametrize("raw", [b"", b"\xc1", broken({"output": 5}), b"\xaarequest_id\xda", b"\x05", b"\x90"])
def test_a_message_of_nobody_is_nobodys_failure(raw: bytes) -> None:
    """I02: the reader goes on, and answers nobody."""
    told = readable(msgspec.msgpack.decode)(raw)
    assert (told["type"], told["request_id"], told["rpc_id"]) == ("error", None, None)


@pytest.mark.parametrize(
    ("message", "request_id", "rpc_id"),
    [
        ({"type": "result", "request_id": "a"}, "a", None),
        ({"type": "rpc_result", "rpc_id": "call"}, None, "call"),
        (["request_id", "a"], "a", None),
    ],
)
def test_a_message_that_lacks_what_its_reader_takes_is_the_failure_of_its_request(
    message: Any, request_id: str | None, rpc_id: str | None
) -> None:
    told = readable(msgspec.msgpack.decode)(msgspec.msgpack.encode(message))
    assert (told["type"], told["request_id"], told["rpc_id"]) == ("error", request_id, rpc_id)


@pytest.mark.parametrize("details", [REFUSED, GONE])
def test_the_record_of_a_failed_call_can_be_sent_as_json(details: OmniErrorDetails) -> None:
    """vLLM's own route does that; whoever is given the answer finds the record again."""
    answer = {"supported": False, **json.loads(json.dumps(call_fields(details)))}
    assert received(answer) == details
