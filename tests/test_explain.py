# SPDX-License-Identifier: Apache-2.0
"""`omni-errors explain`: every error of the contract by its status, its type and its classes."""

import json

import pytest

from vllm_omni_errors.catalogue import CATALOGUE, Row
from vllm_omni_errors.cli import ExitCode, run
from vllm_omni_errors.explain import MEANINGS, alike, everything, explain, lines


@pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row.exception)
def test_every_row_is_found_by_its_class_its_type_and_its_status(row: Row) -> None:
    (found,) = explain(row.exception)
    assert found.owner == row.category
    assert found in explain(str(row.status))
    assert found in explain(found.error_type)
    assert (found.status, found.fatal) == (row.status, row.fatal)


def test_every_type_of_the_catalogue_has_a_meaning_and_no_other() -> None:
    assert {row.error_type for row in CATALOGUE if row.error_type} == set(MEANINGS)


def test_case_does_not_matter() -> None:
    assert explain("notfounderror") == explain("NotFoundError") != ()


@pytest.mark.parametrize(
    ("word", "retry"),
    [
        ("BadRequestError", "no: not before the request is corrected"),
        ("ConflictError", "no: the answer says `x-should-retry: false`"),
        ("GatewayTimeoutError", "no: the answer says `x-should-retry: false`"),
        ("OmniServiceUnavailableError", "yes, unless the answer says `x-should-retry: false`"),
        ("EngineDeadError", "yes"),
    ],
)
def test_it_says_whether_to_repeat(word: str, retry: str) -> None:
    assert {each.retry for each in explain(word)} == {retry}


@pytest.mark.parametrize(("word", "owner"), [("405", "client"), ("Too Many Requests", "client"), ("502", "server")])
def test_a_status_that_only_the_framework_uses_is_explained_by_its_number(word: str, owner: str) -> None:
    assert [each.owner for each in explain(word)] == [owner]


def test_a_fatal_error_says_so() -> None:
    assert {("Fatal" in dict(lines(each))) == each.fatal for each in everything()} == {True}


@pytest.mark.parametrize("word", ["200", "", "Nonsense", "999"])
def test_an_unknown_word_is_refused_with_what_may_have_been_meant(
    capsys: pytest.CaptureFixture[str], word: str
) -> None:
    assert explain(word) == ()
    assert run(["explain", word]) == ExitCode.COULD_NOT_RUN
    assert capsys.readouterr().err.startswith(f"omni-errors: {word}: no error of the contract is called so.")


def test_a_slip_of_the_keyboard_is_answered_with_the_right_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert alike("NotFoundEror") == ["NotFoundError", "VLLMNotFoundError"]
    run(["explain", "NotFoundEror"])
    assert "Did you mean NotFoundError or VLLMNotFoundError?" in capsys.readouterr().err


def test_the_text_and_the_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "503"]) == ExitCode.OK
    text = capsys.readouterr().out
    assert run(["explain", "503", "--json", "-"]) == ExitCode.OK
    for each in json.loads(capsys.readouterr().out)["errors"]:
        assert each["meaning"].replace("`", "") in text
        assert each["look_at"].replace("`", "") in text
