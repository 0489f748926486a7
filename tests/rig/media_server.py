# SPDX-License-Identifier: Apache-2.0
"""A server of media on loopback; its URL holds credentials that no answer may show."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a server that answers so, and logs nothing, until the block ends."""
    silent = type("Silent", (handler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), silent)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://user:rig-password-4711@127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
