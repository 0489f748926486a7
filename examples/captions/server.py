# SPDX-License-Identifier: Apache-2.0
"""The API process: takes requests, hands them to the stage, and answers with what it says.

python examples/captions/server.py 8000
"""

import asyncio
import multiprocessing
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import stage
import uvicorn
import zmq
import zmq.asyncio
from fastapi import FastAPI
from pydantic import BaseModel

from vllm_omni_errors import OmniEngineDeadError, OmniServiceUnavailableError, decode, install, to_exception
from vllm_omni_errors.stage import deadline

DEADLINE_S = 3.0


class Stage:
    """The stage's process, as the API process sees it."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the process, read what it answers, and end it."""
        address = f"ipc://{tempfile.mkdtemp()}/stage"
        self._process = multiprocessing.Process(target=stage.serve, args=(address,), daemon=True)
        self._process.start()
        self._socket = zmq.asyncio.Context().socket(zmq.PAIR)
        self._socket.bind(address)
        await self._socket.recv()
        reading = asyncio.create_task(self._read())
        asyncio.get_running_loop().add_reader(self._process.sentinel, self._died)
        try:
            yield
        finally:
            reading.cancel()
            self._socket.close(linger=0)
            self._process.kill()  # SIGTERM would only call the handler of the server that it was forked from

    async def ask(self, **request: str) -> str:
        """The stage's caption. Raises what the stage raised, and what keeps it from answering."""
        if not self._process.is_alive():
            raise OmniServiceUnavailableError("The stage is not running.", stage_id=stage.STAGE_ID)
        request_id = uuid.uuid4().hex
        answer = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        try:
            async with deadline(DEADLINE_S, stage_id=stage.STAGE_ID):
                await self._socket.send(msgspec.msgpack.encode({"id": request_id, **request}))
                found = await answer
        finally:
            del self._waiting[request_id]
        if "error" in found:
            raise to_exception(decode(found["error"]))
        return str(found["caption"])

    async def _read(self) -> None:
        while True:
            answer = msgspec.msgpack.decode(await self._socket.recv())
            waiting = self._waiting.get(answer["id"])
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def _died(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(OmniEngineDeadError(stage_id=stage.STAGE_ID))


captions = Stage()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with captions.running():
        yield


class Request(BaseModel):
    text: str
    style: str = "loud"


app = FastAPI(lifespan=lifespan)


@app.post("/v1/captions")
async def create(request: Request) -> dict[str, str]:
    return {"caption": await captions.ask(text=request.text, style=request.style)}


install(app)  # last: every error above, and every wrong request, is the contract's from here on

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]))
