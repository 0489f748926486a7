# SPDX-License-Identifier: Apache-2.0
"""An ASGI application behind a real socket, in a thread of the test's process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

END_S = 10


@contextmanager
def serving_app(app: Any) -> Iterator[tuple[str, uvicorn.Server]]:
    """Its loopback URL and its server, until the block ends."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, interface="asgi3", log_level="critical", lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive(), "the application did not start"
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", server
    finally:
        server.should_exit = server.force_exit = True
        thread.join(END_S)
