# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server on loopback that gives the server under test media that cannot be had.

`GET /<status>/...` answers with that status and no image.
"""

import asyncio
import socket
from types import TracebackType
from typing import Self

REQUEST_DEADLINE_S = 10.0


class MediaServer:
    """Runs in the probe's own event loop while the context is open."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self.port = 0
        self.requests = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server:
            self._server.close()

    def url(self, status: int, rest: str = "") -> str:
        """A URL whose answer has `status`."""
        return f"http://127.0.0.1:{self.port}/{status}/{rest}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        try:
            async with asyncio.timeout(REQUEST_DEADLINE_S):
                line = (await reader.readline()).decode("latin-1").split()
                while (await reader.readline()).strip():
                    pass
                status = int(line[1].split("/")[1]) if len(line) > 1 else 400
                writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
        except (TimeoutError, OSError, ValueError, IndexError):
            pass
        finally:
            writer.close()


def refusing_url(rest: str = "") -> str:
    """A loopback URL where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return f"http://127.0.0.1:{port}/{rest}"
