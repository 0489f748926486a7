# SPDX-License-Identifier: Apache-2.0
"""A failed validation says where and what, and never the input."""

from typing import Annotated, Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_omni_errors.field_errors import INVALID, MAX_ERRORS, describe, errors_of


class Text(pydantic.BaseModel):
    type: Literal["text"]
    text: str


class Image(pydantic.BaseModel):
    type: Literal["image"]
    size: int


class Body(pydantic.BaseModel):
    parts: list[Annotated[Text | Image, pydantic.Field(discriminator="type")]] = []
    stop: str | list[str] | None = None
    scores: dict[str, int] = {}


def described(body: dict[str, Any]) -> tuple[str, str | None]:
    with pytest.raises(pydantic.ValidationError) as caught:
        Body.model_validate(body)
    return describe(errors_of(caught.value))


def test_says_where_and_what() -> None:
    assert described({"parts": [{"type": "image"}]}) == ("parts.0.image.size: Field required", "parts.0.image.size")


def test_the_tag_that_came_is_not_quoted() -> None:
    assert described({"parts": [{"type": "private"}]}) == ("parts.0: The tag is not one of those expected", "parts.0")


def test_branches_of_the_schema_are_no_fields() -> None:
    message, parameter = described({"stop": [5]})
    assert message == "stop: Input should be a valid string; stop.0: Input should be a valid string"
    assert parameter == "stop"


@pytest.mark.parametrize("field", ["model", "url", "default", "json", "list", "date"])
def test_a_field_that_is_called_like_a_branch_keeps_its_name(field: str) -> None:
    assert describe([{"loc": ("body", field), "msg": "Field required"}]) == (
        f"body.{field}: Field required",
        f"body.{field}",
    )


def test_a_name_that_the_client_chose_is_repeated_only_if_it_is_one() -> None:
    assert described({"scores": {"my private prompt": "x"}})[1] == "scores"
    assert described({"scores": {"x" * 65: "x"}})[1] == "scores"
    assert described({"scores": {"a-name_1": "x"}})[1] == "scores.a-name_1"


def test_at_most_ten_errors_are_listed() -> None:
    message, _ = described({"scores": {f"n{i}": "x" for i in range(25)}})
    assert len(message.split("; ")) == MAX_ERRORS + 1
    assert message.endswith("; and 15 more")


def test_ten_errors_are_all_that_there_are() -> None:
    message, _ = described({"scores": {f"n{i}": "x" for i in range(MAX_ERRORS)}})
    assert len(message.split("; ")) == MAX_ERRORS
    assert "more" not in message


def test_only_the_first_field_of_a_part_may_be_called_like_a_branch() -> None:
    assert describe([{"loc": ("body", "list", "list"), "msg": "no"}])[1] == "body.list"
    assert describe([{"loc": ("list", "list"), "msg": "no"}])[1] == "list"
    assert describe([{"loc": ("body",), "msg": "no"}])[1] == "body"
    assert describe([{"loc": ("json",), "msg": "no"}])[1] == "json"


@pytest.mark.parametrize("branch", ["function-after[check(), str]", "function-wrap", "str-or-list", "LIST"])
def test_a_branch_is_no_field(branch: str) -> None:
    assert describe([{"loc": ("stop", branch, 0), "msg": "no"}])[1] == "stop.0"


def test_a_deep_place_is_cut() -> None:
    assert describe([{"loc": ("n", *range(30)), "msg": "no"}])[1] == ".".join(["n", *map(str, range(19))])


def test_json_that_cannot_be_read_has_a_place_but_no_position() -> None:
    error = {"type": "json_invalid", "loc": ("body", 17), "msg": "JSON decode error", "ctx": {"error": "private"}}
    assert describe([error]) == ("body: The body is not valid JSON", "body")


def test_the_first_field_is_the_parameter_though_an_earlier_error_has_none() -> None:
    assert describe(["Unsupported", {"loc": ("body", "n"), "msg": "no"}]) == ("Unsupported; body.n: no", "body.n")


def test_a_long_text_is_cut() -> None:
    assert len(describe(["word " * 1_000])[0]) <= 300


@pytest.mark.parametrize(
    "errors",
    [None, "text", b"text", 5, [], {}, [None], [""], [" "], [{"msg": 5}], [{"msg": " "}], [{"loc": "n", "type": []}]],
)
def test_what_nobody_expects_is_a_sentence(errors: object) -> None:
    assert describe(errors) == (INVALID, None)


@given(st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_never_raises(errors: object) -> None:
    message, parameter = describe(errors)
    assert message
    assert parameter is None or parameter


def test_a_method_that_takes_no_options_is_asked_without() -> None:
    class Framework(Exception):  # noqa: N818
        def errors(self) -> list[str]:
            return ["no"]

    class Broken(Exception):  # noqa: N818
        def errors(self) -> list[str]:
            raise RuntimeError

    assert errors_of(Framework()) == ["no"]
    assert errors_of(Broken()) is None
    assert errors_of(ValueError()) is None


def test_pydantic_is_asked_to_leave_out_what_is_never_said() -> None:
    class Asked(Exception):  # noqa: N818
        def errors(self, **options: bool) -> list[dict[str, bool]]:
            return [options]

    assert errors_of(Asked()) == [{"include_url": False, "include_context": False, "include_input": False}]


@pytest.mark.parametrize(
    "rejected", ["hunter2hunter2", {"kind": "hunter2hunter2", "other": 5}], ids=["field", "object"]
)
def test_a_validators_own_words_do_not_repeat_what_was_rejected(rejected: object) -> None:
    error = {
        "type": "value_error",
        "loc": ("body", "kind"),
        "msg": "Value error, kind hunter2hunter2 is none of: soft, hard",
        "input": rejected,
    }
    assert describe([error]) == ("body.kind: Value error, kind … is none of: soft, hard", "body.kind")


def test_a_short_value_may_be_a_word_of_the_text() -> None:
    error = {"type": "value_error", "loc": ("body", "n"), "msg": "Value error, n is odd", "input": "n"}
    assert describe([error])[0] == "body.n: Value error, n is odd"
