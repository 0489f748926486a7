# SPDX-License-Identifier: Apache-2.0
"""Stock's answers to wrong requests, as they are today: "as today" in the contract means these rows (cases.py)."""

import pytest
from cases import ONE_STAGE, TWO_STAGES, Case
from support import Answers, answers_of, seen, send

from vllm_omni_rig.server import Server


@pytest.fixture(scope="module")
def two_stages(stock: Server) -> Answers:
    return answers_of(stock.url, TWO_STAGES)


@pytest.fixture(scope="module")
def one_stage(stock_inline: Server) -> Answers:
    return answers_of(stock_inline.url, ONE_STAGE)


@pytest.mark.parametrize("case", TWO_STAGES, ids=str)
def test_answer_with_two_stages(two_stages: Answers, case: Case) -> None:
    assert seen(two_stages.by_name[case.title]) == case.was


@pytest.mark.parametrize("case", ONE_STAGE, ids=str)
def test_answer_with_one_stage(one_stage: Answers, case: Case) -> None:
    assert seen(one_stage.by_name[case.title]) == case.was


def test_counts_with_two_stages(two_stages: Answers) -> None:
    assert two_stages.counted == two_stages.expected({case.title: case.was.counted for case in TWO_STAGES})


def test_counts_with_one_stage(one_stage: Answers) -> None:
    assert one_stage.counted == one_stage.expected({case.title: case.was.counted for case in ONE_STAGE})


def test_a_broken_template_is_counted_as_a_server_error_although_the_client_gets_400(stock: Server) -> None:
    case = next(each for each in TWO_STAGES if each.title == "tokenize: template that does not parse")
    answer = send(stock.url, case.call)
    assert (answer.status, answer.counted) == (400, ("5xx",))
