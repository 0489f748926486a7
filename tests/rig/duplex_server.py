# SPDX-License-Identifier: Apache-2.0
"""``python duplex_server.py KIND [arguments]``: the rig's scripted server, with vLLM-Omni's handler of duplex sessions.

No model of the rig is duplex, so what stands behind the handler does what the session's model, or a command, asks for.
"""

import sys
from types import SimpleNamespace
from typing import Any

from vllm_omni.engine.duplex.events import ErrorEvent, SessionCreated
from vllm_omni.engine.duplex.messages import DuplexSessionError
from vllm_omni.entrypoints.duplex.serving import OmniDuplexSessionHandler
from vllm_omni.entrypoints.duplex_omni import DuplexSessionHandle
from vllm_omni.entrypoints.openai import api_server

from vllm_omni_rig.failures import CANARIES
from vllm_omni_rig.scripted.__main__ import run

LEAK = " ".join(CANARIES.values())
BREAKING = "breaking"
"""An event with this id is answered by one that cannot be sent."""

REFUSALS = {
    "full": DuplexSessionError("All sessions are taken.", code="resource_exhausted"),
    "dead": DuplexSessionError(LEAK, code="engine_dead"),
    "wrong": TypeError(LEAK),
    "broken": RuntimeError(LEAK),
}
"""Model of a session → what opening it raises."""


class Sessions:
    """Stands for `DuplexOmni`: it opens sessions that answer every command with the error of an engine."""

    duplex_session_config = SimpleNamespace(resume_replay_ttl_s=60.0, resume_replay_max_bytes_per_session=1 << 20)

    def __init__(self) -> None:
        self.engine = self
        self.opened: dict[str, DuplexSessionHandle] = {}

    async def open_session(self, payload: Any) -> DuplexSessionHandle:
        if refusal := REFUSALS.get(str(payload.get("model"))):
            raise refusal
        session = DuplexSessionHandle(self, f"sess-{len(self.opened)}")  # type: ignore[arg-type]
        self.opened[session.session_id] = session
        session._outbox.put_nowait(SessionCreated(session_id=session.session_id))
        return session

    def get_session(self, session_id: str) -> None:
        """None of them can be resumed."""

    async def submit_command_async(self, session_id: str, command: Any) -> None:
        if command.event_id == BREAKING:
            self.opened[session_id]._outbox.put_nowait(object())  # type: ignore[arg-type]
            return
        error = ErrorEvent(code="runtime_append_failed", message=LEAK, related_event_id=command.event_id)
        self.opened[session_id]._outbox.put_nowait(error)

    async def close_session(self, *arguments: Any, **options: Any) -> None:
        """Nothing to close."""


if __name__ == "__main__":
    init_app_state = api_server.omni_init_app_state

    async def init_with_duplex(engine: Any, state: Any, arguments: Any) -> None:
        await init_app_state(engine, state, arguments)
        state.openai_serving_duplex = OmniDuplexSessionHandler(duplex_omni=Sessions())  # type: ignore[arg-type]

    api_server.omni_init_app_state = init_with_duplex
    run(sys.argv[1], sys.argv[2:])
