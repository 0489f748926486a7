# SPDX-License-Identifier: Apache-2.0
"""`Omni` or `AsyncOmni` in a process of its own: runs batches of prompts, and writes down what came of each.

    python offline_program.py FORM MODEL DEPLOYMENT RESULTS < batches

FORM is `list`, `generator` or `async`; each line of the input is a JSON list of prompts, and the file RESULTS gets a
line of JSON for each.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any, TextIO


def described(exc: BaseException) -> dict[str, Any]:
    """What a caller can see of an exception."""
    details = getattr(exc, "details", None)
    return {
        "class": type(exc).__name__,
        "bases": [base.__name__ for base in type(exc).__mro__],
        "text": str(exc),
        "notes": getattr(exc, "__notes__", []),
        "parameter": getattr(exc, "parameter", None),
        "stage_id": getattr(exc, "stage_id", None),
        "details": None if details is None else {name: getattr(details, name) for name in type(details).__slots__},
        "failures": {place: type(each).__name__ for place, each in getattr(exc, "failures", {}).items()},
        "outputs": None if (outputs := getattr(exc, "outputs", None)) is None else len(outputs),
    }


def run(prompts: list[str], generate: Callable[[list[str]], Any]) -> dict[str, Any]:
    outputs = 0
    try:
        for output in generate(prompts):
            outputs += bool(output.images)
    except Exception as exc:
        return {"outputs": outputs, "error": described(exc)}
    return {"outputs": outputs, "error": None}


async def run_concurrently(omni: Any, prompts: list[str]) -> dict[str, Any]:
    """Each prompt a request of its own, all without an id."""

    async def one(prompt: str) -> dict[str, Any]:
        images = 0
        try:
            async for output in omni.generate(prompt=prompt, request_id=""):
                images += bool(output.images)
        except Exception as exc:
            return {"outputs": images, "error": described(exc)}
        return {"outputs": images, "error": None}

    return {"requests": await asyncio.gather(*(one(prompt) for prompt in prompts))}


async def asynchronously(arguments: dict[str, str], results: TextIO) -> None:
    from vllm_omni.entrypoints.async_omni import AsyncOmni

    omni = AsyncOmni(**arguments)
    for line in await asyncio.to_thread(sys.stdin.readlines):
        print(json.dumps(await run_concurrently(omni, json.loads(line))), file=results)
    omni.shutdown()


def synchronously(form: str, arguments: dict[str, str], results: TextIO) -> None:
    from vllm_omni.entrypoints.omni import Omni

    omni = Omni(**arguments)

    def generate(prompts: list[str]) -> Any:
        return omni.generate(prompts, py_generator=form == "generator", use_tqdm=False)

    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), generate)), file=results)
    omni.close()


def main() -> None:
    from vllm.plugins import load_general_plugins

    form, model, deployment, file = sys.argv[1:]
    arguments = {"model": model, "deploy_config": deployment}
    load_general_plugins()  # the rig's pipelines
    with open(file, "w", buffering=1) as results:
        if form == "async":
            asyncio.run(asynchronously(arguments, results))
        else:
            synchronously(form, arguments, results)


if __name__ == "__main__":  # a spawned stage imports this module
    main()
