# SPDX-License-Identifier: Apache-2.0
"""Every rewrite does what its example says, and says where, when and why."""

import textwrap
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import libcst as cst
import pytest

from vllm_omni_errors.audit.ledger import Row
from vllm_omni_errors.audit.messages import hash_of
from vllm_omni_errors.audit.vocabulary import DECISIONS as VOCABULARY
from vllm_omni_errors.migrate.rewrite import (
    PHASES,
    Mismatch,
    Rewrite,
    add_imports,
    rewrite_module,
    shape_hash,
    tidy,
)
from vllm_omni_errors.migrate.rewrites import ALL
from vllm_omni_errors.migrate.rewrites.decided import DECISIONS, DecidedSites, applies, decided_sites
from vllm_omni_errors.migrate.rewrites.shapes import (
    AddMethods,
    ExportNames,
    InTry,
    ReplaceBody,
    ReplaceClass,
    ReplaceFunction,
    clauses_of,
)

TODAY = date(2026, 11, 30)

every_rewrite = pytest.mark.parametrize("rewrite", ALL, ids=lambda rewrite: rewrite.__name__)


def example(text: str) -> str:
    return textwrap.dedent(text).strip() + "\n"


class FirstFunction(cst.CSTVisitor):
    """The qualified names of the first function and class of an example, and what its try statement catches."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.name: str | None = None
        self.class_name: str | None = None
        self.clauses: tuple[tuple[str, ...], ...] = ()

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.stack.append(node.name.value)
        self.class_name = self.class_name or ".".join(self.stack)

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self.stack.pop()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.name = self.name or ".".join([*self.stack, node.name.value])

    def visit_Try(self, node: cst.Try) -> None:
        self.clauses = clauses_of(node)


def a_row(decision: str = "validation", **more: Any) -> Row:
    """A decision about the one raise of the examples."""
    message = hash_of("bad size {}")
    parameter = "size" if VOCABULARY[decision].parameter else None
    row = Row("example.py", "check", "raise", "ValueError", message, decision, "why", TODAY, parameter=parameter)
    return replace(row, **more)


def on_its_example(rewrite: type[Rewrite]) -> type[Rewrite]:
    """The rewrite, pointed at its example instead of at vLLM-Omni."""
    source = example(rewrite.before)
    first = FirstFunction()
    cst.parse_module(source).visit(first)
    changed: dict[str, object] = {"module": "example.py", "hits": 1}
    named = first.class_name if issubclass(rewrite, ReplaceClass) else first.name
    if issubclass(rewrite, AddMethods) and first.name is not None:
        named = first.name.rpartition(".")[0]
    changed["function"] = named if rewrite.function is not None else None
    if issubclass(rewrite, InTry):
        changed["clauses"] = first.clauses
    if issubclass(rewrite, ReplaceBody | ReplaceFunction):
        changed["shape"] = shape_hash(source)
    if issubclass(rewrite, DecidedSites):
        changed["rows"] = (a_row(text="size is wrong."),)
    elif rewrite.function is None:
        changed["hits"] = rewrite.hits
    return type(rewrite.__name__, (rewrite,), changed)


@pytest.fixture(scope="module")
def tidied() -> Mapping[str, str]:
    """Every text that the examples begin with or become, laid out."""
    texts = {example(rewrite.before) for rewrite in ALL} | {become(rewrite)[0] for rewrite in ALL}
    ordered = sorted(texts)
    return dict(zip(ordered, tidy(ordered), strict=True))


def become(rewrite: type[Rewrite]) -> tuple[str, list[Mismatch]]:
    return rewrite_module(example(rewrite.before), [on_its_example(rewrite)])


@every_rewrite
def test_example_becomes_what_it_says(rewrite: type[Rewrite], tidied: Mapping[str, str]) -> None:
    changed, mismatches = become(rewrite)
    assert mismatches == []
    assert tidied[changed] == example(rewrite.after)


@every_rewrite
def test_examples_are_in_the_style_of_the_upstream_project(rewrite: type[Rewrite], tidied: Mapping[str, str]) -> None:
    assert tidied[example(rewrite.before)] == example(rewrite.before)


@every_rewrite
def test_an_anchor_that_is_not_there_is_reported_with_place_and_count(rewrite: type[Rewrite]) -> None:
    _, mismatches = rewrite_module("x = 1\n", [rewrite])
    found = 1 if issubclass(rewrite, ExportNames) else 0  # the whole module is its anchor
    reported = [(mismatch.rewrite, mismatch.found) for mismatch in mismatches]
    assert reported == ([] if found else [(rewrite, 0)])


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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("# Licence\n", ""),
        ('"""Doors."""\n', "\nx = 1\n"),
        ("import a\n", ""),
        ("from a import (\n    b,\n)  # why\nimport c\n", "\n# Doors\nx = 1\nimport d\n"),
        ("if True:\n    import a\nimport b\n", "x = 1\n"),
        ("# Licence\n\n# Doors\n", "@door\ndef enter(): ...\n"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_import_is_added_below_those_that_are_there_or_else_at_the_top(before, after, newline) -> None:
    source = (before + after).replace("\n", newline)
    changed = add_imports(source, {("house", "door")})
    newline = newline if source else "\n"
    assert changed == f"{before}from house import door\n{after}".replace("\n", newline)


@pytest.mark.parametrize("text", ["import a", '"""Doors."""', "# Licence"])
def test_an_import_is_added_to_text_without_a_newline_at_its_end(text: str) -> None:
    assert add_imports(text, {("house", "door")}) == f"{text}\nfrom house import door\n"


def test_what_does_not_parse_gets_no_import() -> None:
    assert add_imports("def enter(:\n", {("house", "door")}) == "def enter(:\n"


def decided(*rows: Row) -> type[DecidedSites]:
    return type("Decided", (DecidedSites,), {"__doc__": "An example.", "module": "example.py", "rows": rows})


def test_a_decision_is_for_one_site_of_several_with_the_same_message() -> None:
    twice = example(
        """
        def check(size):
            if size == 1:
                raise ValueError(f"bad size {size}")
            raise ValueError(f"bad size {size}")
        """
    )
    changed, mismatches = rewrite_module(twice, [decided(a_row(nth=2))])
    assert mismatches == []
    assert changed.count("raise ValueError(") == 1
    assert changed.index("raise ValueError(") < changed.index("raise VLLMValidationError(")


RAISE = 'raise ValueError(f"bad size {size}")'
EVERYWHERE = f"""
def check(size, key=lambda each: (each, 1)):
    with open(size) as file: {RAISE}
    try:
        '''Text over
        two lines.'''; {RAISE}
    except KeyError:
        size = [
            1,
        ]; {RAISE}
    else:
        {RAISE}
    finally:
        {RAISE}
    match size:
        case 1:
            {RAISE}
        case [_, *_] if size: {RAISE}
    for each in size:
        if each: {RAISE}
        elif size:
            {RAISE}
        else:
            {RAISE}
    else:
        {RAISE}
    while size:
        async def inner(): pass
        {RAISE}
"""


def test_a_site_keeps_its_layout_in_any_newlines() -> None:
    source = EVERYWHERE.replace(RAISE, 'raise ValueError(\n  f"bad size {size}")', 1).replace("\n", "\r\n")
    changed, mismatches = rewrite_module(source, [decided(a_row(nth=2))])
    assert mismatches == []
    assert changed.replace("\r\n", "").isprintable()


@pytest.mark.parametrize("nth", range(1, EVERYWHERE.count(RAISE) + 1))
def test_a_decision_is_for_its_site_wherever_that_stands(nth: int) -> None:
    changed, mismatches = rewrite_module(EVERYWHERE, [decided(a_row(nth=nth))])
    assert mismatches == []
    before, *after = EVERYWHERE.split(RAISE)
    new = 'raise VLLMValidationError(f"bad size {size}", parameter="size")'
    expected = before + "".join((new if n == nth else RAISE) + text for n, text in enumerate(after, 1))
    assert changed.replace("from vllm.exceptions import VLLMValidationError\n", "") == expected


def test_a_decision_whose_site_is_gone_or_says_something_else_does_not_match() -> None:
    other = example(
        """
        def check(size):
            raise ValueError(f"wrong size {size}")
        """
    )
    _, mismatches = rewrite_module(other, [decided(a_row())])
    assert [(mismatch.rewrite.hits, mismatch.found) for mismatch in mismatches] == [(1, 0)]


def test_the_sites_that_are_gone_are_named() -> None:
    source = example(
        """
        def check(size):
            raise ValueError(f"bad size {size}")
        """
    )
    gone = a_row(function="other")
    _, (mismatch,) = rewrite_module(source, [decided(a_row(), gone)])
    assert (mismatch.rewrite.hits, mismatch.found) == (2, 1)
    assert mismatch.missing == (f"other: raise ValueError ({gone.message})",)


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
    changed, mismatches = rewrite_module(source, [decided(a_row(decision))])
    made = DECISIONS[decision]
    parameter = ', parameter="size"' if made.parameter else ""
    said = "exc" if decision == "media" else 'f"bad size {size}"'
    assert mismatches == []
    assert f"raise {made.exception}({said}{parameter}{made.arguments}) from exc" in changed
    assert f"from {made.module} import {made.exception}" in changed


@pytest.mark.parametrize("name", ["create_error_response", "self.create_error_response", "self._create_error_response"])
def test_a_returned_error_response_is_raised(name: str) -> None:
    source = f'def check(self):\n    return {name}("no such voice", status_code=404)\n'
    row = a_row("not-found", kind="response", exception=name.rpartition(".")[2], message=hash_of("no such voice"))
    changed, mismatches = rewrite_module(source, [decided(row)])
    assert mismatches == []
    assert 'raise VLLMNotFoundError("no such voice")' in changed


@pytest.mark.parametrize("arguments", ['"bad {}"', 'socket, "bad {}"', 'socket, "bad {}", lock=lock'])
def test_what_a_helper_tells_a_client_is_an_exception(arguments: str) -> None:
    source = f"async def check(self):\n    await self._send_error({arguments})\n"
    row = a_row(kind="response", exception="_send_error", message=hash_of("bad {}"), text="size is wrong.")
    changed, mismatches = rewrite_module(source, [decided(row)])
    assert mismatches == []
    told = arguments.replace('"bad {}"', 'VLLMValidationError("size is wrong.", parameter="size")')
    assert f"await self._send_error({told})" in changed


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        (a_row(), True),
        (a_row("internal"), False),
        (a_row("internal", text="The image cannot be made."), True),
        (a_row("internal", exception="HTTPException"), True),
        (a_row("configuration"), False),
        (a_row("control-flow"), False),
        (a_row(exception="SessionError"), False),
        (a_row("keep", exception="HTTPException"), False),
        (a_row(kind="response", exception="dict"), False),
        (a_row(kind="response", exception="_send_error"), True),
        (a_row("internal", kind="response", exception="_send_error"), False),
    ],
)
def test_which_decisions_change_their_site(row: Row, changes: bool) -> None:
    assert applies(row) is changes


def test_only_functions_that_are_migrated_are_changed() -> None:
    rows = [a_row(), replace(a_row(), function="other"), replace(a_row(), path="elsewhere.py")]
    (made,) = decided_sites(rows, {"example.py": ("check",)})
    assert (made.module, made.rows, made.hits) == ("example.py", (rows[0],), 1)
