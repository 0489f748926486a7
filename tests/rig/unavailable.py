# SPDX-License-Identifier: Apache-2.0
"""A server that has no handler for some routes (without_chat.py), and requests for them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest
from calls import batch, chat, delete, form, images
from support import Call, get, post

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
    "voices": get("/v1/audio/voices"),
    "voice upload": form("/v1/audio/voices", name="x", consent="y", speaker_embedding="[1.0]"),
    "voice deletion": delete("/v1/audio/voices/x"),
    "images": images("hi"),
}
"""Routes without what they need."""

NOT_IMPLEMENTED: Mapping[str, Call] = {
    "sleep": post("/v1/omni/sleep", {"stage_ids": [0]}),
    "wake-up": post("/v1/omni/wakeup", {"stage_ids": [0]}),
}
"""Operations that the engine does not have."""


@contextmanager
def running(
    tree: Path | None,
    log: Path,
    script: Path = SCRIPT,
    kind: str = "multi",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Server]:
    """The server of that script, instead of the rig's own scripted one of that kind, while the block runs."""
    command = rig._command

    def with_script(*arguments: object) -> list[str]:
        words = command(*arguments)  # type: ignore[arg-type]
        module = words.index("-m")
        return [*words[:module], str(script), *words[module + 2 :]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig, "_command", with_script)
        server = start(scripted=kind, tree=tree, log=log, environment=environment)
    with server:
        yield server
