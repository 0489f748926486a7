# SPDX-License-Identifier: Apache-2.0
"""A server that has no handler for some routes (without_chat.py), and requests for them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from calls import batch, chat
from support import Call, post

from vllm_omni_rig import server as rig
from vllm_omni_rig.server import Server, start

SCRIPT = Path(__file__).with_name("without_chat.py")

CALLS: Mapping[str, Call] = {
    "chat": chat("hi"),
    "chat stream": chat("hi", stream=True),
    "chat batch": batch("hi"),
    "speech": post("/v1/audio/speech", {"model": "tiny", "input": "hi", "voice": "x"}),
    "speech batch": post("/v1/audio/speech/batch", {"model": "tiny", "items": [{"input": "hi"}]}),
    "audio": post("/v1/audio/generate", {"model": "tiny", "input": "hi"}),
}


@contextmanager
def running(tree: Path | None, log: Path, script: Path = SCRIPT) -> Iterator[Server]:
    """The server of that script, instead of the rig's own scripted one, while the block runs."""
    command = rig._command

    def with_script(*arguments: object) -> list[str]:
        words = command(*arguments)  # type: ignore[arg-type]
        module = words.index("-m")
        return [*words[:module], str(script), *words[module + 2 :]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig, "_command", with_script)
        server = start(scripted="multi", tree=tree, log=log)
    with server:
        yield server
