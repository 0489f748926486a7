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
from vllm_omni_errors.audit.messages import Source
from vllm_omni_errors.migrate.rewrite import Phase, TextRewrite, code


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


def _simple_statements(block: Sequence[ast.AST], caught: str | None = None) -> Iterator[tuple[ast.stmt, str | None]]:
    """Statements of a block that hold no others, those of nested blocks included, in order.

    With each, the name of the exception that is being handled there.
    """
    for node in block:
        nested = [getattr(node, name) for name in BLOCKS if name in node._fields]
        handled = (node.name if isinstance(node, ast.ExceptHandler) else None) or caught
        if nested:
            for inner in nested:
                yield from _simple_statements(inner, handled)
        elif isinstance(node, ast.stmt):
            yield node, caught


class DecidedSites(TextRewrite):
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
        self._missing: tuple[Row, ...] = ()

    def missing(self) -> tuple[str, ...]:
        """Function, kind, type and message of each site that is gone or says something else."""
        return tuple(
            f"{row.function or '(module)'}: {row.kind} {row.exception} ({row.message})" for row in self._missing
        )

    def rewritten(self, text: str) -> str:
        content = text.encode("utf-8")
        source = Source(content)
        newline = "\r\n" if b"\r\n" in content else "\n"
        statements = list(_simple_statements(ast.parse(content).body))
        lines = [statement.lineno for statement, _ in statements]
        rows = {row.fingerprint: row for row in self.rows}
        found: dict[tuple[int, str], list[Row]] = defaultdict(list)
        for identity in identities(extract(self.module, content)):
            if row := rows.get(identity.fingerprint):
                found[bisect(lines, identity.line) - 1, identity.kind].append(row)
        kept = {id(row) for rows in found.values() for row in rows}
        self._missing = tuple(row for row in self.rows if id(row) not in kept)
        for (place, kind), (row, *others) in sorted(found.items(), reverse=True):
            statement, caught = statements[place]
            start, end = source.span(statement)
            changed = _changed(source.between(start, end), kind, row, caught)
            if changed is not None:
                self.found += 1 + len(others)
                new = cst.Module([], default_newline=newline).code_for_node(changed).encode("utf-8")
                content = content[:start] + new + content[end:]
        return content.decode("utf-8")


def _changed(text: str, kind: str, row: Row, caught: str | None) -> cst.BaseSmallStatement | None:
    """A site's statement as the decision has it, None if it is not one that a decision changes.

    `caught` is the name of the exception that is being handled there.
    """
    statement = cst.ensure_type(cst.parse_statement(text), cst.SimpleStatementLine).body[0]
    match kind, statement:
        case "raise", cst.Raise():
            return _raised(row, statement.exc, statement.cause, caught)
        case "response", cst.Return(value=call):
            last = call.elements[-1].value if isinstance(call, cst.Tuple) else call
            return _raised(row, last, None, caught) if isinstance(last, cst.Call) else None
        case "response", cst.Expr(value=value):
            call = value.expression if isinstance(value, cst.Await) else value
            if not isinstance(call, cst.Call) or _name(call) not in EVENTS:
                return None
            told = list(call.args)
            place = _message_place(told)
            told[place] = told[place].with_changes(value=_exception(row, told[place].value, caught))
            return statement.with_deep_changes(call, args=told)
    return None


def _raised(row: Row, made: cst.BaseExpression | None, cause: cst.From | None, caught: str | None) -> cst.Raise:
    if cause is None and caught:
        cause = cst.From(item=cst.Name(caught))
    said = message_of(made) if isinstance(made, cst.Call) else None
    return cst.Raise(exc=_exception(row, said, caught), cause=cause)


def _exception(row: Row, said: cst.BaseExpression | None, caught: str | None) -> cst.BaseExpression:
    decision = DECISIONS[row.decision]
    keeps = row.exception in CAUGHT_BY_NAME and row.decision == "unprocessable"
    exception = row.exception if keeps else decision.exception
    parameter = f', parameter="{row.parameter}"' if decision.parameter and row.parameter else ""
    if row.decision == "media":
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
