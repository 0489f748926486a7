# SPDX-License-Identifier: Apache-2.0
"""A message has the same hash by the audit's parser and by LibCST's: two ways to read it, one identity."""

import ast
import hashlib
import importlib.util
import re
from pathlib import Path

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_omni_errors.audit.messages import Source, hash_of, message
from vllm_omni_errors.migrate.rewrite import code
from vllm_omni_errors.migrate.rewrites.decided import message_of


def normalized(node: cst.BaseExpression | None) -> str:
    """The text of a message, by LibCST: another parser than the audit's."""
    match node:
        case None:
            return "<none>"
        case cst.SimpleString():
            return str(node.evaluated_value)
        case cst.ConcatenatedString():
            return normalized(node.left) + normalized(node.right)
        case cst.FormattedString():
            return "".join(part.value if isinstance(part, cst.FormattedStringText) else "{}" for part in node.parts)
        case cst.BinaryOperation(operator=cst.Add()):
            return normalized(node.left) + normalized(node.right)
    return "<" + re.sub(r"\s+", " ", code(node)) + ">"


def message_hash(node: cst.BaseExpression | None) -> str:
    """First 12 hexadecimal digits of the SHA-256 of the normalized message."""
    return hashlib.sha256(normalized(node).encode()).hexdigest()[:12]


class _Calls(cst.CSTVisitor):
    """Hash and text of everything that is raised or returned by a call, as the rewrites see it."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def _note(self, node: cst.BaseExpression | None) -> None:
        if isinstance(node, cst.Call):
            said = message_of(node)
            self.found.append((message_hash(said), normalized(said)))

    def visit_Raise(self, node: cst.Raise) -> None:  # noqa: N802
        self._note(node.exc)

    def visit_Return(self, node: cst.Return) -> None:  # noqa: N802
        self._note(node.value)


def as_rewritten(text: bytes) -> list[tuple[str, str]]:
    calls = _Calls()
    cst.parse_module(text).visit(calls)
    return calls.found


def as_audited(text: bytes) -> list[tuple[str, str]]:
    source, found = Source(text), []

    def visit(node: ast.AST) -> None:
        value = node.exc if isinstance(node, ast.Raise) else node.value if isinstance(node, ast.Return) else None
        if isinstance(value, ast.Call):
            said = message(source, value)
            found.append((said.hash, said.text))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(text))
    return found


EXAMPLES = {
    "plain": 'raise ValueError("wrong")',
    "quotes": "raise ValueError('it''s')",
    "escapes": r'raise ValueError("tab\tand \u00e9 and \\")',
    "formatted": 'raise ValueError(f"got {value!r:>{width}} of {total}")',
    "formatted escapes": r'raise ValueError(f"line\n{value}\t\x41\N{EM DASH}")',
    "braces": 'raise ValueError(f"{{literal}} and {value}")',
    "raw": r'raise ValueError(rf"\d{value}" r"\d")',
    "adjacent": 'raise ValueError(\n    "one "\n    f"two {x} {{"\n    "three {{"  # why\n)',
    "adjacent and plain": """raise ValueError(f"one {x} " ''''two' and "three"''' "four's" "")""",
    "concatenated": 'raise ValueError("one " + name + f"two {x}" + ("three"))',
    "nested quotes": """raise ValueError(f"got {d['key']} and {', '.join(names)}")""",
    "dict in a hole": """raise ValueError(f"got { {'a': 1}['a'] }")""",
    "variable": "raise ValueError(message)",
    "call": "raise ValueError(  str( e )  )",
    "parentheses": "raise ValueError((a or  b))",
    "comment in parentheses": "raise ValueError(\n    (  # why\n        a\n        or b  # because\n    )\n)",
    "two parentheses": "raise ValueError(((a)))",
    "conditional": 'raise ValueError("a" if b else "c")',
    "percent": 'raise ValueError("%s is wrong" % name)',
    "percent of parts": 'raise ValueError(("one %s " "two") % (a, b))',
    "format": 'raise ValueError("{} is wrong".format(name))',
    "detail": 'raise HTTPException(status_code=400, detail="wrong")',
    "second": 'raise HTTPException(400, f"wrong {x}")',
    "only a status": "raise HTTPException(400)",
    "message keyword": 'raise Own(code=3, message="wrong")',
    "starred": "raise ValueError(*parts)",
    "starred first": 'raise ValueError(*parts, "said")',
    "generator": "raise ValueError(x  for x in (y))",
    "nothing": "raise ValueError()",
    "bytes": 'raise ValueError(b"bytes")',
    "number": "raise KeyError(3)",
    "not ascii before": 'raise ValueError("é" + (x), "ü")',
    "not ascii": 'raise ValueError("größer " + (ü) + "ß")',
    "parenthesized callee": 'raise (errors.Wrong)("text")',
    "returned": 'def f():\n    return self.create_error_response(\n        "no " "model"\n    )',
    "triple": 'raise ValueError(f"""one\n  {x}\n""")',
    "string in a call": "raise ValueError(f(a, (b), 'c'))",
    "attribute over lines": "raise ValueError(\n    errors\n    .text\n)",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_has_the_hash_of_the_rewrites(name: str) -> None:
    text = EXAMPLES[name].encode()
    assert as_audited(text) == as_rewritten(text)
    assert as_audited(text)


texts = st.text(st.characters(codec="utf-8", exclude_characters="{}\0\r", exclude_categories=["Cs"]), max_size=12)
plain = texts.map(repr)
holes = st.sampled_from(["{x}", "{x!r}", "{x:>{w}}", "{a['k']}", "{f(a, b)}", "{{", "}}"])
formatted = st.lists(
    st.one_of(holes, texts.map(lambda t: t.replace("\\", "").replace('"', "").replace("\n", ""))), max_size=4
).map(lambda parts: 'f"' + "".join(parts) + '"')
literals = st.lists(st.one_of(plain, formatted), min_size=1, max_size=3).map(" ".join)
others = st.sampled_from(["x", "str(e)", "(a or b)", "m.text[0]", "(x)"])
expressions = st.recursive(
    st.one_of(literals, others),
    lambda inner: st.one_of(st.tuples(inner, inner).map(" + ".join), inner.map(lambda text: f"({text})")),
    max_leaves=4,
)


@settings(deadline=None)
@given(expressions)
def test_any_message_has_the_hash_of_the_rewrites(expression: str) -> None:
    text = f"raise ValueError({expression})\n".encode()
    assert as_audited(text) == as_rewritten(text)


def test_every_site_of_the_entrypoints_has_the_hash_of_the_rewrites() -> None:
    spec = importlib.util.find_spec("vllm_omni")
    assert spec is not None
    assert spec.origin is not None
    files = sorted((Path(spec.origin).parent / "entrypoints").rglob("*.py"))
    different, compared = [], 0
    for file in files:
        text = file.read_bytes()
        audited = as_audited(text)
        compared += len(audited)
        if audited != as_rewritten(text):
            different.append(file.name)
    assert (different, compared > 900) == ([], True)


def echo_of(expression: str, caught: str | None = None) -> tuple[str, ...]:
    text = f"raise ValueError({expression})"
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.Raise)
    assert isinstance(node.exc, ast.Call)
    return message(Source(text.encode()), node.exc, caught).echo


@pytest.mark.parametrize(
    ("expression", "echo"),
    [
        ('"fixed"', ()),
        ('"fixed " + "twice"', ()),
        ("True", ()),
        ('f"got {x}"', ("f-string",)),
        ('f"got {x!r}"', ("!r", "f-string")),
        ('"got %s" % x', ("%",)),
        ('"got {}".format(x)', (".format",)),
        ('"got " + repr(x)', ("!r",)),
        ("text", ("other",)),
        ("str(e)", ("exception",)),
        ('f"failed: {e}"', ("exception", "f-string")),
    ],
)
def test_how_values_get_into_a_message(expression: str, echo: tuple[str, ...]) -> None:
    assert echo_of(expression, caught="e") == echo


def test_hash_has_twelve_digits() -> None:
    assert len(hash_of("x")) == 12
