# SPDX-License-Identifier: Apache-2.0
"""What stock makes of every exception that can be raised in it (failures_table.py), as it is today."""

import pytest
from calls import chat, images
from failures_table import STOCK, STOCK_ONE_STAGE, Table, calls
from support import Answers, seen, send, send_all

from vllm_omni_rig.failures import CANARIES
from vllm_omni_rig.server import Server


def verify(answers: Answers, expected: Table) -> None:
    assert {name: seen(answer) for name, answer in answers.by_name.items()} == dict(expected)
    assert answers.counted == answers.expected({name: row.counted for name, row in expected.items()})


@pytest.mark.parametrize(("route", "place"), STOCK)
def test_every_exception_with_two_stages(stock: Server, route: str, place: str) -> None:
    verify(send_all(stock.url, calls(route, place)), STOCK[route, place])


@pytest.mark.parametrize("route", STOCK_ONE_STAGE)
def test_every_exception_with_one_stage(stock_inline: Server, route: str) -> None:
    verify(send_all(stock_inline.url, calls(route, "stage0")), STOCK_ONE_STAGE[route])


def test_a_cancellation_at_the_front_is_a_bare_500_on_images_and_a_400_on_chat(stock: Server) -> None:
    prompt = "FAULT:raise=CancelledError@front"
    on_images, on_chat = send(stock.url, images(prompt)), send(stock.url, chat(prompt))
    assert (on_images.status, on_images.text, on_images.counted) == (500, "Internal Server Error", ("5xx",))
    assert (on_chat.status, on_chat.error["type"], on_chat.counted) == (400, "BadRequestError", ("4xx",))


def test_a_lost_handover_between_the_stages_is_500_without_its_stage(stock: Server) -> None:
    """Sent as a client's error with status 502, which the receiver does not take for one."""
    answer = send(stock.url, images("FAULT:raise=NativeKVHandoffError@input"))
    assert (answer.status, answer.error["type"]) == (500, "Internal Server Error")
    assert "error_stage_id" not in answer.error
    assert CANARIES["key"] in answer.text


def test_a_stage_that_gives_the_next_one_no_input_is_500_without_its_stage(stock: Server) -> None:
    answer = send(stock.url, images("FAULT:noinput"))
    assert (answer.status, answer.error["type"], answer.error["error_stage_id"]) == (500, "InternalServerError", None)
