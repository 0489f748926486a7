# SPDX-License-Identifier: Apache-2.0
"""What vLLM's code refuses in a request reaches the client as its own mistake (seam_cases.py; contract, section 4)."""

from pathlib import Path

import pytest
from calls import images
from contract import verify
from seam_cases import ONE_STAGE, SPEAKING, TWO_STAGES, SeamCase
from support import Answers, answers_of, send

from vllm_omni_errors.audit import seams
from vllm_omni_rig.server import Server

LEDGER = Path(__file__).parents[2] / "ledgers" / "upstream-0.30.0"
STATUSES = {"validation": 400, "typed": 400, "not-found": 404, "media": 422}


@pytest.fixture(scope="module")
def two_stages(migrated: Server) -> Answers:
    return answers_of(migrated.url, TWO_STAGES)


@pytest.fixture(scope="module")
def one_stage(migrated_inline: Server) -> Answers:
    return answers_of(migrated_inline.url, ONE_STAGE)


@pytest.mark.parametrize("case", TWO_STAGES, ids=str)
def test_answer_with_two_stages(two_stages: Answers, case: SeamCase) -> None:
    verify(two_stages.by_name[case.title], case.now)


@pytest.mark.parametrize("case", ONE_STAGE, ids=str)
def test_answer_with_one_stage(one_stage: Answers, case: SeamCase) -> None:
    verify(one_stage.by_name[case.title], case.now)


def test_counts_with_two_stages(two_stages: Answers) -> None:
    """X01: each answer is counted by the class of its status, on its own route."""
    assert two_stages.counted == two_stages.expected({case.title: case.now.counted for case in TWO_STAGES})


def test_counts_with_one_stage(one_stage: Answers) -> None:
    assert one_stage.counted == one_stage.expected({case.title: case.now.counted for case in ONE_STAGE})


def test_success_after_all_this(migrated: Server, two_stages: Answers) -> None:
    assert send(migrated.url, images("hi")).status == 200


@pytest.mark.parametrize("case", [*TWO_STAGES, *ONE_STAGE, *SPEAKING], ids=str)
def test_a_case_is_of_a_reviewed_seam_and_its_answer_what_was_decided(case: SeamCase) -> None:
    [row] = [row for row in seams.load(LEDGER).rows if (row.function, row.call) == case.seam]
    assert case.now.status == STATUSES[row.decision]
