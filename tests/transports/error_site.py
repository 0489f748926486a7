# SPDX-License-Identifier: Apache-2.0
"""Applications under test, with routes that raise whatever a test tells them to."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

from fastapi import FastAPI, Request, WebSocket
from prometheus_client import REGISTRY
from starlette.testclient import TestClient


class Site:
    """An application, and what its routes ``/raise`` and ``/socket`` do next."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.failure: Callable[[], BaseException] = lambda: RuntimeError("nothing to raise")
        self.client = TestClient(app, raise_server_exceptions=False)
        app.add_api_route("/raise", self._raise, methods=["GET", "POST"])
        app.add_api_websocket_route("/socket", self._socket)

    async def _raise(self, request: Request) -> None:
        if accepted := request.query_params.get("accepted"):
            request.state.request_metadata = SimpleNamespace(request_id=accepted)
        raise self.failure()

    async def _socket(self, websocket: WebSocket) -> None:
        if websocket.query_params.get("accept"):
            await websocket.accept()
        raise self.failure()

    @staticmethod
    def counted(handler: str = "/raise") -> Counter[str]:
        """``http_requests_total`` of a route, by class of status."""
        found: Counter[str] = Counter()
        for metric in REGISTRY.collect():
            for sample in metric.samples:
                if sample.name == "http_requests_total" and sample.labels["handler"] == handler:
                    found[sample.labels["status"]] += int(sample.value)
        return found


def build_upstream() -> FastAPI:
    """vLLM's application, as its server builds it before any error handling of ours."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.entrypoints.openai.api_server import build_app
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", "tiny", "--enable-request-id-headers"])
    return build_app(arguments, ("generate",))
