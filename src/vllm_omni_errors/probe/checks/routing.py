# SPDX-License-Identifier: Apache-2.0
"""Requests that reach no route, or no model."""

from collections.abc import Callable

from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.check import Check, Step, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import refused

UNKNOWN_MODEL = "probe-no-such-model"
_POSTS = (make.IMAGES, make.CHAT, make.COMPLETIONS, make.TOKENIZE)


def _some_post(context: Context) -> str | None:
    return None if _wrong_method_path(context) else "the server has no route that takes POST alone"


def _wrong_method_path(context: Context) -> str | None:
    return next((p for p in _POSTS if ("POST", p) in context.routes and ("DELETE", p) not in context.routes), None)


def _unknown_model(
    identifier: str, path: str, name: str, call: Callable[[Context], Call], source: str = "contract, section 4"
) -> Check:
    return Check(
        id=f"{identifier}.unknown-model",
        name=f"unknown model on {name}",
        rule="A model that is not served is not found: 404.",
        source=source,
        needs=(route("POST", path),),
        steps=lambda c: [Step(call(c), refused(404, types=("NotFoundError",)))],
    )


CHECKS = (
    Check(
        id="route.unknown",
        name="unknown route",
        rule="A route that does not exist is answered with the canonical object, and counted.",
        source="contract, sections 2 and 4",
        needs=(),
        steps=lambda c: [Step(Call("GET", f"/v1/probe-{c.canaries.file[:6]}"), refused(404))],
    ),
    Check(
        id="route.method",
        name="wrong method",
        rule="A method that a route does not have is answered with the canonical object, and keeps the Allow header.",
        source="contract, sections 1 and 2",
        needs=(_some_post,),
        steps=lambda c: [Step(Call("DELETE", _wrong_method_path(c) or ""), refused(405, header=("Allow", "POST")))],
    ),
    _unknown_model("chat", make.CHAT, "chat", lambda c: make.chat(c, model=UNKNOWN_MODEL)),
    _unknown_model("completions", make.COMPLETIONS, "completions", lambda c: make.completion(c, model=UNKNOWN_MODEL)),
    _unknown_model("images", make.IMAGES, "images", lambda c: make.images(c, model=UNKNOWN_MODEL)),
    _unknown_model("edits", make.EDITS, "edits", lambda c: make.edits(c, model=UNKNOWN_MODEL)),
    _unknown_model("tokenize", make.TOKENIZE, "tokenize", lambda c: make.tokenize(c, model=UNKNOWN_MODEL)),
)
