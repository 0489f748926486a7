# SPDX-License-Identifier: Apache-2.0
"""Failures inside the server, on the rig, where a word in the prompt causes them."""

from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.check import Check, Danger, Step, rig, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import Expect, refused

NEEDS = (route("POST", make.IMAGES), rig)
INTERNAL = "A failure of the server's own is 500, whatever the exception; only an explicit client error is 4xx."
SOURCE = "RFC, Motivation 1 and section 1; contract, sections 1 and 4"
NO_EFFECT = "the fault word had no effect on this server"
ACROSS = "RFC, section 2; contract, section 8"
CONFIRMING_WORD = "FAULT:guard"


def _fault(
    identifier: str,
    name: str,
    word: str,
    expect: Expect,
    *,
    rule: str = INTERNAL,
    source: str = SOURCE,
    danger: Danger = Danger.HARMLESS,
) -> Check:
    return Check(
        id=f"fault.{identifier}",
        name=name,
        rule=rule,
        source=source,
        needs=NEEDS,
        steps=lambda c: [Step(faulty(c, word), expect, generates=True)],
        danger=danger,
    )


def faulty(context: Context, word: str) -> Call:
    """A request for an image whose prompt holds `word`."""
    return make.images(context, prompt=f"{context.canaries.prompt} {word}")


FAILED = refused(500, types=("InternalServerError",), accepted=NO_EFFECT)

CHECKS = (
    _fault("bad-output", "ValueError in output conversion", "FAULT:badoutput", FAILED),
    _fault(
        "no-images",
        "a generation that gives no image",
        "FAULT:output=none",
        FAILED,
        rule="No output from the engine is a server error, not an empty success.",
    ),
    _fault("stage-value", "ValueError in a stage", "FAULT:value", FAILED),
    _fault("stage-runtime", "RuntimeError in a stage", "FAULT:runtime", FAILED),
    _fault(
        "guardrail",
        "a guardrail in a stage",
        CONFIRMING_WORD,
        refused(400, types=("GuardrailViolationError",), stage=True, accepted=NO_EFFECT),
        rule="A client's error that a stage finds is the client's, with its own type and the stage.",
        source=ACROSS,
    ),
    _fault(
        "stage-validation",
        "a validation error in a stage",
        "FAULT:raise=VLLMValidationError",
        refused(400, types=("BadRequestError",), param="size", stage=True, accepted=NO_EFFECT),
        rule="A client's mistake that only a stage can see is 400 with its parameter.",
        source=ACROSS,
    ),
    _fault(
        "out-of-memory",
        "out of memory in a stage",
        "FAULT:oom",
        refused(500, types=("InternalServerError",), stage=True, accepted=NO_EFFECT),
        rule="Out of memory is 500 with the stage.",
        source="contract, section 4",
        danger=Danger.MAY_KILL,
    ),
)
