# SPDX-License-Identifier: Apache-2.0
"""Sending one request and bringing back whatever happened: an answer, or how it failed to come."""

import asyncio
import base64
import ipaddress
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import httpx
from aiolimiter import AsyncLimiter

from vllm_omni_errors.probe import official, sockets
from vllm_omni_errors.probe.answer import Answer, Failure
from vllm_omni_errors.probe.call import HIDDEN, Call, Talk, bounded, curl, shown_body
from vllm_omni_errors.probe.canaries import SECRET_LENGTH_MINIMUM
from vllm_omni_errors.probe.record import Evidence, Finding, ProbeError

BODY_READ_BYTES = 64 * 1024 * 1024
BODY_SHOWN_CHARACTERS = 4_000
HEADER_SHOWN_CHARACTERS = 300
HEADERS_SHOWN = 30


class Client:
    """One server. Each request has a connection of its own: a kept one that the server closes would be a false alarm.

    Raises `ProbeError` for a URL that is not HTTP. `headers` go with every request and are never shown. No more than
    `requests_per_second` are sent in any second.
    """

    def __init__(self, url: str, headers: Mapping[str, str], requests_per_second: float = 1_000) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ProbeError(f"{url!r} is not a URL: {error}.") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProbeError(f"{url!r} is not an HTTP URL; give one such as http://127.0.0.1:8000.")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        netloc = host if port is None else f"{host}:{port}"
        self.prefix = parts.path.rstrip("/")
        self.root = urlunsplit((parts.scheme, netloc, self.prefix, "", ""))
        self.is_local = _is_loopback(parts.hostname)
        self._headers = dict(headers)
        self._limit = AsyncLimiter(requests_per_second, 1)
        self._credentials = (parts.username, parts.password or "") if parts.username else None
        self._http = httpx.AsyncClient(
            auth=self._credentials,
            headers=self._headers,
            limits=httpx.Limits(max_keepalive_connections=0),
            timeout=None,
            trust_env=not self.is_local,
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, traceback)

    async def send(self, call: Call, deadline_s: float) -> Answer:
        """Send `call` and wait at most `deadline_s` for the whole answer. Raises nothing that the server causes."""
        await self._limit.acquire()
        if isinstance(call, Talk):
            return await sockets.converse(self.root, call, self.every_header, deadline_s, proxied=not self.is_local)
        if call.official:
            return await official.ask(self.root, call, self.every_header, deadline_s, proxied=not self.is_local)
        return await self._request(call, deadline_s)

    @property
    def every_header(self) -> dict[str, str]:
        """The user's headers, and the credentials of the URL as one."""
        if self._credentials is None:
            return self._headers
        encoded = base64.b64encode(":".join(self._credentials).encode()).decode()
        return {"Authorization": f"Basic {encoded}"} | self._headers

    async def _request(self, call: Call, deadline_s: float) -> Answer:
        began = time.monotonic()

        def failed(failure: Failure, problem: str) -> Answer:
            return Answer(call, time.monotonic() - began, failure=failure, problem=problem)

        try:
            async with asyncio.timeout(deadline_s):
                request = self._http.build_request(call.method, self.root + call.target, **call.arguments())
                response = await self._http.send(request, stream=True)
                try:
                    body = bytearray()
                    async for chunk in response.aiter_bytes():
                        body += chunk
                        if len(body) > BODY_READ_BYTES:
                            return failed("invalid", f"the body is longer than {BODY_READ_BYTES:,} bytes")
                finally:
                    await response.aclose()
        except TimeoutError:
            return failed("timeout", f"no answer within {deadline_s:g} s")
        except httpx.ConnectError as error:
            return failed("refused", f"no connection: {error}")
        except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
            return failed("dropped", f"the connection ended without a whole answer: {error or type(error).__name__}")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return failed("invalid", f"the answer is not HTTP: {error}")
        return Answer(call, time.monotonic() - began, response.status_code, response.headers, bytes(body))

    def evidence(
        self, answer: Answer, expected: str = "", counted: str | None = None, findings: tuple[Finding, ...] = ()
    ) -> Evidence:
        """What may be written into a report about `answer`: bounded, and without the headers that the user gave."""
        call = answer.call
        shown = {**dict.fromkeys(self._headers, HIDDEN), **call.headers}
        request = {
            "method": call.method,
            "path": call.target,
            "headers": shown,
            "body": self._scrubbed(shown_body(call)),
            "curl": self._scrubbed(curl(call, self.root, self._headers)),
        }
        response: dict[str, Any] | None = None
        if answer.status is not None:
            headers = list(answer.headers.items())[:HEADERS_SHOWN]
            response = {
                "status": answer.status,
                "headers": {name: self._scrubbed(bounded(value, HEADER_SHOWN_CHARACTERS)) for name, value in headers},
                "body": self._scrubbed(bounded(answer.shown, BODY_SHOWN_CHARACTERS)),
            }
        return Evidence(request, response, round(answer.seconds, 3), answer.problem, expected, counted, findings)

    def _scrubbed(self, text: str) -> str:
        """`text` without the values of the user's headers, should the server have sent them back."""
        for value in self.secrets:
            text = text.replace(value, HIDDEN)
        return text

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of the user's headers, and the credentials in them after a scheme such as `Bearer`."""
        values = self._headers.values()
        texts = {text for value in values for text in (value, (value.split() or [""])[-1])}
        return tuple(sorted((t for t in texts if len(t) >= SECRET_LENGTH_MINIMUM), key=len, reverse=True))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
