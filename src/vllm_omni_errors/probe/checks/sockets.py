# SPDX-License-Identifier: Apache-2.0
"""WebSockets: whether a session is there, what a client can correct in it, and what ends it."""

from collections.abc import Sequence
from typing import Any

from vllm_omni_errors.probe.call import Talk, socket
from vllm_omni_errors.probe.check import Check, Need, Step, rig
from vllm_omni_errors.probe.checks.routing import UNKNOWN_MODEL
from vllm_omni_errors.probe.context import Context
from vllm_omni_errors.probe.rules import Expect, refused
from vllm_omni_errors.probe.sockets import Opens, Told

SPEECH = "/v1/audio/speech/stream"
VIDEO_CHAT = "/v1/video/chat/stream"
VIDEO = "/v1/realtime/video"
REALTIME = "/v1/realtime"
DUPLEX = "/v1/duplex"
ROBOT = "/v1/realtime/robot/openpi"

SOURCE = "RFC, section 3; contract, section 5"
OFFERED = "A session that this server cannot hold is refused before it is accepted, with the real HTTP status."
CORRECTED = "A mistake that the client can correct is answered, and the session goes on."
ENDED = "Any other error is one event and then a close with its code; nothing follows it."
UNAVAILABLE = refused(503, types=("ServiceUnavailableError",))

BAD = refused(400, types=("BadRequestError",))
INTERNAL = refused(500, types=("InternalServerError",))
GUARDRAIL = refused(400, types=("GuardrailViolationError",))
POLICY, FAILURE = 1008, 1011
CLIENTS_ID = "probe-event"


def _bad(param: str) -> Expect:
    return refused(400, types=("BadRequestError",), param=param)


def _session(path: str) -> Need:
    return lambda context: context.unserved.get(path)


def _talk(context: Context, path: str, sent: Sequence[Any], packed: bool, errors: int | None) -> Talk:
    filled = [_filled(message, context) for message in sent]
    return socket(path, *filled, packed=packed, errors=errors)


def _filled(message: Any, context: Context) -> Any:
    """A message in which `{model}` and `{prompt}` are the run's own."""
    if isinstance(message, dict):
        return {key: _filled(value, context) for key, value in message.items()}
    if isinstance(message, str):
        return message.replace("{model}", context.model).replace("{prompt}", context.canaries.prompt)
    return message


def _offered(identifier: str, name: str, path: str, query: str = "") -> Check:
    return Check(
        id=f"socket.{identifier}",
        name=name,
        rule=OFFERED,
        source=SOURCE,
        needs=(),
        steps=lambda c: [Step(socket(path, errors=0, query=query), Opens(UNAVAILABLE))],
        transport="websocket",
    )


def _mistake(
    identifier: str, name: str, path: str, sent: Sequence[Any], *errors: Expect,
    event_id: str | None = None, source: str = SOURCE, needs: tuple[Need, ...] = (), packed: bool = False,
) -> Check:  # fmt: skip
    return Check(
        id=f"socket.{identifier}",
        name=name,
        rule=CORRECTED,
        source=source,
        needs=(_session(path), *needs),
        steps=lambda c: [Step(_talk(c, path, sent, packed, len(errors)), Told(errors, event_id=event_id))],
        transport="websocket",
    )


def _end(
    identifier: str, name: str, path: str, sent: Sequence[Any], error: Expect, closes: int, packed: bool = False
) -> Check:
    return Check(
        id=f"socket.{identifier}",
        name=name,
        rule=ENDED,
        source=f"{SOURCE}; cases W04, W08 and W10",
        needs=(_session(path), rig),
        steps=lambda c: [Step(_talk(c, path, sent, packed, None), Told((error,), closes), generates=True)],
        transport="websocket",
    )


CONFIG = {"type": "session.config", "model": "{model}"}
START = {"type": "session.start", "model": "{model}"}
NO_MESSAGE = ("no JSON", b"\xff", "[]")
Z09 = f"{SOURCE}; case Z09"
W02 = f"{SOURCE}; case W02"


def _say(text: str) -> list[Any]:
    return [CONFIG, {"type": "input.text", "text": text}, {"type": "input.done"}]


CHECKS = (
    _offered("speech", "session of speech", SPEECH),
    _offered("video-chat", "session of questions about video", VIDEO_CHAT),
    _offered("video", "session of video", VIDEO),
    _offered("realtime", "realtime session", REALTIME),
    _offered("duplex", "duplex session", DUPLEX),
    _offered("robot", "session of a robot", ROBOT),
    _mistake("speech-frames", "frames that are no message, speech", SPEECH, NO_MESSAGE, BAD, BAD, BAD, source=Z09),
    _mistake("speech-type", "unknown message, speech", SPEECH, [{"type": "nope"}], _bad("type")),
    _mistake("speech-field", "field of a wrong type, speech", SPEECH, [CONFIG | {"speed": "fast"}], _bad("speed"),
             source=W02),
    _mistake("speech-guardrail", "a guardrail in a stage, session of speech", SPEECH, _say("{prompt} FAULT:guard"),
             GUARDRAIL, needs=(rig,)),
    _end("speech-value", "ValueError in a stage, session of speech", SPEECH, _say("{prompt} FAULT:value"), INTERNAL,
         FAILURE),
    _mistake("video-frames", "frames that are no message, video", VIDEO, NO_MESSAGE, BAD, BAD, BAD, source=Z09),
    _mistake("video-field", "no prompt, session of video", VIDEO, [START], _bad("prompt"), source=W02),
    _mistake("video-model", "unknown model, session of video", VIDEO,
             [START | {"prompt": "{prompt}", "model": UNKNOWN_MODEL}], refused(404, types=("NotFoundError",))),
    _end("video-value", "ValueError in a stage, session of video", VIDEO, [START | {"prompt": "{prompt} FAULT:value"}],
         INTERNAL, FAILURE),
    _end("video-guardrail", "a guardrail in a stage, session of video", VIDEO,
         [START | {"prompt": "{prompt} FAULT:guard"}], GUARDRAIL, POLICY),
    _mistake("video-chat-frames", "frames that are no message, questions", VIDEO_CHAT, NO_MESSAGE, BAD, BAD,
             _bad("type"), source=Z09),
    _mistake("video-chat-field", "field of a wrong type, questions", VIDEO_CHAT, [CONFIG | {"max_frames": "x"}],
             _bad("max_frames"), source=W02),
    _mistake("realtime-frames", "frames that are no event, realtime", REALTIME, ("no JSON", "[]", b"\xff"), BAD, BAD,
             BAD, source=Z09),
    _mistake("realtime-event", "unknown event, realtime", REALTIME,
             [{"type": "probe.nope", "event_id": CLIENTS_ID}], _bad("type"), event_id=CLIENTS_ID, source=W02),
    _mistake("realtime-model", "model of a wrong type, realtime", REALTIME,
             [{"type": "session.update", "model": ["x"]}], _bad("model"), source=W02),
    _mistake("robot-frames", "frames that are no payload, robot", ROBOT, [b"\xff", "text"], BAD, BAD, source=Z09,
             packed=True),
    _end("robot-value", "ValueError in a stage, robot", ROBOT, [{"prompt": "{prompt} FAULT:value"}], INTERNAL, FAILURE,
         packed=True),
)  # fmt: skip
