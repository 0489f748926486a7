# SPDX-License-Identifier: Apache-2.0
"""What the ledger decides: raise sites and returned error responses become semantic exceptions."""

import ast
import builtins
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

import libcst as cst

from vllm_omni_errors.audit.extract import extract
from vllm_omni_errors.audit.inventory import identities
from vllm_omni_errors.audit.ledger import Row
from vllm_omni_errors.migrate.rewrite import Phase, Rewrite, code


@dataclass(frozen=True)
class Decision:
    """What a decided site raises: the exception, where it is imported from, and its arguments after the message."""

    module: str
    exception: str
    parameter: bool = False
    arguments: str = ""


DECISIONS: dict[str, Decision] = {
    "validation": Decision("vllm.exceptions", "VLLMValidationError", parameter=True),
    "unprocessable": Decision("vllm.exceptions", "VLLMUnprocessableEntityError", parameter=True),
    "not-found": Decision("vllm.exceptions", "VLLMNotFoundError"),
    "guardrail": Decision("vllm_omni.errors", "GuardrailViolationError"),
    "conflict": Decision("vllm_omni.errors", "OmniConflictError"),
    "not-implemented": Decision("vllm_omni.errors", "OmniNotImplementedError"),
    "unavailable": Decision("vllm_omni.errors", "OmniServiceUnavailableError"),
    "unsupported": Decision("vllm_omni.errors", "OmniServiceUnavailableError", arguments=", permanent=True"),
    "stage-timeout": Decision("vllm_omni.errors", "OmniStageTimeoutError"),
    "internal": Decision("vllm.exceptions", "VLLMServerError"),
    "media": Decision("vllm_omni_errors.media", "media_error", parameter=True),
}
"""Decisions that change a site; it stays where another was made."""

RETYPED = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)
) | {"HTTPException"}
"""Types that say nothing about whose fault it is; classes of vLLM-Omni's own are caught by name, and stay."""

CAUGHT_BY_NAME = frozenset({"InvalidInputReferenceError", "_ImagePixelLimitError"})
"""Names of unprocessable media that code around them catches: such a site keeps its class."""

RESPONSES = frozenset({"create_error_response", "_create_error_response"})
EVENTS = frozenset({"_send_error"})
"""Helpers that tell the client of a session about an error: what they send is an exception now."""


def applies(row: Row) -> bool:
    """Whether a decision changes its site: a raw ``internal`` is a server's failure as it is, unless it has a text."""
    if row.decision not in DECISIONS:
        return False
    if row.kind == "response" and row.exception in EVENTS:
        return row.decision not in ("internal", "media")  # whatever was caught decides there
    if row.kind == "response":
        return row.exception in RESPONSES and row.decision != "media"
    if row.kind != "raise" or row.exception not in RETYPED | CAUGHT_BY_NAME:
        return False
    return row.decision != "internal" or row.exception == "HTTPException" or row.text is not None


BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def _simple_statements(block: Sequence[ast.AST]) -> Iterator[ast.stmt]:
    """Statements of a block that hold no others, those of nested blocks included, in order."""
    for node in block:
        nested = [getattr(node, name) for name in BLOCKS if name in node._fields]
        if nested:
            for inner in nested:
                yield from _simple_statements(inner)
        elif isinstance(node, ast.stmt):
            yield node


class _SmallStatements(cst.CSTVisitor):
    """The same statements in the other tree, whose nodes know no lines; LibCST's positions take ten times as long."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[cst.BaseSmallStatement] = []

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        self.found += node.body
        return False

    def visit_SimpleStatementSuite(self, node: cst.SimpleStatementSuite) -> bool:
        self.found += node.body
        return False


class DecidedSites(Rewrite):
    """The review decided whose fault each site of this file is, and it says so now."""

    phase: ClassVar[Phase] = "requests"
    rows: ClassVar[tuple[Row, ...]] = ()
    before = """
        def check(size):
            if not size:
                raise ValueError(f"bad size {size}")
            return size
    """
    after = """
        from vllm.exceptions import VLLMValidationError


        def check(size):
            if not size:
                raise VLLMValidationError("size is wrong.", parameter="size")
            return size
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        decided = [DECISIONS[row.decision] for row in cls.rows]
        cls.hits = len(cls.rows)
        cls.imports = tuple(dict.fromkeys((decision.module, decision.exception) for decision in decided))

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[tuple[str, cst.CSTNode], list[Row]] = {}
        self._caught: list[str | None] = []
        self._missing: tuple[Row, ...] = ()

    def missing(self) -> tuple[str, ...]:
        """Function, kind, type and message of each site that is gone or says something else."""
        return tuple(
            f"{row.function or '(module)'}: {row.kind} {row.exception} ({row.message})" for row in self._missing
        )

    def visit_Module(self, node: cst.Module) -> None:
        source = node.bytes
        small = _SmallStatements()
        node.visit(small)
        lines = [each.lineno for each in _simple_statements(ast.parse(source).body)]
        assert len(lines) == len(small.found)
        rows = {row.fingerprint: row for row in self.rows}
        found: dict[tuple[str, cst.CSTNode], list[Row]] = defaultdict(list)
        for identity in identities(extract(self.module, source)):
            if row := rows.get(identity.fingerprint):
                found[identity.kind, small.found[bisect(lines, identity.line) - 1]].append(row)
        self._rows = found
        kept = {id(row) for rows in found.values() for row in rows}
        self._missing = tuple(row for row in self.rows if id(row) not in kept)

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        return self._decides(node)

    def visit_SimpleStatementSuite(self, node: cst.SimpleStatementSuite) -> bool:
        return self._decides(node)

    def _decides(self, node: cst.SimpleStatementLine | cst.SimpleStatementSuite) -> bool:
        return any((kind, statement) in self._rows for statement in node.body for kind in ("raise", "response"))

    def visit_ExceptHandler(self, node: cst.ExceptHandler) -> None:
        self._caught.append(code(node.name.name) if node.name else None)

    def leave_ExceptHandler(
        self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler
    ) -> cst.ExceptHandler:
        self._caught.pop()
        return updated_node

    def leave_Raise(self, original_node: cst.Raise, updated_node: cst.Raise) -> cst.Raise:
        row = self._row("raise", original_node)
        if row is None:
            return updated_node
        return self._raised(row, original_node.exc, updated_node.cause)

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return | cst.Raise:
        """An error response, alone or as the last of a returned tuple, is raised."""
        call = original_node.value
        if isinstance(call, cst.Tuple):
            call = call.elements[-1].value
        row = self._row("response", original_node) if isinstance(call, cst.Call) else None
        return updated_node if row is None else self._raised(row, call, None)

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr:
        call = updated_node.value.expression if isinstance(updated_node.value, cst.Await) else updated_node.value
        if not isinstance(call, cst.Call) or _name(call) not in EVENTS:
            return updated_node
        row = self._row("response", original_node)
        if row is None:
            return updated_node
        told = list(call.args)
        place = _message_place(told)
        told[place] = told[place].with_changes(value=self._exception(row, told[place].value))
        return updated_node.with_deep_changes(call, args=told)

    def _row(self, kind: str, statement: cst.BaseSmallStatement) -> Row | None:
        rows = self._rows.pop((kind, statement), [])
        self.found += len(rows)
        return rows[0] if rows else None

    def _raised(self, row: Row, made: cst.BaseExpression | None, cause: cst.From | None) -> cst.Raise:
        caught = next((name for name in reversed(self._caught) if name), None)
        if cause is None and caught:
            cause = cst.From(item=cst.Name(caught))
        said = message_of(made) if isinstance(made, cst.Call) else None
        return cst.Raise(exc=self._exception(row, said), cause=cause)

    def _exception(self, row: Row, said: cst.BaseExpression | None) -> cst.BaseExpression:
        decision = DECISIONS[row.decision]
        keeps = row.exception in CAUGHT_BY_NAME and row.decision == "unprocessable"
        exception = row.exception if keeps else decision.exception
        parameter = f', parameter="{row.parameter}"' if decision.parameter and row.parameter else ""
        if row.decision == "media":
            caught = next((name for name in reversed(self._caught) if name), None)
            arguments = f"{caught}{parameter or ', parameter=None'}"
        else:
            arguments = _text(row, said) + parameter + decision.arguments
        return cst.parse_expression(f"{exception}({arguments})")


def _text(row: Row, said: cst.BaseExpression | None) -> str:
    """What the client reads: the ledger's text, or else the site's own."""
    if row.text is not None:
        quoted = '"' + row.text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return "f" + quoted if "{" in row.text else quoted
    return '""' if said is None else code(said)


def _name(call: cst.Call) -> str:
    return code(call.func).rpartition(".")[2]


def _message_place(arguments: list[cst.Arg]) -> int:
    """The message is the last positional argument of at most two; a socket may stand before it."""
    plain = [place for place, argument in enumerate(arguments[:2]) if argument.keyword is None]
    return plain[-1]


def message_of(call: cst.Call) -> cst.BaseExpression | None:
    """The text that a raise or an error response is built with: detail=, message=, or the positional argument."""
    for argument in call.args:
        if argument.keyword is not None and argument.keyword.value in ("detail", "message"):
            return argument.value
    plain = [argument.value for argument in call.args if argument.keyword is None and not argument.star]
    index = 1 if code(call.func).endswith("HTTPException") else 0
    return plain[index] if len(plain) > index else None


def _is_in(row: Row, places: Mapping[str, tuple[str, ...]]) -> bool:
    return any(
        fnmatchcase(row.path, path) and any(fnmatchcase(row.function, function) for function in functions)
        for path, functions in places.items()
    )


def decided_sites(
    rows: Iterable[Row], places: Mapping[str, tuple[str, ...]], phase: Phase = "requests"
) -> tuple[type[DecidedSites], ...]:
    """One rewrite for each file with rows in `places`: patterns of paths, and for each the patterns of functions."""
    by_module: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if applies(row) and _is_in(row, places):
            by_module[row.path].append(row)
    return tuple(
        type(
            "DecidedSites",
            (DecidedSites,),
            {"__doc__": DecidedSites.__doc__, "phase": phase, "module": path, "rows": tuple(found)},
        )
        for path, found in sorted(by_module.items())
    )
