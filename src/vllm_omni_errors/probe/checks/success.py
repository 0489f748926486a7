# SPDX-License-Identifier: Apache-2.0
"""Ordinary requests: the contract changes no success."""

from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.check import Check, Step, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import Expect, success

RULE = "An ordinary request is answered as ever, and counted as the success that it is."
SOURCE = "RFC, Compatibility and correctness"
# Upstream's routes answer so for a task that the model does not serve (contract, section 4).
UNSERVED = (404, 501, 503)
# A pipeline whose last stage makes images has the route and fails on it: from outside, no different from a failure.
UNDECIDED = (*UNSERVED, 500)


def _chat(context: Context) -> Expect:
    """Where no model samples tokens and a chat fails, its pipeline makes what no chat can bring, such as video."""
    if context.maximum_tokens is None:
        return success(make.has_choices, unserved=UNDECIDED, absent=frozenset(UNDECIDED))
    return success(make.has_choices, unserved=UNSERVED)


CHECKS = (
    Check(
        id="ok.health",
        name="health",
        rule=RULE,
        source=SOURCE,
        needs=(route("GET", make.HEALTH),),
        steps=lambda c: [Step(Call("GET", make.HEALTH), success(make.any_answer))],
    ),
    Check(
        id="ok.models",
        name="list of models",
        rule=RULE,
        source=SOURCE,
        needs=(route("GET", make.MODELS),),
        steps=lambda c: [Step(Call("GET", make.MODELS), success(make.lists_models))],
    ),
    Check(
        id="ok.chat",
        name="chat",
        rule=RULE,
        source=SOURCE,
        needs=(route("POST", make.CHAT),),
        steps=lambda c: [Step(make.chat(c), _chat(c), generates=True)],
    ),
    Check(
        id="ok.completions",
        name="completion",
        rule=RULE,
        source=SOURCE,
        needs=(route("POST", make.COMPLETIONS),),
        steps=lambda c: [Step(make.completion(c), success(make.has_choices, unserved=UNDECIDED), generates=True)],
    ),
    Check(
        id="ok.images",
        name="image",
        rule=RULE,
        source=SOURCE,
        needs=(route("POST", make.IMAGES),),
        steps=lambda c: [Step(make.images(c), success(make.has_images, unserved=UNSERVED), generates=True)],
    ),
    Check(
        id="ok.edits",
        name="edit of an image",
        rule=RULE,
        source=SOURCE,
        needs=(route("POST", make.EDITS),),
        steps=lambda c: [Step(make.edits(c), success(make.has_images, unserved=UNSERVED), generates=True)],
    ),
    Check(
        id="ok.tokenize",
        name="tokenize",
        rule=RULE,
        source=SOURCE,
        needs=(route("POST", make.TOKENIZE),),
        steps=lambda c: [Step(make.tokenize(c), success(make.has_tokens, unserved=UNSERVED))],
    ),
    Check(
        id="ok.chat-batch",
        name="batch of chats",
        rule="A batch is answered, or refused with the status that its error says.",
        source="contract, section 4; RFC, Motivation 1",
        needs=(route("POST", make.CHAT_BATCH),),
        steps=lambda c: [
            Step(make.chat_batch(c), success(make.has_choices, unserved=(400, *UNDECIDED)), generates=True)
        ],
    ),
    Check(
        id="ok.speech",
        name="speech",
        rule=RULE,
        source=SOURCE,
        needs=(route("POST", make.SPEECH),),
        steps=lambda c: [Step(make.speech(c), success(make.any_answer, unserved=UNDECIDED), generates=True)],
    ),
)
