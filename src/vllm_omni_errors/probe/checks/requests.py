# SPDX-License-Identifier: Apache-2.0
"""Ordinary requests, which the checks then spoil, and the shape of their ordinary answers."""

import re
import struct
import zlib
from dataclasses import replace
from typing import Any

from vllm_omni_errors.probe.answer import Answer
from vllm_omni_errors.probe.call import Call, File
from vllm_omni_errors.probe.context import Context

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
IMAGES = "/v1/images/generations"
EDITS = "/v1/images/edits"
TOKENIZE = "/tokenize"
MODELS = "/v1/models"
HEALTH = "/health"
SPEECH = "/v1/audio/speech"
SPEECH_BATCH = "/v1/audio/speech/batch"
AUDIO = "/v1/audio/generate"
VOICE = "/v1/audio/voices/{name}"
CHAT_BATCH = "/v1/chat/completions/batch"
VIDEOS = "/v1/videos"
VIDEOS_SYNC = "/v1/videos/sync"
VIDEO = "/v1/videos/{video_id}"
VIDEO_CONTENT = "/v1/videos/{video_id}/content"
SESSIONS = "/v1/realtime/sessions"
SESSION_STATUS = "/v1/realtime/sessions/{session_id}/status"
SESSION_STEP = "/v1/realtime/sessions/{session_id}/step"
SESSION_CLOSE = "/v1/realtime/sessions/{session_id}/close"

IMAGE_SIZE = "64x64"
IMAGE_PIXELS = 16


def png(pixels: int = IMAGE_PIXELS) -> bytes:
    """A square grey PNG."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = (b"\0" + b"\x80\x80\x80" * pixels) * pixels
    header = struct.pack(">IIBBBBB", pixels, pixels, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def _fields(defaults: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`defaults` with `changes`; a change to `None` takes the field away."""
    return {key: value for key, value in {**defaults, **changes}.items() if value is not None}


def chat(context: Context, prompt: str | None = None, **changes: Any) -> Call:
    message = {"role": "user", "content": context.canaries.prompt if prompt is None else prompt}
    return Call("POST", CHAT, json=_fields({"model": context.model, "messages": [message], "max_tokens": 4}, changes))


def completion(context: Context, **changes: Any) -> Call:
    defaults = {"model": context.model, "prompt": context.canaries.prompt, "max_tokens": 4}
    return Call("POST", COMPLETIONS, json=_fields(defaults, changes))


def images(context: Context, prompt: str | None = None, **changes: Any) -> Call:
    defaults = {
        "model": context.model,
        "prompt": context.canaries.prompt if prompt is None else prompt,
        "size": IMAGE_SIZE,
        "num_inference_steps": 2,
    }
    return Call("POST", IMAGES, json=_fields(defaults, changes))


def edits(context: Context, image: bytes | None = None, **fields: str) -> Call:
    """An edit of an uploaded image, or of the one at `url` when that field is given."""
    form = {"model": context.model, "prompt": context.canaries.prompt, "num_inference_steps": "2", **fields}
    name = f"{context.canaries.file}.png"
    uploads = () if "url" in fields else (File("image", name, png() if image is None else image),)
    return Call("POST", EDITS, form=form, files=uploads)


def stream(call: Call) -> Call:
    """The same request for a stream."""
    if call.json is not None:
        return replace(call, json={**call.json, "stream": True})
    return replace(call, form={**(call.form or {}), "stream": "true"})


def official(call: Call) -> Call:
    """The same request, sent by the official client."""
    return replace(call, official=True)


def responses(context: Context, **changes: Any) -> Call:
    defaults = {"model": context.model, "input": context.canaries.prompt, "max_output_tokens": 4, "store": False}
    return Call("POST", RESPONSES, json=_fields(defaults, changes))


def speech(context: Context, text: str | None = None, **changes: Any) -> Call:
    spoken = context.canaries.prompt if text is None else text
    return Call("POST", SPEECH, json=_fields({"model": context.model, "input": spoken, "voice": "default"}, changes))


def speech_batch(context: Context, *texts: str) -> Call:
    return Call("POST", SPEECH_BATCH, json={"model": context.model, "items": [{"input": text} for text in texts]})


def audio(context: Context, text: str | None = None, **changes: Any) -> Call:
    wanted = context.canaries.prompt if text is None else text
    return Call("POST", AUDIO, json=_fields({"model": context.model, "input": wanted}, changes))


def chat_batch(context: Context) -> Call:
    messages = [[{"role": "user", "content": context.canaries.prompt}]]
    return Call("POST", CHAT_BATCH, json={"model": context.model, "messages": messages, "max_tokens": 4})


def video(context: Context, prompt: str | None = None, path: str = VIDEOS, **fields: str) -> Call:
    wanted = context.canaries.prompt if prompt is None else prompt
    return Call("POST", path, form={"model": context.model, "prompt": wanted, "size": IMAGE_SIZE, **fields})


def at(method: str, route: str, name: str, **more: Any) -> Call:
    """A request to a route whose path has one part that is filled in."""
    return Call(method, re.sub(r"\{\w+\}", name, route), route=route, **more)


def tokenize(context: Context, **changes: Any) -> Call:
    defaults = {"model": context.model, "prompt": context.canaries.prompt}
    return Call("POST", TOKENIZE, json=_fields(defaults, changes))


def tokenize_chat(context: Context, **changes: Any) -> Call:
    messages = [{"role": "user", "content": context.canaries.prompt}]
    return Call("POST", TOKENIZE, json=_fields({"model": context.model, "messages": messages}, changes))


def without(call: Call, field: str) -> Call:
    """`call` without one field of its JSON body."""
    return replace(call, json={key: value for key, value in call.json.items() if key != field})


def raw(path: str, content: bytes, content_type: str = "application/json") -> Call:
    return Call("POST", path, content=content, headers={"Content-Type": content_type})


def any_answer(answer: Answer) -> str | None:
    return None


def lists_models(answer: Answer) -> str | None:
    body = answer.json()
    data = body.get("data") if isinstance(body, dict) else None
    return None if isinstance(data, list) else "a list of models was expected"


def has_choices(answer: Answer) -> str | None:
    body = answer.json()
    choices = body.get("choices") if isinstance(body, dict) else None
    return None if isinstance(choices, list) and choices else "an answer with choices was expected"


def has_images(answer: Answer) -> str | None:
    body = answer.json()
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list):
        return "an answer with images was expected"
    if not data:
        return "a success without any image"
    if not all(isinstance(item, dict) and (item.get("b64_json") or item.get("url")) for item in data):
        return "an image without content"
    return None


def has_tokens(answer: Answer) -> str | None:
    body = answer.json()
    tokens = body.get("tokens") if isinstance(body, dict) else None
    return None if isinstance(tokens, list) and tokens else "an answer with tokens was expected"
