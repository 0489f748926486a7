# SPDX-License-Identifier: Apache-2.0
"""A server that speaks (speaking_server.py), and requests for it."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import unavailable
from support import Call, post

from vllm_omni_rig.server import Server, start

SCRIPT = Path(__file__).with_name("speaking_server.py")
VOICES = "voices"
"""The folder where the server stores them."""

MOST_VOICES = 2
"""How many it stores."""


@contextmanager
def running(kind: str, tree: Path | None, folder: Path) -> Iterator[Server]:
    """The server of that kind while the block runs; its voices and its log are in a folder.

    ``speakers`` speak in a pipeline of two stages; ``diffusion`` has one stage, as a diffusion-only server has.
    """
    environment = {"SPEAKER_SAMPLES_DIR": str(folder / VOICES), "SPEAKER_MAX_UPLOADED": str(MOST_VOICES)}
    log = folder / "server.log"
    if kind == "diffusion":
        with start(scripted="video", tree=tree, log=log, environment=environment) as server:
            yield server
    else:
        with unavailable.running(tree, log, SCRIPT, environment=environment) as server:
            yield server


def speech(text: str, **more: Any) -> Call:
    return post("/v1/audio/speech", {"model": "tiny", "input": text, "voice": "default", **more})


def events(text: str, **more: Any) -> Call:
    return speech(text, **{"stream_format": "sse", "response_format": "pcm", **more})


def raw_stream(text: str, **more: Any) -> Call:
    return speech(text, **{"stream_format": "audio", "response_format": "pcm", **more})


def batch(*texts: str, **more: Any) -> Call:
    """An item for each text."""
    items = [{"input": text} for text in texts]
    return post("/v1/audio/speech/batch", {"model": "tiny", "items": items, **more})


def generate(text: str, **more: Any) -> Call:
    return post("/v1/audio/generate", {"model": "tiny", "input": text, **more})


def wav(seconds: float, rate: int = 16_000) -> bytes:
    """A file of silence."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(int(seconds * rate), dtype=np.float32), rate, format="WAV")
    return file.getvalue()


def upload(name: str, content: bytes | None, kind: str = "audio/wav", **fields: Any) -> Call:
    """A voice's sample, or its embedding in a field if there is no content."""
    files = [] if content is None else [("audio_sample", ("sample.wav", content, kind))]
    return Call("POST", "/v1/audio/voices", form={"name": name, "consent": "yes", **fields}, files=files)
