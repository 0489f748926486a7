# SPDX-License-Identifier: Apache-2.0
"""What puts the server under stress: many requests at once, values that overflow, text that stalls."""

from vllm_omni_errors.probe.check import Check, Danger, Step, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import refused, success

CONCURRENT_REQUESTS = 20
# Numbered, so that an answer that went to another request can be told.
UNKNOWN_MODEL = "probe-none-{}"
UNKNOWN_MODEL_PATTERN = r"probe-none-\d+"
SEED_TOO_LARGE = 2**63
# The form takes a seed without bounds; torch takes one below this.
EDITS_SEED_TOO_LARGE = 2**64
TOKEN_TOO_LARGE = 2**70
LONG_NAME_CHARACTERS = 16_000
OVERFLOW = "A number that is too large is the client's error, 400, and costs nobody else anything."
OVERFLOW_SOURCE = "contract, sections 1 and 9; case M11"


def _mixed(context: Context) -> list[Step]:
    kinds = []
    if context.missing_route("POST", make.IMAGES) is None:
        kinds += [
            lambda n: Step(make.images(context), success(make.has_images), generates=True),
            lambda n: Step(make.images(context, size=f"banana{n}"), refused(400, param="size"), generates=True),
            lambda n: Step(make.images(context, model=UNKNOWN_MODEL.format(n)), refused(404), generates=True),
        ]
    if context.missing_route("POST", make.CHAT) is None:
        kinds += [
            lambda n: Step(make.chat(context), success(make.has_choices), generates=True),
            lambda n: Step(make.chat(context, messages=None), refused(400, param="messages"), generates=True),
            lambda n: Step(make.chat(context, model=UNKNOWN_MODEL.format(n)), refused(404), generates=True),
        ]
    return [kinds[n % len(kinds)](n) for n in range(CONCURRENT_REQUESTS)] if kinds else []


def _chat_or_images(context: Context) -> str | None:
    return None if _mixed(context) else "the server has neither chat nor images"


CHECKS = (
    Check(
        id="server.concurrent",
        name=f"{CONCURRENT_REQUESTS} requests at once, good and bad",
        rule="Each request gets its own answer, whatever happens to its neighbours.",
        source="contract, section 9; case L07",
        needs=(_chat_or_images,),
        steps=_mixed,
        together=True,
    ),
    Check(
        id="images.seed",
        name="seed 2**63 on images",
        rule=OVERFLOW,
        source=OVERFLOW_SOURCE,
        needs=(route("POST", make.IMAGES),),
        steps=lambda c: [Step(make.images(c, seed=SEED_TOO_LARGE), refused(400, param="seed"), generates=True)],
        danger=Danger.MAY_KILL,
    ),
    Check(
        id="chat.seed",
        name="seed 2**63 on chat",
        rule=OVERFLOW,
        source=OVERFLOW_SOURCE,
        needs=(route("POST", make.CHAT),),
        steps=lambda c: [Step(make.chat(c, seed=SEED_TOO_LARGE), refused(400, param="seed"), generates=True)],
        danger=Danger.MAY_KILL,
    ),
    Check(
        id="edits.seed",
        name="seed 2**64 on edits",
        rule=OVERFLOW,
        source=OVERFLOW_SOURCE,
        needs=(route("POST", make.EDITS),),
        steps=lambda c: [
            Step(make.edits(c, seed=str(EDITS_SEED_TOO_LARGE)), refused(400, param="seed"), generates=True)
        ],
        danger=Danger.MAY_KILL,
    ),
    Check(
        id="chat.stop-token-ids",
        name="stop_token_ids 2**70 on chat",
        rule=OVERFLOW,
        source=OVERFLOW_SOURCE,
        needs=(route("POST", make.CHAT),),
        steps=lambda c: [
            Step(
                make.chat(c, stop_token_ids=[TOKEN_TOO_LARGE]),
                refused(400, param="stop_token_ids", accepted="the server takes it, and it costs nobody anything"),
                generates=True,
            )
        ],
        danger=Danger.MAY_KILL,
    ),
    Check(
        id="completions.stalling-name",
        name=f"model name of {LONG_NAME_CHARACTERS:,} characters",
        rule="No text that a client sends can stall the server: the answer comes within its deadline.",
        source="contract, sections 3 and 11",
        needs=(route("POST", make.COMPLETIONS),),
        steps=lambda c: [Step(make.completion(c, model="/a" * (LONG_NAME_CHARACTERS // 2)), refused(400, 404))],
        danger=Danger.MAY_STALL,
    ),
)
