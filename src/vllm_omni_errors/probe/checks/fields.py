# SPDX-License-Identifier: Apache-2.0
"""Fields with a value that cannot be: the client's error, with the field's name."""

from vllm_omni_errors.probe.check import Check, Step, known_limit, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import refused

RULE = "A request parameter that is not valid is the client's error, 400, and is named in param."
SOURCE = "RFC, section 1; contract, section 1"
IMAGES = (route("POST", make.IMAGES),)
CHAT = (route("POST", make.CHAT),)
EDITS = (route("POST", make.EDITS),)
ANY_LENGTH = "the server takes prompts of this length"


def long_prompt(context: Context) -> str:
    """More words than the model has room for tokens."""
    words = (context.maximum_tokens or 0) + 64
    return f"{context.canaries.prompt} " + "word " * words


CHECKS = (
    Check(
        id="chat.missing-field",
        name="chat without messages field",
        rule=RULE,
        source=SOURCE,
        needs=CHAT,
        steps=lambda c: [Step(make.chat(c, messages=None), refused(400, param="messages", lenient=False))],
    ),
    Check(
        id="chat.no-messages",
        name="chat with no messages",
        rule=RULE,
        source=f"{SOURCE}; case M13",
        needs=CHAT,
        steps=lambda c: [Step(make.chat(c, messages=[]), refused(400))],
    ),
    Check(
        id="chat.temperature",
        name="temperature -3 on chat",
        rule=RULE,
        source=SOURCE,
        needs=CHAT,
        steps=lambda c: [
            Step(
                make.chat(c, temperature=-3),
                refused(400, types=("BadRequestError",), param="temperature", accepted=c.without_tokens("temperature")),
            )
        ],
    ),
    Check(
        id="chat.modalities",
        name="modalities that are no list",
        rule=RULE,
        source=SOURCE,
        needs=CHAT,
        steps=lambda c: [
            Step(
                make.chat(c, modalities="text"),
                refused(400, param="modalities", accepted="the server does not read modalities"),
                generates=True,
            )
        ],
    ),
    Check(
        id="chat.long-prompt",
        name="prompt that is too long on chat",
        rule=RULE,
        source=f"{SOURCE}; case M26",
        needs=(*CHAT, known_limit),
        steps=lambda c: [Step(make.chat(c, prompt=long_prompt(c)), refused(400, types=("BadRequestError",), param=""))],
    ),
    Check(
        id="images.long-prompt",
        name="prompt that is too long on images",
        rule=RULE,
        source=f"{SOURCE}; case M26",
        needs=(*IMAGES, known_limit),
        steps=lambda c: [
            Step(
                make.images(c, prompt=long_prompt(c)),
                refused(400, types=("BadRequestError",), param="", accepted=ANY_LENGTH),
                generates=True,
            )
        ],
    ),
    Check(
        id="images.missing-field",
        name="image without a prompt",
        rule=RULE,
        source=SOURCE,
        needs=IMAGES,
        steps=lambda c: [Step(make.without(make.images(c), "prompt"), refused(400, param="prompt"))],
    ),
    Check(
        id="images.size",
        name="size that is no size",
        rule=RULE,
        source=SOURCE,
        needs=IMAGES,
        steps=lambda c: [
            Step(make.images(c, size=size), refused(400, param="size")) for size in ("banana", "64xbanana")
        ],
    ),
    Check(
        id="images.n",
        name="n out of range on images",
        rule=RULE,
        source=SOURCE,
        needs=IMAGES,
        steps=lambda c: [Step(make.images(c, n=n), refused(400, param="n")) for n in (0, 1_000)],
    ),
    Check(
        id="images.layers",
        name="layers 0 on images",
        rule=RULE,
        source=f"{SOURCE}; case M09",
        needs=IMAGES,
        steps=lambda c: [Step(make.images(c, layers=0), refused(400, param="layers"))],
    ),
    Check(
        id="speech.missing-field",
        name="speech without a text",
        rule=RULE,
        source=SOURCE,
        needs=(route("POST", make.SPEECH),),
        steps=lambda c: [Step(make.without(make.speech(c), "input"), refused(400, param="input"))],
    ),
    Check(
        id="speech.speed",
        name="speed that is no number",
        rule=RULE,
        source=SOURCE,
        needs=(route("POST", make.SPEECH),),
        steps=lambda c: [Step(make.speech(c, speed="banana"), refused(400, param="speed"))],
    ),
    Check(
        id="audio.missing-field",
        name="audio without a text",
        rule=RULE,
        source=SOURCE,
        needs=(route("POST", make.AUDIO),),
        steps=lambda c: [Step(make.without(make.audio(c), "input"), refused(400, param="input"))],
    ),
    Check(
        id="video.seconds",
        name="length of a video that is no number",
        rule=RULE,
        source=f"{SOURCE}; case M11",
        needs=(route("POST", make.VIDEOS_SYNC),),
        steps=lambda c: [
            Step(make.video(c, path=make.VIDEOS_SYNC, seconds=seconds), refused(400, param="seconds"))
            for seconds in ("abc", "9" * 400)
        ],
    ),
    Check(
        id="chat.response-format",
        name="response_format with a broken schema",
        rule=RULE,
        source=f"{SOURCE}; case M19",
        needs=CHAT,
        steps=lambda c: [
            Step(
                make.chat(
                    c,
                    response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nope"}}},
                ),
                refused(400, param="", accepted="the server does not read response_format"),
                generates=True,
            )
        ],
    ),
    Check(
        id="tokenize.chat-template",
        name="broken chat template",
        rule="What the client is answered is what http_requests_total counts, whatever was raised.",
        source="contract, section 4; case X01",
        needs=(route("POST", make.TOKENIZE),),
        steps=lambda c: [Step(make.tokenize_chat(c, chat_template="{% if %}"), refused(400))],
    ),
)
