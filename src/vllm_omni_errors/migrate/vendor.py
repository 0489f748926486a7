# SPDX-License-Identifier: Apache-2.0
"""The library as a part of vLLM-Omni: ``vllm_omni/errors/`` instead of a dependency, made of the same source."""

import ast
import functools
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import libcst as cst
from libcst.helpers import get_full_name_for_node

from vllm_omni_errors.migrate.bundled import bundled
from vllm_omni_errors.migrate.rewrite import tidy, tidy_where_clean

ROOT = Path(__file__).parents[1]
LIBRARY = "vllm_omni_errors"
VENDORED = "vllm_omni.errors"
FOLDER = "vllm_omni/errors"
TESTS_FOLDER = "tests/errors"
MOVED = {f"{FOLDER}.py": f"{FOLDER}/__init__.py"}
"""Files of vLLM-Omni that get another path: a module cannot lie beside a package of its name."""

TOOLS = frozenset({"__init__", "audit", "cli", "ledgers", "migrate", "probe", "report"})
"""What is not needed where a server runs; of ``__init__`` every import is taken from where the name is defined."""

TESTS = (
    "test_control.py",
    "test_exceptions.py",
    "test_media.py",
    "test_offline.py",
    "test_public_text_corpus.py",
    "test_seams.py",
    "test_stage_messages.py",
    "test_streams.py",
    "text_corpus.py",
    "transports/conftest.py",
    "transports/error_site.py",
    "transports/test_batch.py",
    "transports/test_jobs.py",
    "transports/test_request.py",
    "transports/test_sse.py",
    "transports/test_stream.py",
    "transports/test_websocket.py",
)
"""The library's unit tests that need only what vLLM-Omni's own tests need, and the modules that they import."""

HELPERS = frozenset(Path(name).stem for name in TESTS)
LICENCE = "# SPDX-License-Identifier: Apache-2.0\n"
WORDS = {LIBRARY: VENDORED, "vllm-omni-errors": "vLLM-Omni"}
_WORD = re.compile(rf"\b({'|'.join(WORDS)})\b")
_HELPER = re.compile(rf"\bfrom\s+({'|'.join(sorted(HELPERS))})\s+import\b")
_COROUTINE = re.compile(r"^(?=async def test_)", re.MULTILINE)


def library_files() -> dict[str, str]:
    """The library's runtime modules and the tests that run there, by their paths in vLLM-Omni."""
    files = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT)
        if Path(name.parts[0]).stem not in TOOLS:
            files[f"{FOLDER}/{name.as_posix()}"] = _renamed(path.read_text(encoding="utf-8"))
    tests = bundled("tests")
    for test in TESTS:
        files[f"{TESTS_FOLDER}/{test}"] = _marked(_renamed((tests / test).read_text(encoding="utf-8")))
    for folder in {Path(test).parent for test in TESTS}:
        files[(Path(TESTS_FOLDER) / folder / "__init__.py").as_posix()] = LICENCE
    return dict(zip(files, tidy(list(files.values())), strict=True))


def vendored(files: Mapping[str, str]) -> dict[str, str]:
    """Modules, by their paths, that import the vendored library instead of the package; any other text stays as it is.

    A module in the upstream project's style stays so; any other keeps its own layout.
    Raises SyntaxError if one does not parse, ValueError if it imports the package by a plain ``import``.
    """
    texts = tidy_where_clean([(text, _renamed(text)) for text in files.values()])
    return {MOVED.get(path, path): text for path, text in zip(files, texts, strict=True)}


def _renamed(text: str) -> str:
    """A module's text with the library's new name; only the statements that change become a tree."""
    if not _WORD.search(text):
        return text
    lines = io.StringIO(text, newline="").readlines()
    for first, last in reversed(_statement_lines(text)):
        part = "".join(lines[first:last])
        if _WORD.search(part) or _HELPER.search(part):
            lines[first:last] = [cst.parse_module(part).visit(_Vendored()).code]
    return "".join(lines)


def _statement_lines(text: str) -> list[tuple[int, int]]:
    """First line, from 0, and line after the last one of each statement at the top; those that share a line are one."""
    found: list[tuple[int, int]] = []
    for statement in ast.parse(text).body:
        first = min(node.lineno for node in (*getattr(statement, "decorator_list", ()), statement)) - 1
        last = statement.end_lineno or 0
        found.append((found.pop()[0] if found and found[-1][1] > first else first, last))
    return found


def _marked(text: str) -> str:
    """Tests that are coroutines, marked as such: which mode pytest-asyncio is in there is not ours to say."""
    return _COROUTINE.sub("@pytest.mark.asyncio\n", text)


@functools.cache
def _homes() -> Mapping[str, str]:
    """Where the names that the package exports are defined, as its ``__init__`` says to type checkers."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    return {
        alias.name: f"{VENDORED}.{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }


class _Vendored(cst.CSTTransformer):
    """Imports by syntax tree; in strings (names of loggers, texts) the words."""

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            if (get_full_name_for_node(alias.name) or "").partition(".")[0] == LIBRARY:
                raise ValueError(f"{cst.Module([]).code_for_node(node)}: only `from {LIBRARY} import` can be vendored.")

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        imported = updated_node.body[0]
        if not isinstance(imported, cst.ImportFrom) or imported.relative or isinstance(imported.names, cst.ImportStar):
            return updated_node
        module = get_full_name_for_node(imported.module) if imported.module else ""
        if module in HELPERS:
            return updated_node.with_changes(body=[imported.with_changes(relative=[cst.Dot()])])
        if module == LIBRARY:
            lines = _from_their_homes(imported.names)
            lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
            lines[-1] = lines[-1].with_changes(trailing_whitespace=updated_node.trailing_whitespace)
            return cst.FlattenSentinel(lines)
        if module and module.startswith(f"{LIBRARY}."):
            name = cst.parse_expression(VENDORED + module.removeprefix(LIBRARY))
            return updated_node.with_changes(body=[imported.with_changes(module=name)])
        return updated_node

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        return updated_node.with_changes(value=_reworded(updated_node.value))

    def leave_FormattedStringText(
        self, original_node: cst.FormattedStringText, updated_node: cst.FormattedStringText
    ) -> cst.FormattedStringText:
        return updated_node.with_changes(value=_reworded(updated_node.value))


def _from_their_homes(names: Iterable[cst.ImportAlias]) -> list[cst.SimpleStatementLine]:
    by_home: dict[str, list[str]] = {}
    for alias in names:
        name = alias.evaluated_name
        asname = f" as {alias.evaluated_alias}" if alias.asname else ""
        by_home.setdefault(_homes().get(name, VENDORED), []).append(name + asname)
    return [
        cst.ensure_type(cst.parse_statement(f"from {home} import {', '.join(found)}\n"), cst.SimpleStatementLine)
        for home, found in by_home.items()
    ]


def _reworded(text: str) -> str:
    return _WORD.sub(lambda found: WORDS[found[0]], text)
