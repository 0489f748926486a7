# SPDX-License-Identifier: Apache-2.0
"""Bodies that are no request: not JSON, not text, not of this kind, or far too much of the wrong."""

import json

from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.check import Check, Step, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import refused

RULE = "A body that cannot be read gets a 400 that does not quote it."
SOURCE = "contract, section 3; case Z07"
WRONG_ITEMS = 4_000
# Each is held against some thirty kinds of item, which takes vLLM milliseconds.
WRONG_INPUT_ITEMS = 300
CHAT_OR_IMAGES = (make.CHAT, make.IMAGES)


def _paths(context: Context) -> list[str]:
    return [path for path in CHAT_OR_IMAGES if context.missing_route("POST", path) is None]


def _some_json_route(context: Context) -> str | None:
    return None if _paths(context) else "the server has neither chat nor images"


def _cut_json(context: Context) -> bytes:
    return json.dumps({"model": context.model, "prompt": context.canaries.prompt}).encode()[:-1]


def _not_utf8(context: Context) -> bytes:
    return b'{"model": "' + context.canaries.content.encode() + b'\xff\xfe\xc3\x28", "prompt": "x"}'


def _not_json_type(context: Context) -> list[Step]:
    calls = {make.CHAT: make.chat(context), make.IMAGES: make.images(context)}
    return [
        Step(
            make.raw(path, json.dumps(calls[path].json).encode(), "text/plain"),
            refused(400, 415, accepted="the server reads JSON whatever the content type says"),
            generates=True,
        )
        for path in _paths(context)
    ]


CHECKS = (
    Check(
        id="body.not-json",
        name="body is not JSON",
        rule=RULE,
        source=SOURCE,
        needs=(_some_json_route,),
        steps=lambda c: [Step(make.raw(path, _cut_json(c)), refused(400, lenient=False)) for path in _paths(c)],
    ),
    Check(
        id="body.not-utf8",
        name="body is not UTF-8",
        rule=RULE,
        source=SOURCE,
        needs=(_some_json_route,),
        steps=lambda c: [Step(make.raw(path, _not_utf8(c)), refused(400, lenient=False)) for path in _paths(c)],
    ),
    Check(
        id="body.png",
        name="a PNG as body",
        rule=RULE,
        source=SOURCE,
        needs=(_some_json_route,),
        steps=lambda c: [
            Step(make.raw(path, make.png(), kind), refused(400, 415))
            for path in _paths(c)
            for kind in ("application/json", "application/octet-stream")
        ],
    ),
    Check(
        id="body.content-type",
        name="wrong content type",
        rule="A content type that is not read is refused, without quoting the body.",
        source="contract, section 3",
        needs=(_some_json_route,),
        steps=_not_json_type,
    ),
    Check(
        id="chat.wrong-items",
        name=f"{WRONG_ITEMS:,} messages of a wrong type",
        rule="An error body is bounded and never brings back the input, however many errors there are.",
        source="contract, section 3; case Z03",
        needs=(route("POST", make.CHAT),),
        steps=lambda c: [Step(make.chat(c, messages=[c.canaries.content] * WRONG_ITEMS), refused(400))],
    ),
    Check(
        id="responses.wrong-items",
        name=f"{WRONG_INPUT_ITEMS:,} input items of a wrong type",
        rule="An error body is bounded and never brings back the input, however many errors there are.",
        source="contract, section 3; case Z03",
        needs=(route("POST", make.RESPONSES),),
        steps=lambda c: [
            Step(
                Call(
                    "POST", make.RESPONSES, json={"model": c.model, "input": [[c.canaries.content]] * WRONG_INPUT_ITEMS}
                ),
                refused(400),
            )
        ],
    ),
)
