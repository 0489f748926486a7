# SPDX-License-Identifier: Apache-2.0
"""Routes whose endpoints are vLLM's own keep its statuses: what is the client's on stock is so after the migration."""

from collections.abc import Mapping

import pytest
from contract import nothing_leaks
from support import Answer, send_all
from upstream_calls import CALLS, GOOD

from vllm_omni_rig.server import Server

NOT_SERVED = {"/generative_scoring"}
"""Routes that stock answers with 500, whatever the request says: the model does not serve them."""

Answers = Mapping[str, Answer]


@pytest.fixture(scope="module")
def before(stock: Server) -> Answers:
    return send_all(stock.url, CALLS).by_name


@pytest.fixture(scope="module")
def after(migrated: Server) -> Answers:
    return send_all(migrated.url, CALLS).by_name


def test_no_client_error_of_stock_has_another_status(before: Answers, after: Answers) -> None:
    wrong = {name: answer.status for name, answer in before.items() if 400 <= answer.status < 500}
    different = {name: (status, after[name].status) for name, status in wrong.items() if after[name].status != status}
    assert different == {}
    assert len(wrong) > 200


@pytest.mark.parametrize("path", sorted(GOOD.keys() - NOT_SERVED))
def test_every_route_was_asked_in_many_ways(before: Answers, path: str) -> None:
    """One that stock answers otherwise says nothing about client errors."""
    statuses = [answer.status for name, answer in before.items() if name.startswith(f"{path} ")]
    assert sum(400 <= status < 500 for status in statuses) >= 10


def test_no_error_of_these_routes_leaks(after: Answers) -> None:
    for name, answer in after.items():
        if answer.status >= 400:
            nothing_leaks(answer.text, [name])
