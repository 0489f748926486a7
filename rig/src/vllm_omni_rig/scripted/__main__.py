# SPDX-License-Identifier: Apache-2.0
"""``python -m vllm_omni_rig.scripted KIND [arguments of vllm-omni serve]``: the server, started by the rig.

It runs vLLM-Omni's ``omni_run_server`` with one substitution: ``build_async_omni`` gives an ``AsyncOmni`` that has the
scripted engine.
"""

import argparse
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any

from vllm_omni_rig import notes
from vllm_omni_rig.scripted import KINDS

MAX_MODEL_LENGTH = 256
"""Tokens, as on the rig's real AR stage."""


def _input_processor(model: str) -> tuple[Any, Any]:
    """The configuration and the input processor of a real AR stage of this model."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.input_processor import InputProcessor

    from vllm_omni_rig.topology import LANGUAGE_MODEL

    config = EngineArgs(
        model=model,
        dtype="float32",
        max_model_len=MAX_MODEL_LENGTH,
        enforce_eager=True,
        hf_overrides={"architectures": [LANGUAGE_MODEL]},
    ).create_engine_config()
    return config, InputProcessor(vllm_config=config)


def _diffusion(model: str) -> Any:
    from vllm_omni_rig.scripted.engine import ScriptedEngine, Stage

    return ScriptedEngine([Stage(0, "diffusion", "image")])


def _video(model: str) -> Any:
    from vllm_omni_rig.scripted.engine import ScriptedEngine, Stage

    return ScriptedEngine([Stage(0, "diffusion", "video")])


def _multi(model: str) -> Any:
    from vllm_omni_rig.scripted.engine import ScriptedEngine, Stage

    stages = [Stage(0, "llm", "text", is_comprehension=True), Stage(1, "diffusion", "image")]
    return ScriptedEngine(stages, *_input_processor(model))


ENGINES: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {"diffusion": _diffusion, "video": _video, "multi": _multi}
)
assert ENGINES.keys() == KINDS.keys()


def run(kind: str, arguments: list[str]) -> None:
    """Serve until a signal comes."""
    import uvloop
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm_omni.entrypoints.cli.serve import _ensure_vllm_platform
    from vllm_omni.utils.tracking_parser import TrackingArgumentParser

    _ensure_vllm_platform()
    import vllm_omni.entrypoints.openai.api_server as api_server
    from vllm_omni.entrypoints.async_omni import AsyncOmni

    class ScriptedOmni(AsyncOmni):  # type: ignore[misc]
        def _create_engine(self, **_: Any) -> Any:
            return ENGINES[kind](self.model)

        async def get_supported_tasks(self) -> Any:
            return self.engine.supported_tasks

    @contextlib.asynccontextmanager
    async def build(args: argparse.Namespace, **_: Any) -> AsyncIterator[Any]:
        yield ScriptedOmni(model=args.model)

    notes.leave()
    api_server.build_async_omni = build
    uvloop.run(api_server.omni_run_server(make_arg_parser(TrackingArgumentParser()).parse_args(arguments)))


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
