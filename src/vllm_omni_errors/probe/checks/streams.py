# SPDX-License-Identifier: Apache-2.0
"""Streams: whole ones, and ones that fail before or after their first event."""

from collections.abc import Callable, Generator

from vllm_omni_errors.probe.answer import Answer
from vllm_omni_errors.probe.call import Call
from vllm_omni_errors.probe.check import Check, Need, Step, known_limit, rig, route
from vllm_omni_errors.probe.checks import requests as make
from vllm_omni_errors.probe.checks.faults import NO_EFFECT
from vllm_omni_errors.probe.checks.fields import long_prompt
from vllm_omni_errors.probe.checks.routing import UNKNOWN_MODEL
from vllm_omni_errors.probe.checks.success import UNDECIDED, UNSERVED
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import Expectation, refused
from vllm_omni_errors.probe.streams import Fails, Responds, Whole

WHOLE = "A stream that succeeds ends in its mark, and tells no error."
EARLY = "What fails before the first event of a stream is an ordinary HTTP error."
SOURCE = "RFC, section 3; contract, section 5"
CHAT = (route("POST", make.CHAT),)
COMPLETIONS = (route("POST", make.COMPLETIONS),)
EDITS = (route("POST", make.EDITS),)
RESPONSES = (route("POST", make.RESPONSES),)
SPEECH = (route("POST", make.SPEECH),)
INTERNAL = refused(500, types=("InternalServerError",), accepted=NO_EFFECT)
NOT_EMPTY = refused(500, types=("InternalServerError",))
GUARDRAIL = refused(400, types=("GuardrailViolationError",), accepted=NO_EFFECT)


def _stream(
    identifier: str,
    name: str,
    needs: tuple[Need, ...],
    call: Callable[[Context], Call],
    expect: Expectation,
    *,
    rule: str = EARLY,
    source: str = SOURCE,
    plain: Callable[[Context], Call] | None = None,
) -> Check:
    """`plain` is an ordinary request for such a stream: a server that refuses it has none."""

    def steps(context: Context) -> Generator[Step, Answer, None]:
        if plain is not None:
            answer = yield Step(plain(context), Whole(unserved=frozenset({400, *UNDECIDED})), generates=True)
            if answer.status != 200:
                return
        yield Step(call(context), expect, generates=True)

    return Check(
        id=f"stream.{identifier}",
        name=name,
        rule=rule,
        source=source,
        needs=needs,
        steps=steps,
        transport="sse",
    )


def _chat(context: Context, word: str) -> Call:
    return make.stream(make.chat(context, f"{context.canaries.prompt} {word}"))


def _edits(context: Context, word: str) -> Call:
    return make.stream(make.edits(context, prompt=f"{context.canaries.prompt} {word}"))


def _speech(context: Context, word: str, form: str = "sse") -> Call:
    text = f"{context.canaries.prompt} {word}"
    return make.speech(context, text, stream_format=form, response_format="pcm", stream=True)


def _plain_edits(context: Context) -> Call:
    return make.stream(make.edits(context))


CHECKS = (
    _stream(
        "chat", "stream of chat", CHAT, lambda c: make.stream(make.chat(c)),
        Whole(unserved=frozenset(UNSERVED)), rule=WHOLE,
    ),
    _stream(
        "completions", "stream of a completion", COMPLETIONS, lambda c: make.stream(make.completion(c)),
        Whole(unserved=frozenset(UNDECIDED)), rule=WHOLE, source=f"{SOURCE}; cases S05 and S07",
    ),
    _stream(
        "responses", "stream of a response", RESPONSES, lambda c: make.stream(make.responses(c)), Responds(),
        rule="A response that fails ends its stream with response.failed, and says why.", source=f"{SOURCE}; case S11",
    ),
    _stream(
        "chat-unknown-model", "unknown model on a stream of chat", CHAT,
        lambda c: make.stream(make.chat(c, model=UNKNOWN_MODEL)), Fails(refused(404, types=("NotFoundError",))),
    ),
    _stream(
        "chat-missing-field", "stream of chat without messages", CHAT,
        lambda c: make.stream(make.chat(c, messages=None)), Fails(refused(400, param="messages", lenient=False)),
    ),
    _stream(
        "chat-long-prompt", "prompt that is too long, streamed", (*CHAT, known_limit),
        lambda c: make.stream(make.chat(c, prompt=long_prompt(c))),
        Fails(refused(400, types=("BadRequestError",), param="")), source=f"{SOURCE}; case S01",
    ),
    _stream(
        "completions-temperature", "temperature -3 on a streamed completion", COMPLETIONS,
        lambda c: make.stream(make.completion(c, temperature=-3)), Fails(refused(400, param="temperature")),
    ),
    _stream("chat-value", "ValueError in a stage, streamed chat", (*CHAT, rig), lambda c: _chat(c, "FAULT:value"),
            Fails(INTERNAL), source=f"{SOURCE}; case S01"),
    _stream("chat-guardrail", "a guardrail in a stage, streamed chat", (*CHAT, rig), lambda c: _chat(c, "FAULT:guard"),
            Fails(GUARDRAIL)),
    _stream("chat-no-image", "a streamed chat that gives nothing", (*CHAT, rig),
            lambda c: _chat(c, "FAULT:output=none"), Fails(NOT_EMPTY), source=f"{SOURCE}; case S07"),
    _stream("edits-value", "ValueError in a stage, streamed edit", (*EDITS, rig), lambda c: _edits(c, "FAULT:value"),
            Fails(INTERNAL), plain=_plain_edits),
    _stream("edits-guardrail", "a guardrail in a stage, streamed edit", (*EDITS, rig),
            lambda c: _edits(c, "FAULT:guard"), Fails(GUARDRAIL), plain=_plain_edits),
    _stream("speech-value", "ValueError in a stage, streamed speech", (*SPEECH, rig),
            lambda c: _speech(c, "FAULT:value"), Fails(INTERNAL, done=False)),
    _stream("speech-guardrail", "a guardrail in a stage, streamed speech", (*SPEECH, rig),
            lambda c: _speech(c, "FAULT:guard"), Fails(GUARDRAIL, done=False)),
    _stream("audio-value", "ValueError in a stage, raw audio", (*SPEECH, rig),
            lambda c: _speech(c, "FAULT:value", "audio"), Fails(INTERNAL, done=False), source=f"{SOURCE}; case S09"),
)  # fmt: skip
