# SPDX-License-Identifier: Apache-2.0
import copy
import dataclasses
import pickle
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from record_strategies import records

from vllm_omni_errors.details import OmniErrorDetails
from vllm_omni_errors.public_text import MAX_IDENTIFIER_CHARACTERS, sanitize

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
def test_client_errors_have_a_4xx_status_and_server_errors_a_5xx_status(status: int) -> None:
    for category, lowest in (("client", 400), ("server", 500)):
        if lowest <= status < lowest + 100:
            assert OmniErrorDetails("no", category, status, "x").status_code == status  # type: ignore[arg-type]
        else:
            with pytest.raises(
                ValueError, match=rf"\Aa {category} error has a {lowest // 100}xx status, not {status}\Z"
            ):
                OmniErrorDetails("no", category, status, "x")  # type: ignore[arg-type]


def test_fatal_is_valid_only_for_server_errors() -> None:
    assert OmniErrorDetails("no", "server", 500, "x", fatal=True).fatal
    with pytest.raises(ValueError, match=r"\Aonly a server error can be fatal\Z"):
        OmniErrorDetails(**VALID, fatal=True)


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


@given(st.text(), st.text(max_size=300))
def test_messages_and_parameter_names_are_sanitized(message: str, parameter: str) -> None:
    details = OmniErrorDetails(message, "client", 400, "x", parameter)
    assert details.message == sanitize(message)
    assert details.parameter is None or len(details.parameter) <= MAX_IDENTIFIER_CHARACTERS


def test_a_secret_does_not_get_in_by_replacing_a_field() -> None:
    details = dataclasses.replace(
        OmniErrorDetails(**VALID), message="see /home/someone/key.pem", parameter="/etc/passwd"
    )
    assert details.message == "see <path>"
    assert details.parameter == "<path>"


@given(records())
def test_survives_copying_and_pickling(details: OmniErrorDetails) -> None:
    assert copy.deepcopy(details) == details
    assert pickle.loads(pickle.dumps(details)) == details
