# SPDX-License-Identifier: Apache-2.0
"""One rewrite: a reviewed change of one place in vLLM-Omni, whose anchor must hit exactly as often as expected."""

import ast
import hashlib
import io
import subprocess
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import libcst as cst
from ruff import find_ruff_bin

Phase = Literal["bridge", "requests", "stages", "transports", "finalize"]
PHASES: tuple[Phase, ...] = ("bridge", "requests", "stages", "transports", "finalize")
IMPORTS = (ast.Import, ast.ImportFrom)


def code(node: cst.CSTNode) -> str:
    """Source text of a node."""
    return cst.Module([]).code_for_node(node)


def shape_hash(source: str) -> str:
    """First 12 hexadecimal digits of the SHA-256 of a piece of source's structure.

    Layout, comments, quotes and docstrings do not count. Raises SyntaxError if the source does not parse.
    """
    tree = ast.parse(textwrap.dedent(source).strip())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and len(node.body) > 1:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def statements(source: str) -> list[cst.BaseStatement]:
    """Parsed statements of our own text, ready to be inserted."""
    return list(cst.parse_module(textwrap.dedent(source).strip() + "\n").body)


_HOLD_STATEMENTS = frozenset(
    {cst.Module, cst.IndentedBlock, cst.SimpleStatementLine, cst.SimpleStatementSuite, cst.ClassDef, cst.FunctionDef,
     cst.If, cst.Else, cst.For, cst.While, cst.With, cst.Try, cst.TryStar, cst.ExceptHandler, cst.ExceptStarHandler,
     cst.Finally, cst.Match, cst.MatchCase}
)  # fmt: skip


class Rewrite(cst.CSTTransformer):
    """A change of one place. Subclasses are small: where, what, and an example that is their test and documentation.

    The docstring of a subclass says why, in one or two sentences; `omni-errors migrate` prints it.

    Class attributes:
        phase: the RFC's phase that this belongs to.
        module: path below ``vllm_omni/``.
        function: qualified name that the change is confined to, or None for the whole module.
        hits: how many places must match; any other number fails the whole run.
        imports: ``(module, name)`` pairs that the new code needs, added at the top of the file.
        before, after: an example of our own.
    """

    phase: ClassVar[Phase]
    module: ClassVar[str]
    function: ClassVar[str | None] = None
    hits: ClassVar[int] = 1
    imports: ClassVar[tuple[tuple[str, str], ...]] = ()
    before: ClassVar[str]
    after: ClassVar[str]
    _in_expressions: ClassVar[bool]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        names = {name for parent in cls.__mro__ if issubclass(parent, Rewrite) for name in vars(parent)}
        hooked = [getattr(cst, name[6:].partition("_")[0]) for name in names if name.startswith(("visit_", "leave_"))]
        cls._in_expressions = not all(
            kind in _HOLD_STATEMENTS or issubclass(kind, cst.BaseSmallStatement) for kind in hooked
        )

    def __init__(self) -> None:
        super().__init__()
        self.found = 0
        self._stack: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Most of a module is left as it is: only where something is to be found is a node's inside gone through."""
        return super().on_visit(node) and (type(node) in _HOLD_STATEMENTS or (self._in_expressions and self.inside()))

    def missing(self) -> tuple[str, ...]:
        """Names of the places that were not found, of a rewrite that tells them apart."""
        return ()

    @property
    def qualified_name(self) -> str:
        """Dotted name of the class or function being visited."""
        return ".".join(self._stack)

    def inside(self) -> bool:
        """Whether the visitor stands in `function`, or in something nested in it."""
        name = self.qualified_name
        return self.function is None or name == self.function or name.startswith(self.function + ".")

    def _enter(self, node: cst.ClassDef | cst.FunctionDef) -> bool:
        self._stack.append(node.name.value)
        return self.inside() or self.function is None or self.function.startswith(self.qualified_name + ".")

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return self._enter(node)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return self._enter(node)

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        return self.inside()

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        done = self.on_class(original_node, updated_node) if self.qualified_name == self.function else updated_node
        self._stack.pop()
        return done

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        done = self.on_function(original_node, updated_node) if self.qualified_name == self.function else updated_node
        self._stack.pop()
        return done

    def on_class(self, original: cst.ClassDef, updated: cst.ClassDef) -> cst.ClassDef:
        """Hook for rewrites of the class that `function` names."""
        return updated

    def on_function(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        """Hook for rewrites of the function that `function` names."""
        return updated


class TextRewrite(Rewrite):
    """A rewrite that reads and writes text: it needs no tree, which takes long to make and to go through."""

    def rewritten(self, text: str) -> str:
        """The new text of a module. Raises SyntaxError if it does not parse."""
        raise NotImplementedError


def add_imports(text: str, imports: set[tuple[str, str]]) -> str:
    """Add ``from module import name`` below the first block of imports; `tidy` merges and sorts them.

    Text that does not parse stays as it is.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return text  # whoever compiles it says why
    docstring = 1 if body and ast.get_docstring(ast.Module(body[:1], [])) is not None else 0
    place = next((i for i, statement in enumerate(body) if isinstance(statement, IMPORTS)), docstring)
    while place < len(body) and isinstance(body[place], IMPORTS):
        place += 1
    lines = io.StringIO(text, newline="").readlines()
    if place:
        line = body[place - 1].end_lineno or 0
    else:  # below the comments at the top
        first = [*getattr(body[0], "decorator_list", ()), body[0]][0] if body else None
        line = first.lineno - 1 if first else len(lines)
    newline = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    if line == len(lines) and lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += newline
    lines[line:line] = [f"from {source} import {name}{newline}" for source, name in sorted(imports)]
    return "".join(lines)


# The style of the upstream project; its files are clean under it, so that tidying changes only what a rewrite touched.
STYLE = (
    "--isolated",
    "--config=line-length=120",
    '--config=lint.isort.known-third-party=["vllm", "vllm_omni_errors"]',
    '--config=lint.isort.known-first-party=["vllm_omni"]',
)


def tidy(sources: Sequence[str]) -> list[str]:
    """Sort imports, drop unused ones and lay out the code, as the upstream project does.

    Raises subprocess.CalledProcessError if any of the sources does not parse.
    """
    with tempfile.TemporaryDirectory(prefix="omni-errors-") as directory:
        files = [Path(directory, f"{number}.py") for number in range(len(sources))]
        for file, source in zip(files, sources, strict=True):
            file.write_text(source, encoding="utf-8", newline="")
        for command in (("check", "--select=I,F401", "--fix-only"), ("format",)):
            arguments = (find_ruff_bin(), *command, "--quiet", "--no-cache", *STYLE, *(file.name for file in files))
            subprocess.run(arguments, cwd=directory, capture_output=True, check=True)
        return [file.read_bytes().decode("utf-8") for file in files]


def tidy_where_clean(changes: Sequence[tuple[str, str]]) -> list[str]:
    """Texts after a change, given with the text before: what was clean in the upstream project's style stays so.

    Any other keeps its own layout. Raises subprocess.CalledProcessError if any text does not parse.
    """
    tidied = iter(tidy([text for change in changes for text in change]))
    return [neat if same == old else new for (old, new), same, neat in zip(changes, tidied, tidied, strict=True)]


@dataclass(frozen=True)
class Mismatch:
    """A rewrite whose anchor did not match as expected."""

    rewrite: type[Rewrite]
    found: int
    missing: tuple[str, ...] = ()


def rewrite_module(source: str, rewrites: Sequence[type[Rewrite]]) -> tuple[str, list[Mismatch]]:
    """Apply rewrites to one module's source, in order; it becomes a tree, and text again, only where one needs that.

    Returns the new text, to be laid out by `tidy_where_clean`, and the rewrites that did not match (the text is then of
    no use).
    Raises libcst.ParserSyntaxError or SyntaxError if the source does not parse.
    """
    text, tree = source, None
    mismatches = []
    imports: set[tuple[str, str]] = set()
    for rewrite in rewrites:
        change = rewrite()
        if isinstance(change, TextRewrite):
            text, tree = change.rewritten(text if tree is None else tree.code), None
        else:
            tree = (cst.parse_module(text) if tree is None else tree).visit(change)
        if change.found != rewrite.hits:
            mismatches.append(Mismatch(rewrite, change.found, change.missing()))
        imports.update(rewrite.imports)
    return add_imports(text if tree is None else tree.code, imports), mismatches
