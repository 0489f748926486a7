# SPDX-License-Identifier: Apache-2.0
"""The record as bytes, in messages and as vLLM's error: it arrives as it was, and bad bytes raise nothing."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from golden import write_messages
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from record_strategies import records

from vllm_omni_errors import metrics, public_text, wire
from vllm_omni_errors.catalogue import Category
from vllm_omni_errors.details import OmniErrorDetails

GOLDEN = Path(write_messages.__file__).parent
RECORD = OmniErrorDetails("no", "client", 400, "BadRequestError", "size", "chatcmpl-1", 2)
GENERIC = wire.BROKEN

pack = msgspec.msgpack.encode


def characters(limit: int) -> st.SearchStrategy[str]:
    """Text that has bytes: msgpack cannot hold a half of a surrogate pair."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=limit)


def sendable() -> st.SearchStrategy[OmniErrorDetails]:
    """Records whose integers fit into 64 bits."""
    return st.builds(replace, records(), stage_id=st.none() | st.integers(-(2**63), 2**63 - 1))


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | characters(8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(characters(4), inner, max_size=3),
    max_leaves=6,
)
maps = st.fixed_dictionaries(
    {},
    optional={
        "message": characters(20) | junk,
        "category": st.sampled_from(["client", "server"]) | junk,
        "status_code": st.integers(390, 610) | junk,
        "error_type": characters(20) | junk,
        "fatal": st.booleans() | junk,
        "stage_id": junk,
        "error": characters(20) | junk,
        "error_status_code": junk,
        "error_details": junk,
        "more": junk,
    },
)


@pytest.fixture
def counted() -> Callable[[], dict[str, float]]:
    """How many broken records were counted in this test, by place."""

    def now(where: str) -> float:
        return REGISTRY.get_sample_value(metrics.BROKEN_RECORDS, {"where": where}) or 0

    places = ("encode", "decode", "legacy")
    before = {where: now(where) for where in places}
    return lambda: {where: now(where) - before[where] for where in places if now(where) != before[where]}


# --- the record's invariants (RFC, section 2), whatever arrives ----------------------------------------------------


@given(records(), st.integers(0, 999), st.sampled_from(["client", "server"]))
def test_invariant_client_errors_have_a_4xx_status_and_server_errors_have_a_5xx_status(
    record: OmniErrorDetails, status: int, category: Category
) -> None:
    arrived = wire.decode(pack({**asdict(RECORD), "category": category, "status_code": status}))
    consistent = status // 100 == {"client": 4, "server": 5}[category]
    assert arrived == (replace(RECORD, category=category, status_code=status) if consistent else GENERIC)
    sent = wire.decode(wire.encode(record))
    assert (sent.category, sent.status_code) == (record.category, record.status_code)


@given(st.sampled_from([("client", 400), ("server", 500)]), st.booleans())
def test_invariant_fatal_true_is_valid_only_for_server_errors(side: tuple[str, int], fatal: bool) -> None:
    category, status = side
    arrived = wire.decode(pack({**asdict(RECORD), "category": category, "status_code": status, "fatal": fatal}))
    assert arrived.fatal == (fatal and category == "server")
    assert (arrived is GENERIC) == (fatal and category == "client")


@given(characters(60), characters(40))
@example("no /srv/models/secret/weights.bin", "size")
@example("no", "/srv/models/secret/weights.bin")
def test_invariant_public_messages_and_parameter_names_are_sanitized(message: str, parameter: str) -> None:
    arrived = wire.decode(pack({**asdict(RECORD), "message": message, "parameter": parameter}))
    assert (arrived.message, arrived.parameter) == (public_text.sanitize(message), public_text.identifier(parameter))
    flat = wire.read({"error": message, "status_code": 404})
    assert flat is not None
    assert flat.message == (public_text.sanitize(message) or "Not Found")


@given(maps)
def test_invariant_only_the_eight_fields_are_ever_read_or_written(message: dict[str, Any]) -> None:
    for record in (wire.decode(pack(message)), wire.read(message)):
        if record is not None:
            written = msgspec.msgpack.decode(wire.encode(record))
            assert set(written) == {field.name for field in fields(OmniErrorDetails)}
            assert all(isinstance(value, str | int | None) for value in written.values())


# --- bytes -----------------------------------------------------------------------------------------------------------


@given(sendable())
def test_a_record_arrives_as_it_was(record: OmniErrorDetails) -> None:
    assert wire.decode(wire.encode(record)) == record
    assert wire.read(msgspec.msgpack.decode(pack(wire.to_fields(record)))) == record


@given(sendable())
def test_the_bytes_are_those_of_the_dataclass_itself(record: OmniErrorDetails) -> None:
    assert wire.encode(record) == pack(record)


def test_a_record_is_read_from_whatever_buffer_a_socket_gives() -> None:
    data = wire.encode(RECORD)
    assert wire.decode(bytearray(data)) == wire.decode(memoryview(data)) == RECORD


def test_optional_keys_that_are_missing_take_their_defaults() -> None:
    arrived = wire.decode(pack({"message": "no", "category": "server", "status_code": 500, "error_type": "E"}))
    assert arrived == OmniErrorDetails("no", "server", 500, "E")


@pytest.mark.parametrize("name", ["message", "category", "status_code", "error_type"])
def test_a_record_without_a_required_key_is_broken(name: str) -> None:
    assert wire.decode(pack({key: value for key, value in asdict(RECORD).items() if key != name})) is GENERIC


@given(records())
def test_whose_error_it_is_survives_any_record(record: OmniErrorDetails) -> None:
    data = wire.encode(record)
    assert len(data) <= wire.MAX_BYTES
    arrived = wire.decode(data)
    assert (arrived.message, arrived.category, arrived.status_code, arrived.fatal) == (
        record.message,
        record.category,
        record.status_code,
        record.fatal,
    )


@pytest.mark.parametrize("stage_id", [2**64, -(2**63) - 1, 2**2_000])
def test_case_i02_a_stage_whose_number_cannot_be_sent_is_left_out_and_counted(
    stage_id: int, counted: Callable[[], dict[str, float]]
) -> None:
    record = replace(RECORD, stage_id=stage_id)
    assert wire.decode(wire.encode(record)) == replace(RECORD, stage_id=None)
    assert counted() == {"encode": 1}
    assert wire.read(pack_and_unpack(wire.to_fields(record))) == replace(RECORD, stage_id=None)
    assert counted() == {"encode": 2}
    assert wire.to_request_error(record) == wire.to_request_error(RECORD)
    assert counted() == {"encode": 3}


@pytest.mark.parametrize("stage_id", [2**64 - 1, -(2**63)])
def test_every_number_of_64_bits_is_sent(stage_id: int, counted: Callable[[], dict[str, float]]) -> None:
    record = replace(RECORD, stage_id=stage_id)
    assert wire.decode(wire.encode(record)) == record
    assert counted() == {}


@pytest.mark.parametrize("character", ["😀", "a", "\ud800", "\x00"])
def test_the_largest_record_is_sent_whole(character: str, counted: Callable[[], dict[str, float]]) -> None:
    huge = (character + " ") * 100_000
    record = OmniErrorDetails(huge, "server", 599, huge, huge, "r" * 100_000, 2**64 - 1, fatal=True)
    assert wire.decode(data := wire.encode(record)) == record
    assert len(data) <= wire.MAX_BYTES
    assert counted() == {}


def pack_and_unpack(message: dict[str, Any]) -> Any:
    return msgspec.msgpack.decode(pack(message))


def test_case_i01_what_is_no_record_is_sent_as_an_unknown_failure(counted: Callable[[], dict[str, float]]) -> None:
    forged: Any = object.__new__(OmniErrorDetails)
    for name, value in {**asdict(RECORD), "message": RuntimeError("raw")}.items():
        object.__setattr__(forged, name, value)
    no_exception: Any = RuntimeError("raw")
    for each in (forged, no_exception):
        assert wire.decode(wire.encode(each)) == GENERIC
    assert counted() == {"encode": 2}
    assert wire.decode(wire.encode(object.__new__(OmniErrorDetails))) is GENERIC


DEEP = b"\x91" * 10_000
HOSTILE: dict[str, Any] = {
    "nothing": b"",
    "no map": pack([1, 2]),
    "an array of the fields": pack(list(asdict(RECORD).values())),
    "text": "\xc1",
    "none": None,
    "a number": 3,
    "an unused type": b"\xc1",
    "deep": DEEP,
    "deep under an unknown key": b"\x89" + pack(RECORD)[1:] + b"\xa1n" + DEEP + b"\x90",
    "a key that is no text": pack({**asdict(RECORD), 1: 2}),
    "not UTF-8": pack(RECORD).replace(b"\xa2no", b"\xa2\xff\xfe"),
    "more bytes behind it": pack(RECORD) + b"\x00",
    "a length that is a lie": b"\xdf\xff\xff\xff\xff",
    "a text that is a lie": pack(RECORD).replace(b"\xa2no", b"\xdb\xff\xff\xff\xff"),
    "too large": pack({**asdict(RECORD), "more": "x" * wire.MAX_BYTES}),
    "a pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins\x94.",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_case_i09_hostile_bytes_are_an_unknown_failure_and_counted(
    data: Any, counted: Callable[[], dict[str, float]]
) -> None:
    assert wire.decode(data) is GENERIC
    assert OmniErrorDetails("Internal server error", "server", 500, "InternalServerError") == GENERIC
    assert counted() == {"decode": 1}


WRONG: list[dict[str, Any]] = [
    {"message": 1},
    {"message": b"no"},
    {"category": "proxy"},
    {"category": None},
    {"status_code": 503},
    {"status_code": 399},
    {"status_code": 400.0},
    {"status_code": True},
    {"status_code": "400"},
    {"status_code": 2**64 - 1},
    {"status_code": -(2**63)},
    {"error_type": None},
    {"parameter": ["size"]},
    {"request_id": 7},
    {"stage_id": "1"},
    {"stage_id": 1.5},
    {"fatal": 1},
    {"fatal": True},
]


@pytest.mark.parametrize("change", WRONG, ids=str)
@pytest.mark.parametrize("form", ["bytes", "map", "bytes in a message"])
def test_a_wrong_or_inconsistent_field_is_an_unknown_failure_and_counted(
    change: dict[str, Any], form: str, counted: Callable[[], dict[str, float]]
) -> None:
    record = {**asdict(RECORD), **change}
    if form == "bytes":
        arrived = wire.decode(pack(record))
    else:
        arrived = wire.read({"error": "x", "error_details": record if form == "map" else pack(record)})  # type: ignore[assignment]
    assert arrived is GENERIC
    assert counted() == {"decode": 1}


def test_a_record_of_exactly_16_kib_is_read_and_one_byte_more_is_not() -> None:
    assert wire.MAX_BYTES == 16_384
    room = wire.MAX_BYTES - len(pack({**asdict(RECORD), "more": "x" * 300})) + 300
    assert len(data := pack({**asdict(RECORD), "more": "x" * room})) == wire.MAX_BYTES
    assert wire.decode(data) == RECORD
    assert wire.decode(pack({**asdict(RECORD), "more": "x" * (room + 1)})) is GENERIC


def test_a_truncated_record_is_broken_wherever_it_ends() -> None:
    data = wire.encode(RECORD)
    assert all(wire.decode(data[:length]) is GENERIC for length in range(len(data)))


@given(st.integers(0, len(pack(RECORD)) - 1), st.integers(0, 255))
def test_a_damaged_record_is_a_valid_one_or_broken(position: int, byte: int) -> None:
    data = bytearray(pack(RECORD))
    data[position] = byte
    arrived = wire.decode(data)
    assert arrived.status_code // 100 == {"client": 4, "server": 5}[arrived.category]


@given(st.binary(max_size=200))
def test_decoding_any_bytes_raises_nothing(data: bytes) -> None:
    assert isinstance(wire.decode(data), OmniErrorDetails)


# --- messages --------------------------------------------------------------------------------------------------------


@given(maps)
def test_reading_any_message_raises_nothing(message: dict[str, Any]) -> None:
    for form in (message, SimpleNamespace(**message)):
        read = wire.read(form)
        assert (read is None) == (message.get("error") is None and message.get("error_details") is None)


@pytest.mark.parametrize("message", [{}, {"type": "result"}, {"error": None}, None, SimpleNamespace(error=None), 3])
def test_a_message_without_an_error_has_no_record(message: object, counted: Callable[[], dict[str, float]]) -> None:
    assert wire.read(message) is None
    assert counted() == {}


def test_a_record_is_its_own_message() -> None:
    assert wire.read(RECORD) is RECORD
    assert wire.read(SimpleNamespace(error="flat", error_details=RECORD)) is RECORD


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_a_message_may_carry_the_record_as_bytes(form: Callable[[bytes], object]) -> None:
    assert wire.read({"error": "flat", "error_details": form(wire.encode(RECORD))}) == RECORD


def test_the_record_is_preferred_to_the_flat_fields() -> None:
    message = wire.to_fields(RECORD) | {"error": "other", "status_code": 500, "fatal": True, "stage_id": 9}
    assert wire.read(message) == RECORD


def test_both_forms_are_written_in_the_window() -> None:
    assert wire.to_fields(RECORD) == {
        "error_details": asdict(RECORD),
        "error": "no",
        "status_code": 400,
        "error_type": "BadRequestError",
        "fatal": False,
        "request_id": "chatcmpl-1",
        "stage_id": 2,
    }
    assert wire.to_fields(RECORD, status_field="error_status_code")["error_status_code"] == 400


def test_one_constant_closes_the_window(
    monkeypatch: pytest.MonkeyPatch, counted: Callable[[], dict[str, float]]
) -> None:
    monkeypatch.setattr(wire, "LEGACY_WINDOW", False)
    assert wire.to_fields(RECORD) == {"error_details": asdict(RECORD)}
    assert wire.read(wire.to_fields(RECORD)) == RECORD
    assert wire.read({"error": "flat", "status_code": 400}) is GENERIC
    assert counted() == {"legacy": 1}


@pytest.mark.parametrize("status_field", ["status_code", "error_status_code"])
@pytest.mark.parametrize("status", [400, 404, 451, 499, HTTPStatus.CONFLICT])
@pytest.mark.parametrize("form", [dict, lambda fields: SimpleNamespace(**fields)])
def test_a_flat_4xx_is_the_clients_error(
    status_field: str, status: int, form: Callable[[dict[str, Any]], object]
) -> None:
    flat = {"error": "no", status_field: status, "error_type": "Odd", "request_id": "chatcmpl-1", "stage_id": 0}
    expected = OmniErrorDetails("no", "client", status, "Odd", request_id="chatcmpl-1", stage_id=0)
    assert wire.read(form(flat)) == expected


def test_a_flat_client_error_always_has_a_type_and_a_text() -> None:
    for nothing in (None, "", "\n"):
        assert wire.read(
            {"error": "", "status_code": 409, "error_type": nothing, "request_id": ""}
        ) == OmniErrorDetails("Conflict", "client", 409, "BadRequestError")


@pytest.mark.parametrize("status", [None, 200, 302, 399, 500, 502, 503, 600, -1, 2**63 - 1])
def test_any_other_flat_error_is_the_servers_with_the_generic_text(status: int | None) -> None:
    flat = {"error": "raw /srv/x.py", "status_code": status, "error_type": "Odd", "request_id": "r", "stage_id": 1}
    assert wire.read(flat) == replace(GENERIC, request_id="r", stage_id=1)


def test_a_flat_fatal_error_is_the_servers_whatever_its_status() -> None:
    assert wire.read({"error": "dead", "status_code": 400, "fatal": True}) == replace(GENERIC, fatal=True)


@pytest.mark.parametrize(
    "change",
    [
        {"error": 3},
        {"error": ["no"]},
        {"status_code": "400"},
        {"status_code": 400.0},
        {"status_code": True},
        {"status_code": 2**70},
        {"error_status_code": []},
        {"error_type": 3},
        {"fatal": None},
        {"fatal": 1},
        {"request_id": 7},
        {"stage_id": "1"},
        {"stage_id": False},
        {"stage_id": -(2**63) - 1},
    ],
    ids=str,
)
def test_a_flat_field_of_a_wrong_type_is_an_unknown_failure_and_counted(
    change: dict[str, Any], counted: Callable[[], dict[str, float]]
) -> None:
    assert wire.read({"error": "no", "status_code": 400} | change) is GENERIC
    assert counted() == {"legacy": 1}


class Hostile:
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # pytest and copy look for those
            raise AttributeError(name)
        raise RuntimeError("do not look at me")


class HostileMap(dict[str, object]):
    def get(self, *arguments: object) -> object:
        raise RecursionError


@pytest.mark.parametrize("message", [Hostile(), HostileMap(), {"error": Hostile()}])
def test_a_hostile_message_is_an_unknown_failure_and_counted(
    message: object, counted: Callable[[], dict[str, float]]
) -> None:
    assert wire.read(message) is GENERIC
    assert counted() == {"legacy": 1}


@pytest.mark.parametrize("record", [Hostile(), object(), {1: object()}, {"message": {"x": object()}}, [[]], 3, "text"])
def test_a_hostile_record_in_a_message_is_an_unknown_failure_and_counted(
    record: object, counted: Callable[[], dict[str, float]]
) -> None:
    assert wire.read({"error": "flat", "status_code": 400, "error_details": record}) is GENERIC
    assert counted() == {"decode": 1}


def test_a_map_in_a_message_has_the_size_limit_too() -> None:
    assert wire.read({"error_details": {**asdict(RECORD), "error_type": "x" * wire.MAX_BYTES}}) is GENERIC
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    assert wire.read({"error_details": {**asdict(RECORD), "more": deep}}) is GENERIC


# --- upstream's RequestError -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RequestError:
    """The one of ``vllm/outputs.py`` of vLLM 0.32."""

    code: str
    message: str
    retryable: bool = False


class VLLMNotFoundError(Exception):
    __module__ = "vllm.exceptions"


class GracefulHTTPError(Exception):
    __module__ = "vllm.exceptions"


class RequestValidationError(Exception):
    __module__ = "fastapi.exceptions"


@dataclass(frozen=True)
class LaterRequestError(RequestError):
    """With what 0.33 added."""

    exception: type[Exception] = VLLMNotFoundError

    def to_exception(self) -> Exception:
        return self.exception(self.message)


UNAVAILABLE = OmniErrorDetails("no", "server", 503, "ServiceUnavailableError")
FAILED = OmniErrorDetails("no", "server", 500, "InternalServerError")
ABSENT = OmniErrorDetails("no", "client", 404, "NotFoundError")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RequestError("multimodal_cache_miss", "no", retryable=True), UNAVAILABLE),
        (RequestError("odd", "no"), FAILED),
        (RequestError("odd", "", retryable=True), replace(UNAVAILABLE, message="Internal server error")),
        (RequestError("NotFoundError", "no"), ABSENT),
        (RequestError("NotFoundError", ""), replace(ABSENT, message="Not Found")),
        (LaterRequestError("odd", "no"), ABSENT),
        (LaterRequestError("odd", "no", retryable=True), UNAVAILABLE),
        (LaterRequestError("odd", "no", exception=GracefulHTTPError), FAILED),
        (LaterRequestError("odd", "no", exception=RequestValidationError), FAILED),
        (LaterRequestError("odd", "no", exception=KeyError), FAILED),
    ],
)
def test_a_request_error_of_upstream_is_what_upstream_makes_of_it(
    error: RequestError, expected: OmniErrorDetails
) -> None:
    assert wire.from_request_error(error) == expected
    assert wire.read(SimpleNamespace(error=error)) == expected


def test_a_request_errors_text_is_sanitized() -> None:
    assert "/srv" not in wire.from_request_error(RequestError("odd", "no /srv/models/weights.bin")).message


@given(sendable())
def test_a_record_keeps_its_side_and_text_as_a_request_error(record: OmniErrorDetails) -> None:
    error = RequestError(**wire.to_request_error(record))
    back = wire.from_request_error(error)
    assert back.category == record.category
    assert error.message == record.message
    assert error.retryable == (record.status_code == 503)


@pytest.mark.parametrize(
    ("category", "status", "error_type"),
    [
        ("client", 400, "GuardrailViolationError"),
        ("client", 404, "NotFoundError"),
        ("client", 409, "ConflictError"),
        ("client", 422, "UnprocessableEntityError"),
        ("server", 501, "NotImplementedError"),
        ("server", 503, "ServiceUnavailableError"),
        ("server", 504, "GatewayTimeoutError"),
        ("server", 500, "InternalServerError"),
    ],
)
def test_a_type_of_the_catalogue_survives_as_a_request_error(category: Any, status: int, error_type: str) -> None:
    record = OmniErrorDetails("no", category, status, error_type)
    assert wire.from_request_error(RequestError(**wire.to_request_error(record))) == record


def test_a_type_that_does_not_tell_the_status_is_not_the_code() -> None:
    record = OmniErrorDetails("no", "client", 413, "NotImplementedError")
    assert wire.to_request_error(record)["code"] == "BadRequestError"
    record = OmniErrorDetails("no", "server", 503, "Odd")
    assert wire.to_request_error(record)["code"] == "ServiceUnavailableError"
    assert wire.to_request_error(replace(record, status_code=502))["code"] == "InternalServerError"


@pytest.mark.parametrize("error", [None, 3, RequestError(1, "no"), RequestError("odd", None), Hostile()])  # type: ignore[arg-type]
def test_what_is_no_request_error_is_an_unknown_failure_and_counted(
    error: object, counted: Callable[[], dict[str, float]]
) -> None:
    assert wire.from_request_error(error) is GENERIC
    assert counted() == {"legacy": 1}


# --- golden messages: every writer, every reader ---------------------------------------------------------------------


def read_as_stock(data: bytes) -> tuple[str, int | None]:
    """What vLLM-Omni 0.30 makes of a message: ``diffusion/stage_diffusion_client.py:250``, ``errors.py:63``."""
    message = msgspec.msgpack.decode(data)
    status = message.get("status_code", message.get("error_status_code"))
    return (message["error"], status if status is not None and 400 <= status < 500 else None)


def read_as_ours(data: bytes) -> OmniErrorDetails | None:
    return wire.read(msgspec.msgpack.decode(data))


def golden(writer: str, case: str) -> bytes:
    return (GOLDEN / writer / f"{case}.msgpack").read_bytes()


@pytest.mark.parametrize("case", write_messages.RECORDS)
@pytest.mark.parametrize("writer", ["record-and-flat", "record-alone", "record-with-more"])
@pytest.mark.parametrize("window", [True, False])
def test_our_messages_are_read_whole_in_the_window_and_after_it(
    writer: str, case: str, window: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "LEGACY_WINDOW", window)
    assert read_as_ours(golden(writer, case)) == write_messages.RECORDS[case]


@pytest.mark.parametrize("case", write_messages.RECORDS)
def test_our_messages_say_the_same_to_a_stock_reader_in_the_window(case: str) -> None:
    record = write_messages.RECORDS[case]
    expected = (record.message, record.status_code if record.category == "client" else None)
    assert read_as_stock(golden("record-and-flat", case)) == expected


STOCK_MESSAGES = {
    "guardrail": OmniErrorDetails(
        write_messages.REFUSAL, "client", 400, "BadRequestError", request_id=write_messages.REQUEST_ID
    ),
    "failure": replace(GENERIC, request_id=write_messages.REQUEST_ID),
    "output-guardrail": OmniErrorDetails(
        write_messages.REFUSAL, "client", 400, "BadRequestError", request_id=write_messages.REQUEST_ID
    ),
    "output-failure": replace(GENERIC, request_id=write_messages.REQUEST_ID),
    "rpc-failure": GENERIC,
}


@pytest.mark.parametrize(("case", "expected"), STOCK_MESSAGES.items())
def test_stock_messages_are_read_in_the_window_and_fail_after_it(
    case: str, expected: OmniErrorDetails, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = golden(write_messages.STOCK, case)
    assert read_as_ours(data) == expected
    monkeypatch.setattr(wire, "LEGACY_WINDOW", False)
    assert read_as_ours(data) is GENERIC


@pytest.mark.parametrize(("case", "expected"), STOCK_MESSAGES.items())
def test_stock_messages_are_what_a_stock_reader_reads(case: str, expected: OmniErrorDetails) -> None:
    status = expected.status_code if expected.category == "client" else None
    assert read_as_stock(golden(write_messages.STOCK, case))[1] == status


def test_every_golden_message_is_read_by_a_test() -> None:
    files = {str(path.relative_to(GOLDEN).with_suffix("")) for path in GOLDEN.rglob("*.msgpack")}
    ours = set(write_messages.our_messages())
    assert files == ours | {f"{write_messages.STOCK}/{case}" for case in STOCK_MESSAGES}


@pytest.mark.parametrize("name", write_messages.our_messages())
def test_our_messages_have_not_changed(name: str) -> None:
    assert write_messages.our_messages()[name] == (GOLDEN / f"{name}.msgpack").read_bytes()


# --- cost ------------------------------------------------------------------------------------------------------------


def test_the_wire_imports_no_vllm() -> None:
    code = "import sys, vllm_omni_errors; vllm_omni_errors.decode(b''); print({'vllm', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


class Foreign:
    """What only the sender knows."""

    def __reduce__(self) -> tuple[object, ...]:
        return print, ("decoded",)


def test_case_i17_an_object_of_the_sender_is_no_record_and_is_not_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert wire.decode(pickle.dumps(Foreign())) == wire.BROKEN
    assert capsys.readouterr().out == ""
