# SPDX-License-Identifier: Apache-2.0
"""Failures inside the server, on the rig, where a word in the prompt causes them."""

from collections.abc import Callable

from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.check import Check, Danger, Need, Step, front, real_stages, rig, route
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
    needs: tuple[Need, ...] = NEEDS,
    call: Callable[[Context, str], Call] | None = None,
) -> Check:
    return Check(
        id=f"fault.{identifier}",
        name=name,
        rule=rule,
        source=source,
        needs=needs,
        steps=lambda c: [Step((call or faulty)(c, word), expect, generates=True)],
        danger=danger,
    )


def faulty(context: Context, word: str) -> Call:
    """A request for an image whose prompt holds `word`."""
    return make.images(context, prompt=f"{context.canaries.prompt} {word}")


def _spoilt(make_call: Callable[[Context, str], Call]) -> Callable[[Context, str], Call]:
    return lambda context, word: make_call(context, f"{context.canaries.prompt} {word}")


_CHAT = _spoilt(make.chat)
_SPEECH = _spoilt(make.speech)
_BATCH = _spoilt(lambda c, text: make.speech_batch(c, text, text))
_AUDIO = _spoilt(make.audio)
_VIDEO = _spoilt(lambda c, text: make.video(c, text, make.VIDEOS_SYNC))
_FRONT = (route("POST", make.IMAGES), front)


def _on(path: str) -> tuple[Need, ...]:
    return (route("POST", path), rig)


def _raised(identifier: str, name: str, kind: str, expect: Expect, rule: str = INTERNAL) -> Check:
    """What a route makes of an exception that is raised in the API process."""
    return _fault(identifier, name, f"FAULT:raise={kind}@front", expect, rule=rule, needs=_FRONT)


NO_VIDEO = refused(500, types=("InternalServerError",), accepted=NO_EFFECT, unserved=(503,))
OWN = "What a semantic exception says is what the client gets: status, type and whether to try again."
FAILED = refused(500, types=("InternalServerError",), accepted=NO_EFFECT)


def _killed(context: Context) -> list[Step]:
    gone = refused(500, 503, stage=True, accepted=NO_EFFECT)
    return [Step(faulty(context, "FAULT:kill"), gone), Step(make.images(context), gone)]


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
        needs=(*NEEDS, real_stages),
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
    _raised(
        "client-503",
        "a client error with a server's status",
        "OmniClientError503",
        FAILED,
        "A client error whose status is a server's contradicts itself: 500.",
    ),
    _raised(
        "not-found",
        "something not found",
        "VLLMNotFoundError",
        refused(404, types=("NotFoundError",), accepted=NO_EFFECT),
        OWN,
    ),
    _raised(
        "conflict",
        "a conflict",
        "OmniConflictError",
        refused(409, types=("ConflictError",), accepted=NO_EFFECT),
        OWN,
    ),
    _raised(
        "not-implemented",
        "something not implemented",
        "OmniNotImplementedError",
        refused(501, types=("NotImplementedError",), accepted=NO_EFFECT),
        OWN,
    ),
    _raised(
        "unavailable",
        "something unavailable",
        "OmniServiceUnavailableError",
        refused(503, types=("ServiceUnavailableError",), accepted=NO_EFFECT),
        OWN,
    ),
    _raised(
        "stage-timeout",
        "a deadline of a stage",
        "OmniStageTimeoutError",
        refused(504, types=("GatewayTimeoutError",), accepted=NO_EFFECT),
        OWN,
    ),
    _raised("raw-timeout", "an engine's own TimeoutError", "TimeoutError", FAILED),
    _fault("chat-value", "ValueError in a stage, on chat", "FAULT:value", FAILED, needs=_on(make.CHAT), call=_CHAT),
    _fault(
        "chat-guardrail",
        "a guardrail in a stage, on chat",
        CONFIRMING_WORD,
        refused(400, types=("GuardrailViolationError",), stage=True, accepted=NO_EFFECT),
        source=ACROSS,
        needs=_on(make.CHAT),
        call=_CHAT,
    ),
    _fault(
        "speech-value", "ValueError in a stage, on speech", "FAULT:value", FAILED, needs=_on(make.SPEECH), call=_SPEECH
    ),
    _fault(
        "speech-batch",
        "a batch of speech in which all fail",
        "FAULT:value",
        refused(400, 500, unserved=(503,)),
        rule="A batch in which every item fails has the status of the first.",
        needs=_on(make.SPEECH_BATCH),
        call=_BATCH,
    ),
    _fault(
        "audio-runtime",
        "RuntimeError in a stage, on audio",
        "FAULT:runtime",
        FAILED,
        needs=_on(make.AUDIO),
        call=_AUDIO,
    ),
    _fault(
        "video-value",
        "ValueError in a stage, on video",
        "FAULT:value",
        NO_VIDEO,
        needs=_on(make.VIDEOS_SYNC),
        call=_VIDEO,
    ),
    _fault(
        "video-timeout",
        "an engine's own TimeoutError, on video",
        "FAULT:raise=TimeoutError@front",
        NO_VIDEO,
        needs=(route("POST", make.VIDEOS_SYNC), front),
        call=_VIDEO,
    ),
    _fault(
        "input-processor",
        "ValueError between two stages",
        "FAULT:s1input",
        FAILED,
        rule="A failure of one request is that request's, also in what prepares a stage's input.",
        source="contract, section 9",
        danger=Danger.MAY_KILL,
    ),
    Check(
        id="fault.stage-killed",
        name="a stage's process that is killed",
        rule="A request whose stage dies is answered, with the stage, and so is the next one.",
        source="contract, section 9; cases L01, L05 and I11",
        needs=(*NEEDS, front, real_stages),
        steps=_killed,
        danger=Danger.KILLS,
    ),
)
