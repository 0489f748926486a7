# SPDX-License-Identifier: Apache-2.0
"""Images that cannot be had: for good (422), or just now (500)."""

from vllm_omni_errors.probe.check import Check, Step, local, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.media import refusing_url
from vllm_omni_errors.probe.rules import Expect, refused

PERMANENT = "Media that is inaccessible for good, or does not decode, is unprocessable: 422 with the parameter."
TRANSIENT = "A fetch of media that may work the next time is a server error, 500, with one fixed sentence."
TRANSIENT_MESSAGE = "The media could not be fetched; try again."
SOURCE = "RFC, section 1; contract, section 4; case M15"
NEEDS = (route("POST", make.EDITS),)

GONE = refused(422, types=("UnprocessableEntityError",), param="")
LATER = refused(500, types=("InternalServerError",), message=TRANSIENT_MESSAGE)


def _fetched(context: Context, status: int, expect: Expect) -> list[Step]:
    url = context.media.url(status, f"image.png?token={context.canaries.query}")
    return [Step(make.edits(context, url=url), expect)]


CHECKS = (
    Check(
        id="edits.undecodable",
        name="uploaded image that does not decode",
        rule=PERMANENT,
        source=SOURCE,
        needs=NEEDS,
        steps=lambda c: [Step(make.edits(c, image=b"\x00\x01garbage"), GONE)],
    ),
    Check(
        id="edits.data-uri",
        name="data URI of garbage",
        rule=PERMANENT,
        source=f"{SOURCE}; case Z01",
        needs=NEEDS,
        steps=lambda c: [Step(make.edits(c, url=f"data:image/png;base64,{c.canaries.base64}"), GONE)],
    ),
    Check(
        id="edits.url-invalid",
        name="image URL that is none",
        rule=PERMANENT,
        source=SOURCE,
        needs=NEEDS,
        steps=lambda c: [Step(make.edits(c, url=f"no-url:/?token={c.canaries.query}"), GONE)],
    ),
    Check(
        id="edits.url-404",
        name="image URL that answers 404",
        rule=PERMANENT,
        source=SOURCE,
        needs=(*NEEDS, local),
        steps=lambda c: _fetched(c, 404, GONE),
    ),
    Check(
        id="edits.url-503",
        name="image URL that answers 503",
        rule=TRANSIENT,
        source=SOURCE,
        needs=(*NEEDS, local),
        steps=lambda c: _fetched(c, 503, LATER),
    ),
    Check(
        id="edits.url-refused",
        name="image URL that refuses the connection",
        rule=TRANSIENT,
        source=SOURCE,
        needs=(*NEEDS, local),
        steps=lambda c: [Step(make.edits(c, url=refusing_url(f"image.png?token={c.canaries.query}")), LATER)],
    ),
)
