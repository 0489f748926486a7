# SPDX-License-Identifier: Apache-2.0
"""Each place of stock's HTTP routes that answers wrongly, and what sees it: a request whose answer changes, or a pair
of tests. Needs no server: it holds the list against the tables and the tests, which ask the servers.

Places are `file:line` of vLLM-Omni 0.30.0 below `entrypoints/openai/`; where no file is named, of `api_server.py`.
"""

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from failures_table import MIGRATED, STOCK
from test_baseline_unavailable import STOCK as WITHOUT_A_HANDLER

HERE = Path(__file__).parent

ROWS: Mapping[str, tuple[str, ...]] = {
    "1206, 1211 raw chat body": (
        "cases.ONE_STAGE: chat: modalities not a list",
        "cases.TWO_STAGES: chat: logprobs not a boolean",
    ),
    "1241, 1318 chat without a handler": ("unavailable: chat", "unavailable: chat batch"),
    "1246, 1323, 1386, 1467 routes that translated everything to 500": (
        "cases.TWO_STAGES: chat: prompt too long",
        "cases.TWO_STAGES: batch: temperature -3",
        "raised: chat: VLLMValidationError",
        "test_contract_speech.WRONG: speech: raw error",
    ),
    "1427 speech batch, 1631, 1685 voices, 1877 rollout: any ValueError was 400": (
        "test_contract_speech.WRONG: batch: every item wrong",
        "test_contract_speech.WRONG: voices: no audio",
        "test_contract_control.STEPS: a raw ValueError",
    ),
    "2250, 2624 images: any ValueError was 400": (
        "cases.ONE_STAGE: images: output of a wrong dtype",
        "cases.TWO_STAGES: edits: output that cannot be encoded",
        "raised: images: ValueError",
    ),
    "2247, 2621, 2756 a client error's own status was trusted": (
        "raised: images: OmniClientError503",
        "test_contract_videos.FAILURES: a client error with a server's status",
    ),
    "2253, 2627, 2759 everything else was 500 in the route": (
        "raised: images: VLLMNotFoundError",
        "raised: images: VLLMValidationError",
        "test_contract_videos.FAILURES: nothing found",
    ),
    "2570 edits read an attribute that is not there": ("cases.TWO_STAGES: edits: prompt too long",),
    "2747 videos/sync: any TimeoutError was 504": ("test_contract_videos.FAILURES: the engine's own timeout",),
    "1538, 1543 HTTPException 503 and 409": (
        "unavailable: voices",
        "test_contract_control::test_on_stock + test_what_one_of_several_workers_cannot_do",
    ),
    "1868, 3014, 3032 HTTPException 501": (
        "cases.TWO_STAGES: rollout: not served",
        "test_baseline_unavailable::test_an_operation_that_the_engine_does_not_have"
        " + test_contract_unavailable::test_an_operation_that_the_engine_does_not_have",
    ),
    "1889 a step of a rollout that failed was 200": (
        "test_contract_control.STEPS: inference fails",
        "test_contract_control.STEPS: a dead stage",
    ),
    "1905 rollout: HTTPException 404 and 410": (
        "test_contract_control.REQUESTS: reset of an unknown session",
        "test_contract_control.REQUESTS: status of an unknown session",
    ),
    "3008 sleep and wake-up that the engine does not answer": (
        "test_contract_control::test_on_stock_every_later_request_waits_for_ever"
        " + test_a_sleep_that_the_engine_does_not_answer",
    ),
    "serving_chat.py:644 everything of preprocessing was 400, but what is typed": (
        "cases.TWO_STAGES: chat: prompt too long",
        "cases.TWO_STAGES: chat: template that raises",
    ),
    "serving_chat.py:866, 899, 2426 any ValueError was 400, and a 404 became 400": (
        "raised: chat: ValueError",
        "raised: chat: OmniClientError404",
    ),
    "serving_chat.py:4001 diffusion chat: everything was 500 of a client's type": (
        "cases.ONE_STAGE: chat: output that cannot be encoded",
        "cases.ONE_STAGE: chat: no messages",
    ),
    "serving_chat.py:2887, 3823, 3880 no output": (
        "cases.TWO_STAGES: chat: no image",
        "cases.ONE_STAGE: chat: no image",
    ),
    "serving_speech.py:2459, 2700 any ValueError was 400, and no audio too": (
        "test_contract_speech.WRONG: speech: no audio",
        "test_contract_speech.WRONG_DIFFUSION: speech: raw error",
    ),
    "serving_speech.py:2473 an answer made by hand": ("test_contract_speech.WRONG_DIFFUSION: speech: a stage fails",),
    "serving_speech.py:2800 a batch of which every item failed was 200": (
        "test_contract_speech.WRONG: batch: every item fails",
    ),
    "serving_audio_generate.py:119, 135, 163 everything was 400": (
        "test_contract_speech.WRONG: audio: not served by this pipeline",
    ),
    "serving_video.py:199, 302, 320, 340, 347, 445, 452, 674 HTTPException 400": (
        "test_contract_videos.REQUESTS: size of nothing",
        "test_contract_videos.REQUESTS: LoRA without name",
        "test_contract_videos.REQUESTS: image reference by file id",
    ),
    "serving_video.py:698, 706, 736, 780 HTTPException 503 and 500": (
        "cases.TWO_STAGES: videos: not served",
        "test_contract_videos.FAILURES: no video",
    ),
    "video/generation/helpers.py:121 to 1132: HTTPExceptions, and bad media was 400": (
        "test_contract_videos.REQUESTS: truncated image",
        "test_contract_videos.REQUESTS: upload that is no image",
        "test_contract_videos.REQUESTS: mask not JSON",
        "test_contract_videos.REQUESTS: unknown job",
    ),
    "images/helpers.py:202, 213, 222 media was 400": (
        "cases.ONE_STAGE: edits: upload that is no image",
        "cases.TWO_STAGES: edits: URL that is no URL",
        "cases.TWO_STAGES: edits: mask that is no image",
    ),
    "images/helpers.py:130, 132 the server's own output was 400": (
        "cases.ONE_STAGE: images: output of a wrong dtype",
        "cases.ONE_STAGE: images: output of a wrong type",
    ),
    "app_state.py:58, diffusion.py:32, 50 HTTPException 503 and 500": ("unavailable: images",),
    "no image was a success": ("cases.ONE_STAGE: images: no image", "cases.TWO_STAGES: edits: no image made"),
    "an unknown model was 400": ("cases.ONE_STAGE: images: unknown model", "cases.TWO_STAGES: videos: unknown model"),
    "an unknown route had another shape": ("cases.ONE_STAGE: unknown route",),
}
"""Place → a case of a table whose two answers differ, an exception raised on a route, a route without its handler, or a
test of stock and one of migrated."""

REFERENCES = sorted({reference for references in ROWS.values() for reference in references})


def functions_of(module: str) -> set[str]:
    tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("reference", [each for each in REFERENCES if "::" not in each])
def test_the_answer_that_is_referred_to_changes(reference: str) -> None:
    table, _, name = reference.partition(": ")
    if table == "raised":
        route, _, exception = name.partition(": ")
        before, after = STOCK[route, "front"][exception], MIGRATED[exception]
    elif table == "unavailable":
        assert WITHOUT_A_HANDLER[name].type != "ServiceUnavailableError"
        return
    else:
        module, _, attribute = table.partition(".")
        [case] = [case for case in getattr(importlib.import_module(module), attribute) if case.title == name]
        before, after = case.was, case.now
    assert (before.status, before.type, before.param) != (after.status, after.type, after.param)


@pytest.mark.parametrize("reference", [each for each in REFERENCES if "::" in each])
def test_the_tests_that_are_referred_to_are_there(reference: str) -> None:
    module = ""
    for each in reference.split(" + "):
        named, _, test = each.rpartition("::")
        module = named or module
        assert test in functions_of(module), each
