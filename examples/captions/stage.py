# SPDX-License-Identifier: Apache-2.0
"""The stage: a process that captions texts, and fails as processes do."""

import msgspec
import zmq
from vllm.exceptions import VLLMValidationError

from vllm_omni_errors import OmniErrorDetails, encode
from vllm_omni_errors.stage import guard

STAGE_ID = 1
READY = b""

STYLES = {
    "loud": str.upper,
    "initials": lambda text: "".join(word[0] for word in text.split(" ")),  # a bug: two spaces are an IndexError
}


def caption(text: str, style: str) -> str:
    """A text in a style. Raises VLLMValidationError for a style that there is not."""
    if style not in STYLES:
        raise VLLMValidationError(f"style is one of {', '.join(STYLES)}.", parameter="style", value=style)
    return STYLES[style](text)


def serve(address: str) -> None:
    """Answer requests until the process is ended: ``{id, text, style}`` with ``{id, caption}`` or ``{id, error}``."""
    socket = zmq.Context().socket(zmq.PAIR)
    socket.connect(address)
    socket.send(READY)
    while True:
        request = msgspec.msgpack.decode(socket.recv())
        answer = {"id": request["id"]}

        def report(details: OmniErrorDetails, answer: dict[str, object] = answer) -> None:
            answer["error"] = encode(details)

        # Whatever is raised becomes a record here, once; its text and traceback stay in this process's log.
        with guard(report, request_id=request["id"], stage_id=STAGE_ID):
            answer["caption"] = caption(request["text"], request["style"])
        socket.send(msgspec.msgpack.encode(answer))
