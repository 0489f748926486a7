# SPDX-License-Identifier: Apache-2.0
"""A failed item is an error object; a batch fails only with every item."""

import asyncio

import pytest

from vllm_omni_errors import OmniClientError, metrics
from vllm_omni_errors.transports.batch import item_error, raise_if_all_failed


def test_an_item_error_is_the_canonical_object() -> None:
    error = item_error(OmniClientError("no such voice", status_code=404, error_type="NotFoundError"))
    assert error == {
        "message": "no such voice",
        "type": "NotFoundError",
        "param": None,
        "code": 404,
        "request_id": None,
        "error_stage_id": None,
    }


def test_what_nobody_typed_is_not_public_in_an_item() -> None:
    assert item_error(ValueError("/secret"))["message"] == "Internal server error"


def test_an_item_that_failed_is_counted_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[int, str]] = []
    monkeypatch.setattr(metrics, "count_error", lambda details, name: counted.append((details.status_code, name)))
    item_error(ValueError())
    assert counted == [(500, "item")]


def test_a_cancelled_item_is_no_error() -> None:
    with pytest.raises(asyncio.CancelledError):
        item_error(asyncio.CancelledError())


@pytest.mark.parametrize("results", [[], ["audio"], [ValueError(), "audio"]])
def test_a_batch_with_a_success_goes_on(results: list[object]) -> None:
    raise_if_all_failed(results)


def test_a_batch_of_failures_raises_the_first() -> None:
    with pytest.raises(KeyError):
        raise_if_all_failed([KeyError(), ValueError()])
