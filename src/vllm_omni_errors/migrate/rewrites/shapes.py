# SPDX-License-Identifier: Apache-2.0
"""The few kinds of change that rewrites are made of; each finds its place by structure, never by a quoted statement."""

import textwrap
from collections.abc import Mapping
from string import Template
from typing import ClassVar

import libcst as cst
from libcst import matchers

from vllm_omni_errors.migrate.rewrite import Rewrite, code, shape_hash, statements


def caught_types(handler: cst.ExceptHandler) -> tuple[str, ...]:
    """Names that an except clause catches; a bare clause catches ``BaseException``."""
    if handler.type is None:
        return ("BaseException",)
    if isinstance(handler.type, cst.Tuple):
        return tuple(code(element.value) for element in handler.type.elements)
    return (code(handler.type),)


def clauses_of(node: cst.Try) -> tuple[tuple[str, ...], ...]:
    """What the clauses of a try statement catch, in order."""
    return tuple(caught_types(handler) for handler in node.handlers)


def unwrapped(node: cst.Try) -> "cst.FlattenSentinel[cst.BaseStatement]":
    """The body of a try statement in its place, with the comments that stood before it."""
    body = list(node.body.body)
    first = body[0].with_changes(leading_lines=[*node.leading_lines, *getattr(body[0], "leading_lines", ())])
    return cst.FlattenSentinel([first, *body[1:]])  # type: ignore[list-item]


class InTry(Rewrite):
    """Base of the rewrites of a try statement, found by what its clauses catch and, where that is not enough, by a name
    that its body assigns or calls."""

    clauses: ClassVar[tuple[tuple[str, ...], ...]]
    about: ClassVar[str | None] = None

    def leave_Try(
        self, original_node: cst.Try, updated_node: cst.Try
    ) -> "cst.Try | cst.FlattenSentinel[cst.BaseStatement]":
        if not self.inside() or clauses_of(original_node) != self.clauses:
            return updated_node
        if self.about is not None and self.about not in _assigned(original_node.body) | _called(original_node.body):
            return updated_node
        self.found += 1
        return self.on_try(original_node, updated_node)

    def on_try(self, original: cst.Try, updated: cst.Try) -> "cst.Try | cst.FlattenSentinel[cst.BaseStatement]":
        """The changed statement."""
        raise TypeError(f"{type(self).__name__} does not say what to do with its try statement")


class StopTranslating(InTry):
    """Drop clauses that turn exceptions into responses: the exceptions travel to the boundary.

    A try statement left with neither clauses nor a ``finally`` is unwrapped if it is short; a long one keeps a clause
    that re-raises, so that the diff does not re-indent a whole function.
    """

    keep: ClassVar[tuple[tuple[str, ...], ...]] = ()
    LONGEST_UNWRAPPED: ClassVar[int] = 25  # lines

    def on_try(self, original: cst.Try, updated: cst.Try) -> "cst.Try | cst.FlattenSentinel[cst.BaseStatement]":
        kept = [handler for handler in updated.handlers if caught_types(handler) in self.keep]
        if kept or updated.finalbody is not None:
            return updated.with_changes(handlers=kept)
        if len(code(original.body).splitlines()) <= self.LONGEST_UNWRAPPED:
            return unwrapped(updated)
        clause = _handlers("except Exception:\n    raise  # rendered once, at the boundary")
        return updated.with_changes(handlers=clause)


class ReplaceClauses(InTry):
    """All clauses of a try statement give way to clauses of ours."""

    new: ClassVar[str]

    def on_try(self, original: cst.Try, updated: cst.Try) -> cst.Try:
        return updated.with_changes(handlers=_handlers(self.new))


class AddFirstClause(InTry):
    """A clause of ours before the others."""

    new: ClassVar[str]

    def on_try(self, original: cst.Try, updated: cst.Try) -> cst.Try:
        return updated.with_changes(handlers=[*_handlers(self.new), *updated.handlers])


class RaiseAgain(InTry):
    """A clause that ended in a returned answer raises again what it caught."""

    clause: ClassVar[tuple[str, ...]]

    def on_try(self, original: cst.Try, updated: cst.Try) -> cst.Try:
        def raising(handler: cst.ExceptHandler) -> cst.ExceptHandler:
            body = [*handler.body.body[:-1], *statements("raise")]
            return handler.with_changes(body=handler.body.with_changes(body=body))

        handlers = [raising(h) if caught_types(h) == self.clause else h for h in updated.handlers]
        return updated.with_changes(handlers=handlers)


class WidenClause(InTry):
    """A clause catches one more type, for code that relied on a parent that this type no longer has."""

    clause: ClassVar[tuple[str, ...]]
    added: ClassVar[str]

    def on_try(self, original: cst.Try, updated: cst.Try) -> cst.Try:
        types = cst.parse_expression("(" + ", ".join((*self.clause, self.added)) + ")")
        handlers = [h.with_changes(type=types) if caught_types(h) == self.clause else h for h in updated.handlers]
        return updated.with_changes(handlers=handlers)


class ReplaceBody(Rewrite):
    """The body of a function; decorators, signature and docstring stay. `shape` is the original's `shape_hash`."""

    shape: ClassVar[str]
    body: ClassVar[str]

    def on_function(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        plain = original.with_changes(leading_lines=(), lines_after_decorators=(), decorators=())
        if shape_hash(code(plain)) != self.shape:
            return updated
        self.found += 1
        docstring = updated.body.body[:1] if original.get_docstring() is not None else ()
        return updated.with_changes(body=updated.body.with_changes(body=[*docstring, *statements(self.body)]))


class TryAround(Rewrite):
    """The assignment to a name, or a statement that only calls `call`, is tried, with clauses of ours."""

    assignment: ClassVar[str | None] = None
    call: ClassVar[str | None] = None
    new: ClassVar[str]

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> "cst.SimpleStatementLine | cst.Try":
        if not self.inside() or not self._is_it(original_node.body[0]):
            return updated_node
        self.found += 1
        body = cst.IndentedBlock([updated_node.with_changes(leading_lines=())])
        return cst.Try(body=body, handlers=_handlers(self.new), leading_lines=updated_node.leading_lines)

    def _is_it(self, statement: cst.BaseSmallStatement) -> bool:
        if isinstance(statement, cst.Expr):
            return self.call in _called(statement)
        return self.assignment in _assigned(statement)


class ReplaceBranch(Rewrite):
    """The body of ``if test:`` gives way to statements of ours; the branch goes altogether if there are none."""

    test: ClassVar[str]
    new: ClassVar[str] = ""

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:
        if not self.inside() or code(original_node.test) != self.test:
            return updated_node
        self.found += 1
        if not self.new:
            return cst.RemoveFromParent()
        return updated_node.with_changes(body=updated_node.body.with_changes(body=statements(self.new)))


class DropReraise(Rewrite):
    """``if …: raise`` goes."""

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:
        if not self.inside() or code(original_node.body).strip() != "raise":
            return updated_node
        self.found += 1
        return cst.RemoveFromParent()


class RaiseReturnedCall(Rewrite):
    """``return callee(text)`` raises an exception with that text; `arguments` follow it."""

    callee: ClassVar[str]
    exception: ClassVar[str]
    arguments: ClassVar[str] = ""

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return | cst.Raise:
        call = updated_node.value
        if not self.inside() or not isinstance(call, cst.Call) or code(call.func) != self.callee:
            return updated_node
        self.found += 1
        return cst.Raise(exc=cst.parse_expression(f"{self.exception}({code(call.args[0].value)}{self.arguments})"))


class RaiseReturnedText(Rewrite):
    """A returned f-string that shows the values `shown`, in their order, gives way to a statement of ours."""

    shown: ClassVar[tuple[str, ...]]
    new: ClassVar[str]

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return | cst.Raise:
        if not self.inside() or not isinstance(original_node.value, cst.FormattedString | cst.ConcatenatedString):
            return updated_node
        values = matchers.findall(original_node.value, matchers.FormattedStringExpression())
        if tuple(code(value.expression) for value in values) != self.shown:  # type: ignore[attr-defined]
            return updated_node
        self.found += 1
        return cst.ensure_type(cst.ensure_type(statements(self.new)[0], cst.SimpleStatementLine).body[0], cst.Raise)


class RemoveFunction(Rewrite):
    """A function that nothing calls any more."""

    def leave_FunctionDef(  # type: ignore[override]
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.RemovalSentinel:
        found = self.qualified_name == self.function
        super().leave_FunctionDef(original_node, updated_node)
        if not found:
            return updated_node
        self.found += 1
        return cst.RemoveFromParent()


class WrapFirstArgument(Rewrite):
    """The first argument of every call of one function inside `function` is wrapped: ``f(x)`` is ``f(wrapper(x))``."""

    callee: ClassVar[str]
    wrapper: ClassVar[str]
    arguments: ClassVar[str] = ""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not self.inside() or code(original_node.func) != self.callee:
            return updated_node
        self.found += 1
        first, *others = updated_node.args
        wrapped = first.with_changes(value=cst.parse_expression(f"{self.wrapper}({code(first.value)})"))
        return updated_node.with_changes(args=[wrapped, *others])


class ReplaceAnnotation(Rewrite):
    """The declared type of one field of the class that `function` names."""

    field: ClassVar[str]
    annotation: ClassVar[str]

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> cst.AnnAssign:
        if not self.inside() or code(original_node.target) != self.field:
            return updated_node
        self.found += 1
        return updated_node.with_changes(annotation=cst.Annotation(cst.parse_expression(self.annotation)))


class ReplaceBase(Rewrite):
    """The parent of one top-level class."""

    name: ClassVar[str]
    base: ClassVar[str]

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        super().leave_ClassDef(original_node, updated_node)
        if self._stack or original_node.name.value != self.name:
            return updated_node
        self.found += 1
        return updated_node.with_changes(bases=[cst.Arg(cst.parse_expression(self.base))])


class WrapCallee(Rewrite):
    """Every call of one function inside `function` goes through a wrapper: ``f(x)`` becomes ``wrapper(f)(x)``.

    `arguments` follow the function in the call of the wrapper.
    """

    callee: ClassVar[str]
    wrapper: ClassVar[str]
    arguments: ClassVar[str] = ""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not self.inside() or code(original_node.func) != self.callee:
            return updated_node
        self.found += 1
        return updated_node.with_changes(func=cst.parse_expression(f"{self.wrapper}({self.callee}{self.arguments})"))


class AddArgument(Rewrite):
    """Every call of one function inside `function` gets one argument more."""

    callee: ClassVar[str]
    argument: ClassVar[str]

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not self.inside() or code(original_node.func) != self.callee:
            return updated_node
        self.found += 1
        added = cst.ensure_type(cst.parse_expression(f"f({self.argument})"), cst.Call).args
        return updated_node.with_changes(args=[*updated_node.args, *added])


class ReplaceKeyword(Rewrite):
    """The value of one keyword argument, in every call of one function inside `function`."""

    callee: ClassVar[str]
    keyword: ClassVar[str]
    value: ClassVar[str]

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not self.inside() or code(original_node.func) != self.callee:
            return updated_node
        args = list(updated_node.args)
        for i, argument in enumerate(args):
            if argument.keyword is not None and argument.keyword.value == self.keyword:
                self.found += 1
                args[i] = argument.with_changes(value=cst.parse_expression(self.value))
        return updated_node.with_changes(args=args)


class RemoveDefinitions(Rewrite):
    """Classes and functions that nothing needs any more, by their qualified names: the library defines them now."""

    names: ClassVar[tuple[str, ...]]

    def leave_ClassDef(  # type: ignore[override]
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef | cst.RemovalSentinel:
        removed = self._removes()
        kept = super().leave_ClassDef(original_node, updated_node)
        return cst.RemoveFromParent() if removed else kept

    def leave_FunctionDef(  # type: ignore[override]
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.RemovalSentinel:
        removed = self._removes()
        kept = super().leave_FunctionDef(original_node, updated_node)
        return cst.RemoveFromParent() if removed else kept

    def _removes(self) -> bool:
        removed = self.qualified_name in self.names
        self.found += removed
        return removed


class InsertStatements(Rewrite):
    """Statements of ours after or before each assignment to a name or statement with a call.

    Without any of these they stand at the function's start.
    """

    after_assignment: ClassVar[str | None] = None
    after_call: ClassVar[str | None] = None
    before_assignment: ClassVar[str | None] = None
    before_call: ClassVar[str | None] = None
    new: ClassVar[str]

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> "cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]":
        if not self.inside():
            return updated_node
        if _has(original_node, self.after_assignment, self.after_call):
            self.found += 1
            return cst.FlattenSentinel([updated_node, *statements(self.new)])
        if _has(original_node, self.before_assignment, self.before_call):
            self.found += 1
            return cst.FlattenSentinel([*statements(self.new), updated_node])
        return updated_node

    def on_function(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        if self.after_assignment or self.after_call or self.before_assignment or self.before_call:
            return updated
        self.found += 1
        body = list(updated.body.body)
        place = 1 if original.get_docstring() is not None else 0
        body[place:place] = statements(self.new)
        return updated.with_changes(body=updated.body.with_changes(body=body))


def _checks_error_response(node: cst.If) -> str | None:
    """The expression x of ``if isinstance(x, ErrorResponse)``."""
    test = node.test
    if not isinstance(test, cst.Call) or code(test.func) != "isinstance" or len(test.args) != 2:
        return None
    return code(test.args[0].value) if code(test.args[1].value) == "ErrorResponse" else None


class RaiseReturnedError(Rewrite):
    """``if isinstance(x, ErrorResponse): …`` raises what the response says, instead of sending it from the route."""

    imports: ClassVar[tuple[tuple[str, str], ...]] = (("vllm_omni_errors.seams", "response_error"),)

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        response = _checks_error_response(original_node) if self.inside() else None
        if response is None:
            return updated_node
        self.found += 1
        new = statements(f"raise response_error({response})")
        return updated_node.with_changes(body=updated_node.body.with_changes(body=new))


class DropErrorChecks(Rewrite):
    """``if isinstance(x, ErrorResponse): return x`` goes where x comes from a helper that raises now.

    Where x was needed for nothing else (`discard`), its assignment becomes a plain call.
    """

    discard: ClassVar[str | None] = None

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:
        if not self.inside() or original_node.orelse is not None or _checks_error_response(original_node) is None:
            return updated_node
        self.found += 1
        return cst.RemoveFromParent()

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign | cst.Expr:
        if self.inside() and [code(target.target) for target in original_node.targets] == [self.discard]:
            return cst.Expr(value=updated_node.value)
        return updated_node


class RaiseReturnedName(Rewrite):
    """``return x`` raises, where x is an error response that an inherited helper made."""

    name: ClassVar[str]
    imports: ClassVar[tuple[tuple[str, str], ...]] = (("vllm_omni_errors.seams", "response_error"),)

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return | cst.Raise:
        if not self.inside() or original_node.value is None or code(original_node.value) != self.name:
            return updated_node
        self.found += 1
        return cst.Raise(exc=cst.parse_expression(f"response_error({self.name})"))


def _handlers(source: str) -> list[cst.ExceptHandler]:
    module = cst.parse_module("try:\n    pass\n" + textwrap.dedent(source).strip() + "\n")
    return list(cst.ensure_type(module.body[0], cst.Try).handlers)


def _assigned(node: cst.CSTNode) -> set[str]:
    """Every target that an assignment below a node names."""
    assignments = matchers.AssignTarget() | matchers.AnnAssign()
    return {code(assignment.target) for assignment in matchers.findall(node, assignments)}  # type: ignore[attr-defined]


def _called(node: cst.CSTNode) -> set[str]:
    """Every function that a call below a node names."""
    return {code(call.func) for call in matchers.findall(node, matchers.Call())}  # type: ignore[attr-defined]


def _has(node: cst.CSTNode, assignment: str | None, call: str | None) -> bool:
    """Whether an assignment to that name or a call of that function is below a node."""
    return (assignment is not None and assignment in _assigned(node)) or (call is not None and call in _called(node))


class ExportNames(Rewrite):
    """The names that a module re-exports, in an ``__all__``."""

    names: ClassVar[tuple[str, ...]]

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        self.found += 1
        listed = statements("__all__ = [" + ", ".join(f'"{name}"' for name in self.names) + ",]")
        return updated_node.with_changes(body=[*updated_node.body, *listed])


class ReplaceClass(Rewrite):
    """The whole definition of the class that `function` names."""

    new: ClassVar[str]

    def on_class(self, original: cst.ClassDef, updated: cst.ClassDef) -> cst.ClassDef:
        self.found += 1
        made = cst.ensure_type(statements(self.new)[0], cst.ClassDef)
        return made.with_changes(leading_lines=updated.leading_lines)


class Decorate(Rewrite):
    """A function gets a decorator, outside of those that it has."""

    decorator: ClassVar[str]

    def on_function(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        self.found += 1
        added = cst.Decorator(decorator=cst.parse_expression(self.decorator))
        return updated.with_changes(decorators=[added, *updated.decorators])


class DropCalls(Rewrite):
    """Calls of one function inside `function` that are statements of their own go."""

    callee: ClassVar[str]

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        statement = original_node.body[0]
        call = statement.value if isinstance(statement, cst.Expr) else None
        if not self.inside() or not isinstance(call, cst.Call) or code(call.func) != self.callee:
            return updated_node
        self.found += 1
        return cst.RemoveFromParent()


class SendExceptions(ReplaceBody):
    """A helper that told the client a text takes an exception: its parameter ``message`` becomes ``error``."""

    def on_function(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        changed = super().on_function(original, updated)
        if changed is updated:
            return updated
        error = cst.ensure_type(cst.parse_statement("def f(error: Exception): ..."), cst.FunctionDef).params.params[0]
        parameters = [
            each.with_changes(name=error.name, annotation=error.annotation) if each.name.value == "message" else each
            for each in changed.params.params
        ]
        return changed.with_changes(params=changed.params.with_changes(params=parameters))


class CatchInstead(InTry):
    """One clause of a try statement catches other types; a name that it does not use any more goes."""

    clause: ClassVar[tuple[str, ...]]
    types: ClassVar[str]

    def on_try(self, original: cst.Try, updated: cst.Try) -> cst.Try:
        types = cst.parse_expression(self.types)
        handlers = [
            handler.with_changes(type=types, name=handler.name if _uses_its_name(handler) else None)
            if caught_types(handler) == self.clause
            else handler
            for handler in updated.handlers
        ]
        return updated.with_changes(handlers=handlers)


def _uses_its_name(handler: cst.ExceptHandler) -> bool:
    return handler.name is not None and bool(
        matchers.findall(handler.body, matchers.Name(value=code(handler.name.name)))
    )


class ReplaceClause(InTry):
    """One clause of a try statement gives way to clauses of ours."""

    clause: ClassVar[tuple[str, ...]]
    new: ClassVar[str]

    def on_try(self, original: cst.Try, updated: cst.Try) -> "cst.Try | cst.FlattenSentinel[cst.BaseStatement]":
        handlers: list[cst.ExceptHandler] = []
        for handler in updated.handlers:
            handlers += _handlers(self.new) if caught_types(handler) == self.clause else [handler]
        return updated.with_changes(handlers=handlers)


class TellInstead(Rewrite):
    """What a helper tells the client is an expression of ours, in or outside of the clauses that catch `caught`."""

    callee: ClassVar[str]
    caught: ClassVar[tuple[str, ...] | None]
    new: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self._clauses: list[tuple[str, ...]] = []

    def visit_ExceptHandler(self, node: cst.ExceptHandler) -> None:
        self._clauses.append(caught_types(node))

    def leave_ExceptHandler(
        self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler
    ) -> cst.ExceptHandler:
        self._clauses.pop()
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        here = self._clauses[-1] if self._clauses else None
        if not self.inside() or code(original_node.func) != self.callee or here != self.caught:
            return updated_node
        self.found += 1
        message = max(place for place, each in enumerate(updated_node.args[:2]) if each.keyword is None)
        arguments = list(updated_node.args)
        arguments[message] = arguments[message].with_changes(value=cst.parse_expression(self.new))
        return updated_node.with_changes(args=arguments)


class RaiseOnTimeout(InTry):
    """A deadline that expires ends the session: what its clause told the client by `callee` is raised."""

    callee: ClassVar[str]

    def on_try(self, original: cst.Try, updated: cst.Try) -> cst.Try:
        handlers = [
            handler.with_changes(body=cst.ensure_type(handler.body.visit(_RaiseTold(self.callee)), cst.IndentedBlock))
            if caught_types(handler) == ("asyncio.TimeoutError",)
            else handler
            for handler in updated.handlers
        ]
        return updated.with_changes(handlers=handlers)


class _RaiseTold(cst.CSTTransformer):
    """``await helper(socket, error)`` becomes ``raise error``, and what returned afterwards goes."""

    def __init__(self, callee: str) -> None:
        super().__init__()
        self.callee = callee

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> cst.Expr | cst.Raise:
        call = updated_node.value.expression if isinstance(updated_node.value, cst.Await) else None
        if not isinstance(call, cst.Call) or code(call.func) != self.callee:
            return updated_node
        told = [argument for argument in call.args[:2] if argument.keyword is None][-1].value
        return cst.Raise(exc=told, cause=cst.From(item=cst.Name("None")))

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.RemovalSentinel:
        return cst.RemoveFromParent()


class RefuseSession(Rewrite):
    """A session that was accepted only to be told why it is refused gets the HTTP status instead."""

    imports: ClassVar[tuple[tuple[str, str], ...]] = (("vllm_omni.errors", "OmniServiceUnavailableError"),)

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if not self.inside():
            return updated_node
        called = [
            next(iter(_called(each)), "").rpartition(".")[2] if isinstance(each, cst.SimpleStatementLine) else ""
            for each in original_node.body
        ]
        for start in range(len(called) - 2):
            if called[start : start + 3] == ["accept", "send_json", "close"]:
                break
        else:
            return updated_node
        self.found += 1
        told = matchers.findall(original_node.body[start + 1], matchers.DictElement())
        texts = {code(each.key).strip('"'): code(each.value) for each in told if isinstance(each, cst.DictElement)}
        message = texts["message"] if "message" in texts else texts["error"]
        raised = statements(f"raise OmniServiceUnavailableError({message}, permanent=True)")
        raised[0] = raised[0].with_changes(leading_lines=getattr(original_node.body[start], "leading_lines", ()))
        return updated_node.with_changes(body=[*updated_node.body[:start], *raised])


class AddMethods(Rewrite):
    """Methods of ours at the end of the class that `function` names."""

    new: ClassVar[str]

    def on_class(self, original: cst.ClassDef, updated: cst.ClassDef) -> cst.ClassDef:
        self.found += 1
        blank = cst.EmptyLine(indent=False)
        added = [each.with_changes(leading_lines=[blank]) for each in statements(self.new)]
        return updated.with_changes(body=updated.body.with_changes(body=[*updated.body.body, *added]))


class _Renewed(Rewrite):
    """Base of the rewrites of an expression that has parts with names; in `new`, ``$name`` is what the part was."""

    parts: ClassVar[tuple[str, ...]] = ()
    new: ClassVar[str]

    def _renewed(self, found: Mapping[str, str]) -> cst.BaseExpression | None:
        """The new expression, if the place is in `function` and has all of `parts`."""
        if not self.inside() or not found.keys() >= set(self.parts):
            return None
        self.found += 1
        return cst.parse_expression(Template(self.new).substitute(found))


class ReplaceCall(_Renewed):
    """Calls of one function that have certain arguments (`parts`: a keyword, or ``_0`` and so on for the positional
    ones), and whose text has `about` in it."""

    callee: ClassVar[str]
    about: ClassVar[str] = ""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if code(original_node.func) != self.callee or self.about not in code(original_node):
            return updated_node
        found = {
            f"_{position}" if argument.keyword is None else argument.keyword.value: code(argument.value)
            for position, argument in enumerate(updated_node.args)
        }
        return self._renewed(found) or updated_node


def _entries(node: cst.Dict) -> dict[str, str]:
    """Keys of a dict display that are plain strings, and what their values are written as."""
    elements = [element for element in node.elements if isinstance(element, cst.DictElement)]
    return {str(e.key.raw_value): code(e.value) for e in elements if isinstance(e.key, cst.SimpleString)}


class ReplaceDict(_Renewed):
    """Dict displays that have certain keys (`parts`), with the value `values` says where it says one."""

    values: ClassVar[tuple[tuple[str, str], ...]] = ()

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.BaseExpression:
        found = _entries(updated_node)
        if not found.items() >= set(self.values):
            return updated_node
        return self._renewed(found) or updated_node


class AddEntry(Rewrite):
    """Dict displays with certain entries (`values`: key, and value as it is written) get another one."""

    values: ClassVar[tuple[tuple[str, str], ...]]
    entry: ClassVar[str]

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.Dict:
        if not self.inside() or not _entries(original_node).items() >= set(self.values):
            return updated_node
        self.found += 1
        added = cst.ensure_type(cst.parse_expression("{" + self.entry + "}"), cst.Dict).elements
        return updated_node.with_changes(elements=[*updated_node.elements, *added])


class ReplaceStatement(Rewrite):
    """Statements that assign one of `targets`, or that only call `call`; no `new` means that they go."""

    targets: ClassVar[tuple[str, ...]] = ()
    call: ClassVar[str | None] = None
    about: ClassVar[str] = ""
    new: ClassVar[str] = ""

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> "cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel":
        if not self.inside() or not self._is_it(original_node.body[0]) or self.about not in code(original_node):
            return updated_node
        self.found += 1
        return cst.FlattenSentinel(statements(self.new)) if self.new else cst.RemoveFromParent()

    def _is_it(self, statement: cst.BaseSmallStatement) -> bool:
        if isinstance(statement, cst.Assign | cst.AnnAssign):
            return bool(set(self.targets) & _assigned(statement))
        return isinstance(statement, cst.Expr) and self.call in _called(statement)


class AddMembers(Rewrite):
    """A field of ours after one of a top-level class's own, and methods of ours at its end."""

    owner: ClassVar[str]
    after_field: ClassVar[str]
    fields: ClassVar[str]
    methods: ClassVar[str] = ""

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        super().leave_ClassDef(original_node, updated_node)
        if self._stack or original_node.name.value != self.owner:
            return updated_node
        body: list[cst.BaseStatement] = []
        for statement in updated_node.body.body:
            body.append(statement)  # type: ignore[arg-type]
            if isinstance(statement, cst.SimpleStatementLine) and self.after_field in _assigned(statement):
                self.found += 1
                body += statements(self.fields)
        methods = statements(self.methods)
        body += [method.with_changes(leading_lines=[cst.EmptyLine(indent=False)]) for method in methods]
        return updated_node.with_changes(body=updated_node.body.with_changes(body=body))


class AddParent(Rewrite):
    """A top-level class gets one more parent, before its own: code that catches it by its name still does."""

    owner: ClassVar[str]
    parent: ClassVar[str]

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        super().leave_ClassDef(original_node, updated_node)
        if self._stack or original_node.name.value != self.owner:
            return updated_node
        self.found += 1
        return updated_node.with_changes(bases=[cst.Arg(cst.Name(self.parent)), *updated_node.bases])


class ReplaceFunction(Rewrite):
    """A whole function, which is another now. `shape` is the original's `shape_hash`."""

    shape: ClassVar[str]
    new: ClassVar[str]

    def on_function(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> cst.FunctionDef:
        plain = original.with_changes(leading_lines=(), lines_after_decorators=(), decorators=())
        if shape_hash(code(plain)) != self.shape:
            return updated
        self.found += 1
        (new,) = statements(self.new)
        return cst.ensure_type(new, cst.FunctionDef).with_changes(leading_lines=updated.leading_lines)


class AddLastClause(InTry):
    """A clause of ours after the others."""

    new: ClassVar[str]

    def on_try(self, original: cst.Try, updated: cst.Try) -> cst.Try:
        return updated.with_changes(handlers=[*updated.handlers, *_handlers(self.new)])


class AfterLoop(Rewrite):
    """Statements of ours after a ``while`` loop, found by its test."""

    test: ClassVar[str]
    new: ClassVar[str]

    def leave_While(
        self, original_node: cst.While, updated_node: cst.While
    ) -> "cst.While | cst.FlattenSentinel[cst.BaseStatement]":
        if not self.inside() or code(original_node.test) != self.test:
            return updated_node
        self.found += 1
        return cst.FlattenSentinel([updated_node, *statements(self.new)])
