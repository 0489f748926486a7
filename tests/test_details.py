# SPDX-License-Identifier: Apache-2.0
"""The record keeps its promises, whoever makes it."""

import copy
import dataclasses
import pickle
import re
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from record_strategies import records
from text_corpus import planted

from vllm_omni_errors.details import LOWEST_STATUS, Category, OmniErrorDetails
from vllm_omni_errors.public_text import MAX_CHARACTERS, MAX_IDENTIFIER_CHARACTERS, identifier, sanitize

PRIVATE = {text: pieces for _, text, pieces in planted(300, seed=2)}
texts = st.text(max_size=300) | st.sampled_from(list(PRIVATE))
VALID: dict[str, Any] = {"message": "no", "category": "client", "status_code": 400, "error_type": "BadRequestError"}


def test_has_the_fields_of_the_rfc_in_order() -> None:
    assert [(field.name, field.default) for field in dataclasses.fields(OmniErrorDetails)] == [
        ("message", dataclasses.MISSING),
        ("category", dataclasses.MISSING),
        ("status_code", dataclasses.MISSING),
        ("error_type", dataclasses.MISSING),
        ("parameter", None),
        ("request_id", None),
        ("stage_id", None),
        ("fatal", False),
    ]


def test_is_frozen_and_has_no_room_for_more() -> None:
    details = OmniErrorDetails(**VALID)
    with pytest.raises(dataclasses.FrozenInstanceError):
        details.message = "other"  # type: ignore[misc]
    assert not hasattr(details, "__dict__")


@given(st.integers())
@example(399)
@example(400)
@example(499)
@example(500)
@example(599)
@example(600)
def test_invariant_client_errors_have_a_4xx_status_and_server_errors_have_a_5xx_status(status: int) -> None:
    for category, lowest in (("client", 400), ("server", 500)):
        if lowest <= status < lowest + 100:
            assert OmniErrorDetails("no", category, status, "x").status_code == status  # type: ignore[arg-type]
        else:
            with pytest.raises(
                ValueError, match=rf"\Aa {category} error has a {lowest // 100}xx status, not {status}\Z"
            ):
                OmniErrorDetails("no", category, status, "x")  # type: ignore[arg-type]


@given(st.sampled_from(list(LOWEST_STATUS)), st.integers(0, 99), st.booleans())
@example("client", 0, True)
@example("server", 0, True)
def test_invariant_fatal_true_is_valid_only_for_server_errors(category: Category, offset: int, fatal: bool) -> None:
    status = LOWEST_STATUS[category] + offset
    if fatal and category == "client":
        with pytest.raises(ValueError, match=r"\Aonly a server error can be fatal\Z"):
            OmniErrorDetails("no", category, status, "x", fatal=fatal)
    else:
        assert OmniErrorDetails("no", category, status, "x", fatal=fatal).fatal is fatal


def test_knows_two_categories() -> None:
    with pytest.raises(ValueError, match=r"\Acategory must be 'client' or 'server'\Z"):
        OmniErrorDetails(**{**VALID, "category": "nobody"})


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("message", b"no", "a str"),
        ("category", None, "a str"),
        ("error_type", 400, "a str"),
        ("status_code", "400", "an int"),
        ("status_code", True, "an int"),
        ("status_code", 400.0, "an int"),
        ("parameter", 1, "a str or None"),
        ("request_id", 1, "a str or None"),
        ("stage_id", "1", "an int or None"),
        ("stage_id", True, "an int or None"),
        ("fatal", 1, "a bool"),
    ],
)
def test_refuses_a_field_of_another_type(field: str, value: object, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"\A{field} must be {kind}\Z"):
        OmniErrorDetails(**{**VALID, field: value})


def test_keeps_a_plain_number_of_an_enumerated_status() -> None:
    details = OmniErrorDetails(**{**VALID, "status_code": HTTPStatus.CONFLICT})
    assert type(details.status_code) is int
    assert details.status_code == 409


@given(texts, texts)
@example("a word " * 100_000, "p" * 100_000)
def test_invariant_public_messages_and_parameter_names_are_sanitized(message: str, name: str) -> None:
    details = OmniErrorDetails(message, "client", 400, name, name)
    assert details.message == sanitize(message)
    assert details.parameter == identifier(name)
    assert details.error_type == (identifier(name) or "")


@given(st.sampled_from(list(PRIVATE)))
def test_invariant_tracebacks_exceptions_media_tensors_credentials_and_rejected_values_are_never_serialized(
    text: str,
) -> None:
    details = OmniErrorDetails(text, "client", 400, text, text)
    assert not [piece for piece in PRIVATE[text] if piece in repr(dataclasses.asdict(details))]
    for field in dataclasses.fields(OmniErrorDetails):
        for no_text in (RuntimeError("raw"), b"media", [0.5]):
            with pytest.raises(TypeError):
                OmniErrorDetails(**{**VALID, field.name: no_text})


@given(texts, texts, st.text(max_size=300))
@example("a word " * 100_000, "p" * 100_000, "r" * 100_000)
@example("a", "\n", "\r\nSet-Cookie: x")
@example("\ud800" * 3_000, "\ud800" * 200, "\ud800")
def test_every_text_of_a_record_is_bounded_and_has_bytes(message: str, name: str, request_id: str) -> None:
    details = OmniErrorDetails(message, "client", 400, name, name, request_id)
    assert len(details.message) <= MAX_CHARACTERS
    assert len(details.error_type) <= MAX_IDENTIFIER_CHARACTERS
    assert details.parameter is None or len(details.parameter) <= MAX_IDENTIFIER_CHARACTERS
    assert details.request_id is None or re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", details.request_id)
    repr(dataclasses.astuple(details)).encode()


@given(texts, texts, st.text(max_size=300))
def test_a_record_made_of_a_records_fields_is_that_record(message: str, name: str, request_id: str) -> None:
    details = OmniErrorDetails(message, "client", 400, name, name, request_id)
    assert OmniErrorDetails(**dataclasses.asdict(details)) == details


@given(records(), st.text(max_size=300))
def test_a_record_under_another_id_differs_in_that_alone(details: OmniErrorDetails, request_id: str) -> None:
    assert details.under(request_id) == dataclasses.replace(details, request_id=request_id)


def test_ordinary_types_and_ids_come_through_unchanged() -> None:
    for error_type in (*(status.phrase for status in HTTPStatus), "UnprocessableEntityError", "Odd_type-2"):
        for request_id in ("chatcmpl-9a0b1c2d3e4f5a6b", "123e4567-e89b-12d3-a456-426614174000", "a:b.c_d"):
            details = OmniErrorDetails("no", "server", 500, error_type, request_id=request_id)
            assert (details.error_type, details.request_id) == (error_type, request_id)


@given(records(), st.none() | st.sampled_from(["r", "other"]), st.none() | st.integers(0, 9))
def test_is_completed_with_what_it_does_not_know(
    details: OmniErrorDetails, request_id: str | None, stage_id: int | None
) -> None:
    completed = details.completed(request_id=request_id, stage_id=stage_id)
    assert completed.request_id == (request_id if details.request_id is None else details.request_id)
    assert completed.stage_id == (stage_id if details.stage_id is None else details.stage_id)
    assert dataclasses.replace(completed, request_id=details.request_id, stage_id=details.stage_id) == details
    assert completed.completed(request_id="later", stage_id=99).stage_id == (
        99 if completed.stage_id is None else completed.stage_id
    )


def test_a_record_that_knows_all_is_completed_by_itself() -> None:
    whole = OmniErrorDetails(**VALID, request_id="r", stage_id=0)
    assert whole.completed(request_id="other", stage_id=9) is whole
    unknown = OmniErrorDetails(**VALID)
    assert unknown.completed(request_id=None, stage_id=None) is unknown


def test_a_secret_does_not_get_in_by_replacing_a_field() -> None:
    details = dataclasses.replace(
        OmniErrorDetails(**VALID),
        message="see /home/someone/key.pem",
        parameter="/etc/passwd",
        error_type="sk-abcdefghijklmnop1",
    )
    assert (details.message, details.parameter, details.error_type) == ("see <path>", "<path>", "<redacted>")


@given(records())
def test_survives_copying_and_pickling(details: OmniErrorDetails) -> None:
    assert copy.deepcopy(details) == details
    assert pickle.loads(pickle.dumps(details)) == details
