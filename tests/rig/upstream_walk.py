# SPDX-License-Identifier: Apache-2.0
"""Runs beside one vLLM tree, first on ``PYTHONPATH``: what it and the catalogue make of every exception it defines.

Prints one JSON object: ``{"defined": [name, …], "walked": [[name, ours, theirs, survives], …], "raw": [[name, ours,
theirs], …]}`` where ours and theirs are ``[status, type, param]``.
"""

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import jinja2
import pydantic
import vllm

from vllm_omni_errors import convert, upstream
from vllm_omni_errors.details import OmniErrorDetails

TREE = Path(vllm.__file__).parent
CLASS = re.compile(r"^class (\w+)\(([\w., \n]*)\):", re.MULTILINE)
ARGUMENTS: dict[object, object] = {bool: False, int: 3, float: 3.0, HTTPStatus: HTTPStatus.TOO_MANY_REQUESTS}

Outcome = list[Any]


def defined() -> dict[str, str]:
    """Name → module of the classes that the tree's text derives from ``VLLMError``, whoever imports them."""
    bases: dict[str, tuple[str, list[str]]] = {}
    for path in TREE.rglob("*.py"):
        module = ".".join(path.relative_to(TREE.parent).with_suffix("").parts).removesuffix(".__init__")
        for name, parents in CLASS.findall(path.read_text()):
            bases[name] = (module, [parent.strip().rpartition(".")[2] for parent in parents.split(",")])
    found = {"VLLMError": bases["VLLMError"][0]}
    while new := {name: module for name, (module, parents) in bases.items() if found.keys() & parents} | found:
        if new == found:
            return found
        found = new
    raise AssertionError("a tree without VLLMError")


def made(cls: type[Exception]) -> Iterator[Exception]:
    """Exceptions of a class: with what it requires, and with every argument that it knows."""
    _, *parameters = inspect.signature(cls.__init__, eval_str=True).parameters.values()
    for every in (False, True):
        chosen = [each for each in parameters if every or each.default is each.empty]
        arguments = [
            argument(each) for each in chosen if each.kind in (each.POSITIONAL_OR_KEYWORD, each.VAR_POSITIONAL)
        ]
        yield cls(*arguments, **{each.name: argument(each) for each in chosen if each.kind is each.KEYWORD_ONLY})


def argument(parameter: inspect.Parameter) -> object:
    return ARGUMENTS.get(parameter.annotation, "no")


def ours(exc: Exception, *, raw: bool = False) -> Outcome:
    details = convert.to_details(exc, raw=raw)
    return [details.status_code, details.error_type, details.parameter]


def theirs(exc: Exception) -> Outcome:
    error = upstream.original("create_error_response")(exc).error
    return [int(error.code), error.type, error.param]


def survives(exc: Exception) -> bool:
    details = convert.to_details(exc, request_id="r", stage_id=1)
    return isinstance(details, OmniErrorDetails) and convert.to_details(convert.to_exception(details)) == details


def raw() -> Iterator[Exception]:
    yield from (
        cls("no") for cls in (ValueError, TypeError, OverflowError, NotImplementedError, KeyError, RuntimeError)
    )
    yield json.JSONDecodeError("no", "doc", 0)
    yield jinja2.TemplateSyntaxError("no", 1)
    try:
        pydantic.TypeAdapter(int).validate_python("x")
    except pydantic.ValidationError as exc:
        yield exc


def main() -> None:
    classes = defined()
    exceptions = [
        each
        for name, module in sorted(classes.items())
        for each in made(getattr(importlib.import_module(module), name))
    ]
    upstream.apply_overrides({override.name: lambda *arguments: arguments[0] for override in upstream.OVERRIDES})
    report = {
        "tree": str(TREE),
        "defined": sorted(classes),
        "walked": [[type(exc).__name__, ours(exc), theirs(exc), survives(exc)] for exc in exceptions],
        "raw": [[type(exc).__name__, ours(exc, raw=True), theirs(exc)] for exc in raw()],
    }
    print(json.dumps(report))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
