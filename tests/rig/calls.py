# SPDX-License-Identifier: Apache-2.0
"""Requests that the tests of a real server send, by route."""

import base64
import io
from dataclasses import replace
from typing import Any

from PIL import Image
from support import Call, post

LONG = "a" * 400
"""More tokens than the rig's AR stage takes: a token is a byte, and its context holds 256."""

BROKEN_TEMPLATE = "{% no such tag"
RAISING_TEMPLATE = "{{ raise_exception('no') }}"
WRONG_SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nope"}}}


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
OTHER_TOOL = {"type": "function", "function": {"name": "g"}}


def png(side: int = 16) -> bytes:
    """A square image of that many pixels a side."""
    file = io.BytesIO()
    Image.new("RGB", (side, side), (200, 30, 30)).save(file, "PNG")
    return file.getvalue()


PNG = png()
TRUNCATED = PNG[: len(PNG) // 2]


def data_url(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def images(prompt: str, **more: Any) -> Call:
    return post("/v1/images/generations", {"prompt": prompt, "size": "64x64", **more})


def edits(prompt: str | None, *uploads: bytes, **fields: Any) -> Call:
    """A multipart request; ``uploads`` are files in the field ``image``; no prompt at all if it is None."""
    files = [("image", (f"upload-{number}.png", content, "image/png")) for number, content in enumerate(uploads)]
    sent = {"size": "64x64", **fields} if prompt is None else {"prompt": prompt, **fields}
    return Call("POST", "/v1/images/edits", form=sent, files=files)


def edits_with_mask(mask: bytes) -> Call:
    call = edits("x", PNG, size="64x64")
    return replace(call, files=[*call.files, ("mask_image", ("mask.png", mask, "image/png"))])


def chat(content: Any, **more: Any) -> Call:
    return post("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": content}], **more})


def batch(*prompts: Any, **more: Any) -> Call:
    """One conversation for each prompt."""
    conversations = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return post("/v1/chat/completions/batch", {"model": "tiny", "messages": conversations, **more})


def tokenize(**body: Any) -> Call:
    return post("/tokenize", {"model": "tiny", **body})


def tokenize_chat(content: Any, **more: Any) -> Call:
    return tokenize(messages=[{"role": "user", "content": content}], **more)


def detokenize(*tokens: int, model: str = "tiny") -> Call:
    return post("/detokenize", {"model": model, "tokens": list(tokens)})


def completions(**body: Any) -> Call:
    return post("/v1/completions", {"model": "tiny", **body})


def responses(**body: Any) -> Call:
    return post("/v1/responses", {"model": "tiny", **body})


def messages(content: str, **more: Any) -> Call:
    """Anthropic's route."""
    body = {"model": "tiny", "max_tokens": 2, "messages": [{"role": "user", "content": content}], **more}
    return post("/v1/messages", body)


def raw(path: str, content: bytes, kind: str = "application/json") -> Call:
    """A body as it is."""
    return Call("POST", path, content=content, headers={"content-type": kind})


def image_part(url: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": url}}]


def form(path: str, **fields: Any) -> Call:
    """A multipart request without files."""
    return Call("POST", path, form=fields)


def delete(path: str) -> Call:
    return Call("DELETE", path)
