# SPDX-License-Identifier: Apache-2.0
"""Every rewrite does what its example says, and says where, when and why."""

import textwrap

import libcst as cst
import pytest

from vllm_omni_errors.migrate.rewrite import PHASES, Rewrite, rewrite_module, shape_hash, tidy
from vllm_omni_errors.migrate.rewrites import ALL
from vllm_omni_errors.migrate.rewrites.shapes import (
    DECISIONS,
    DecideSites,
    ExportNames,
    InTry,
    ReplaceBody,
    Site,
    clauses_of,
    message_hash,
    message_of,
)

every_rewrite = pytest.mark.parametrize("rewrite", ALL, ids=lambda rewrite: rewrite.__name__)


def example(text: str) -> str:
    return textwrap.dedent(text).strip() + "\n"


class FirstFunction(cst.CSTVisitor):
    """The qualified name of the first function of an example, and what its try statement catches."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.name: str | None = None
        self.clauses: tuple[tuple[str, ...], ...] = ()

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.stack.append(node.name.value)

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self.stack.pop()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.name = self.name or ".".join([*self.stack, node.name.value])

    def visit_Try(self, node: cst.Try) -> None:
        self.clauses = clauses_of(node)


def on_its_example(rewrite: type[Rewrite]) -> type[Rewrite]:
    """The rewrite, pointed at its example instead of at vLLM-Omni."""
    source = example(rewrite.before)
    first = FirstFunction()
    cst.parse_module(source).visit(first)
    changed: dict[str, object] = {"function": first.name if rewrite.function is not None else None, "hits": 1}
    if issubclass(rewrite, InTry):
        changed["clauses"] = first.clauses
    if issubclass(rewrite, ReplaceBody):
        changed["shape"] = shape_hash(source)
    if issubclass(rewrite, DecideSites):
        text = message_of(cst.ensure_type(cst.parse_expression('ValueError(f"bad size {size}")'), cst.Call))
        changed["sites"] = (Site("check", message_hash(text), "validation", "size", "size is wrong."),)
        changed["function"] = None
    if rewrite.function is None:
        changed["hits"] = rewrite.hits if not issubclass(rewrite, DecideSites) else 1
    return type(rewrite.__name__, (rewrite,), changed)


@every_rewrite
def test_example_becomes_what_it_says(rewrite: type[Rewrite]) -> None:
    changed, mismatches = rewrite_module(example(rewrite.before), [on_its_example(rewrite)])
    assert mismatches == []
    assert changed == example(rewrite.after)


@every_rewrite
def test_examples_are_in_the_style_of_the_upstream_project(rewrite: type[Rewrite]) -> None:
    assert tidy(example(rewrite.before)) == example(rewrite.before)


@every_rewrite
def test_an_anchor_that_is_not_there_is_reported_with_place_and_count(rewrite: type[Rewrite]) -> None:
    _, mismatches = rewrite_module("x = 1\n", [rewrite])
    found = 1 if issubclass(rewrite, ExportNames) else 0  # the whole module is its anchor
    reported = [(m.rewrite, m.module, m.expected, m.found) for m in mismatches]
    assert reported == ([] if found else [(rewrite.__name__, rewrite.module, rewrite.hits, 0)])


@every_rewrite
def test_says_why_and_in_which_phase(rewrite: type[Rewrite]) -> None:
    assert rewrite.__doc__
    assert rewrite.__doc__.rstrip().endswith(".")
    assert rewrite.phase in PHASES


def test_phases_are_applied_in_order() -> None:
    order = [PHASES.index(rewrite.phase) for rewrite in ALL]
    assert order == sorted(order)


def test_a_changed_function_is_not_replaced() -> None:
    body = next(rewrite for rewrite in ALL if issubclass(rewrite, ReplaceBody))
    changed = example(body.before).replace("KeyError", "IndexError")
    _, mismatches = rewrite_module(changed, [on_its_example(body)])
    assert [mismatch.found for mismatch in mismatches] == [0]


def test_the_same_message_twice_is_ambiguous_unless_the_review_says_so() -> None:
    twice = example(
        """
        def check(size):
            if size == 1:
                raise ValueError(f"bad size {size}")
            raise ValueError(f"bad size {size}")
        """
    )
    sites = on_its_example(next(rewrite for rewrite in ALL if issubclass(rewrite, DecideSites)))
    _, mismatches = rewrite_module(twice, [sites])
    assert [(mismatch.expected, mismatch.found) for mismatch in mismatches] == [(1, 2)]


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_decision_raises_its_exception_and_keeps_the_cause(decision: str) -> None:
    source = example(
        """
        def check(size):
            try:
                return int(size)
            except KeyError as exc:
                raise ValueError(f"bad size {size}")
        """
    )
    text = message_of(cst.ensure_type(cst.parse_expression('ValueError(f"bad size {size}")'), cst.Call))

    class Decided(DecideSites):
        """An example."""

        phase = "requests"
        module = "example.py"
        sites = (Site("check", message_hash(text), decision, "size"),)

    changed, mismatches = rewrite_module(source, [Decided])
    row = DECISIONS[decision]
    parameter = ', parameter="size"' if row.parameter else ""
    assert mismatches == []
    assert f'raise {row.exception}(f"bad size {{size}}"{parameter}{row.arguments}) from exc' in changed
    assert f"from {row.module} import {row.exception}" in changed


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('f"bad size {size}, use {other!r}"', "'bad size {}, use {}'"),
        ('"one " "two"', '"one two"'),
        ('"one " + "two"', '"one two"'),
    ],
)
def test_identity_of_a_message_ignores_quotes_layout_and_holes(first: str, second: str) -> None:
    assert message_hash(cst.parse_expression(first)) == message_hash(cst.parse_expression(second))
