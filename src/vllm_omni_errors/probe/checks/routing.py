# SPDX-License-Identifier: Apache-2.0
"""Requests that reach no route, or no model."""

from collections.abc import Callable

from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.check import Check, Step, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import refused

SOURCE = "contract, section 4"
UNKNOWN_MODEL = "probe-no-such-model"
_POSTS = (make.IMAGES, make.CHAT, make.COMPLETIONS, make.TOKENIZE)


def _some_post(context: Context) -> str | None:
    return None if _wrong_method_path(context) else "the server has no route that takes POST alone"


def _wrong_method_path(context: Context) -> str | None:
    return next((p for p in _POSTS if ("POST", p) in context.routes and ("DELETE", p) not in context.routes), None)


def _unknown_model(
    identifier: str, path: str, name: str, call: Callable[[Context], Call], source: str = SOURCE
) -> Check:
    return Check(
        id=f"{identifier}.unknown-model",
        name=f"unknown model on {name}",
        rule="A model that is not served is not found: 404.",
        source=source,
        needs=(route("POST", path),),
        steps=lambda c: [Step(call(c), refused(404, types=("NotFoundError",)))],
    )


def _unknown(identifier: str, name: str, method: str, path: str, source: str) -> Check:
    return Check(
        id=identifier,
        name=name,
        rule="What does not exist is not found: 404.",
        source=source,
        needs=(route(method, path),),
        steps=lambda c: [
            Step(make.at(method, path, "probe-ghost"), refused(404, types=("NotFoundError",), unserved=(501, 503)))
        ],
    )


CHECKS = (
    Check(
        id="route.unknown",
        name="unknown route",
        rule="A route that does not exist is answered with the canonical object, and counted.",
        source="contract, sections 2 and 4",
        needs=(),
        steps=lambda c: [
            Step(Call("GET", f"/v1/probe-{c.canaries.file[:6]}"), refused(404, lenient=False, beyond=("envelope",)))
        ],
    ),
    Check(
        id="route.method",
        name="wrong method",
        rule="A method that a route does not have is answered with the canonical object, and keeps the Allow header.",
        source="contract, sections 1 and 2",
        needs=(_some_post,),
        steps=lambda c: [
            Step(
                Call("DELETE", _wrong_method_path(c) or ""),
                refused(405, header=("Allow", "POST"), lenient=False, beyond=("envelope",)),
            )
        ],
    ),
    _unknown_model("chat", make.CHAT, "chat", lambda c: make.chat(c, model=UNKNOWN_MODEL)),
    _unknown_model("completions", make.COMPLETIONS, "completions", lambda c: make.completion(c, model=UNKNOWN_MODEL)),
    _unknown_model("images", make.IMAGES, "images", lambda c: make.images(c, model=UNKNOWN_MODEL)),
    _unknown_model("edits", make.EDITS, "edits", lambda c: make.edits(c, model=UNKNOWN_MODEL)),
    _unknown_model(
        "speech", make.SPEECH, "speech", lambda c: make.speech(c, model=UNKNOWN_MODEL), f"{SOURCE}; case M01"
    ),
    _unknown_model("audio", make.AUDIO, "audio", lambda c: make.audio(c, model=UNKNOWN_MODEL)),
    _unknown_model(
        "video", make.VIDEOS_SYNC, "video", lambda c: make.video(c, path=make.VIDEOS_SYNC, model=UNKNOWN_MODEL)
    ),
    _unknown_model("tokenize", make.TOKENIZE, "tokenize", lambda c: make.tokenize(c, model=UNKNOWN_MODEL)),
    _unknown("voices.unknown", "delete a voice that is not there", "DELETE", make.VOICE, f"{SOURCE}; case M02"),
    _unknown("rollout.unknown", "state of no rollout session", "GET", make.SESSION_STATUS, SOURCE),
    _unknown("job.unknown", "job that is not there", "GET", make.VIDEO, "contract, section 6; case J07"),
    _unknown("job.unknown-content", "content of no job", "GET", make.VIDEO_CONTENT, "contract, section 6; case J07"),
    _unknown("job.unknown-delete", "delete a job that is not there", "DELETE", make.VIDEO, "contract, section 6"),
)
