# SPDX-License-Identifier: Apache-2.0
"""A small tree of our own, with a route, a socket, an engine and what they raise; and a ledger for it."""

from datetime import date

TODAY = date(2026, 3, 1)

API_SERVER = """
    from fastapi import APIRouter, HTTPException, WebSocket
    from vllm_omni.entrypoints.helpers import parse_size, convert
    from vllm_omni.entrypoints.serving import Serving

    router = APIRouter()


    def serving(request) -> Serving | None:
        return request.app.state.serving


    @router.post("/v1/images")
    async def create_image(request):
        handler = serving(request)
        if handler is None:
            return handler.create_error_response("no handler here at all")
        try:
            size = parse_size(request.size)
            image = await handler.generate(size)
            return convert(image)
        except ValueError as e:
            raise HTTPException(status_code=400, detail=str(e)) from e


    @router.websocket("/v1/socket")
    async def talk(websocket: WebSocket):
        try:
            parse_size(await websocket.receive_text())
        except Exception as e:
            await websocket.send_json({"type": "error", "message": str(e)})
"""
HELPERS = """
    def parse_size(text):
        if "x" not in text:
            raise ValueError(f"size must look like WIDTHxHEIGHT, not {text!r}")
        return text


    def convert(image):
        if image is None:
            raise RuntimeError("there is no image to convert")
        return image
"""
SERVING = """
    from vllm_omni.engine.orchestrator import Orchestrator


    class Serving:
        def __init__(self, orchestrator: Orchestrator):
            self.orchestrator = orchestrator

        async def generate(self, size):
            if size is None:
                raise TypeError("size is missing from the request")
            return await self.orchestrator.submit(size)
"""
ORCHESTRATOR = """
    class Orchestrator:
        async def submit(self, size):
            if not self.stages:
                raise RuntimeError("no stage is there to run the request")
            return size
"""
KERNEL = """
    def fuse(width):
        if width % 8:
            raise ValueError(f"width {width} does not fit the kernel")
"""
FILES: dict[str, str] = {
    "__init__.py": "",
    "entrypoints/__init__.py": "",
    "entrypoints/api_server.py": API_SERVER,
    "entrypoints/helpers.py": HELPERS,
    "entrypoints/serving.py": SERVING,
    "engine/orchestrator.py": ORCHESTRATOR,
    "quantization/kernel.py": KERNEL,
}
LEDGER = """
    format = 1
    package = "vllm_omni"
    version = "unknown"

    [[rule]]
    name = "kernels"
    paths = ["quantization/*"]
    decision = "internal"
    reason = "Shapes are a product of the server."
    reviewed = 2026-01-01
    sites = 1
"""
