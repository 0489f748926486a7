# SPDX-License-Identifier: Apache-2.0
"""The official client: the class, the code, the parameter and the request id that its users see."""

from collections.abc import Callable

from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.check import Check, Need, Step, known_limit, rig, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.checks.faults import CONFIRMING_WORD, NO_EFFECT, faulty
from vllm_omni_errors.probe.checks.fields import long_prompt
from vllm_omni_errors.probe.checks.routing import UNKNOWN_MODEL
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.official import Raises
from vllm_omni_errors.probe.rules import Expect, refused

RULE = "The official client raises the exception of the status, with code, type, parameter and request id."
SOURCE = "contract, sections 1 and 2; case M35"
CHAT = (route("POST", make.CHAT),)
IMAGES = (route("POST", make.IMAGES),)


def _client(
    identifier: str, name: str, needs: tuple[Need, ...], call: Callable[[Context], Call], expect: Expect
) -> Check:
    return Check(
        id=f"client.{identifier}",
        name=f"official client: {name}",
        rule=RULE,
        source=SOURCE,
        needs=needs,
        steps=lambda c: [Step(make.official(call(c)), Raises(expect), generates=True)],
        transport="openai",
    )


CHECKS = (
    _client("unknown-model", "unknown model", CHAT, lambda c: make.chat(c, model=UNKNOWN_MODEL),
            refused(404, types=("NotFoundError",))),
    _client("long-prompt", "prompt that is too long", (*CHAT, known_limit), lambda c: make.chat(c, long_prompt(c)),
            refused(400, types=("BadRequestError",))),
    _client("stream", "too long, streamed", (*CHAT, known_limit),
            lambda c: make.stream(make.chat(c, long_prompt(c))), refused(400, types=("BadRequestError",))),
    _client("size", "size that is no size", IMAGES, lambda c: make.images(c, size="banana"),
            refused(400, param="size")),
    _client("guardrail", "a guardrail", (*IMAGES, rig), lambda c: faulty(c, CONFIRMING_WORD),
            refused(400, types=("GuardrailViolationError",), accepted=NO_EFFECT)),
    _client("failure", "a failure in a stage", (*IMAGES, rig), lambda c: faulty(c, "FAULT:value"),
            refused(500, types=("InternalServerError",), accepted=NO_EFFECT)),
)  # fmt: skip
