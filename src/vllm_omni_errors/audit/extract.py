# SPDX-License-Identifier: Apache-2.0
"""One file's text → `File`: a single walk over the standard library's tree."""

import ast
import builtins
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any

from vllm_omni_errors.audit.facts import (
    BARE,
    DETACHED,
    EXPRESSION,
    NO_CHAIN,
    REFERENCE,
    STREAMED,
    VARIABLE,
    Action,
    Call,
    Chain,
    Class,
    File,
    Function,
    Handler,
    Raise,
    Response,
    Route,
)
from vllm_omni_errors.audit.messages import (
    NO_MESSAGE,
    Message,
    Source,
    as_parsed,
    children,
    echo_of,
    hash_of,
    made_of,
    message,
    normalized,
)

MODULE_FUNCTION = ""
RESPONSES = frozenset(
    {
        "create_error_response",
        "_create_error_response",
        "create_streaming_error_response",
        "_diffusion_error_response",
        "_create_engine_error_json_response",
        "ErrorResponse",
    }
)
HTTP_RESPONSES = frozenset({"JSONResponse", "ORJSONResponse", "Response", "PlainTextResponse", "HTMLResponse"})
METHODS = frozenset({"get", "post", "put", "delete", "patch", "head", "options", "websocket", "api_route"})
DETACHING = frozenset(
    {"create_task", "ensure_future", "run_coroutine_threadsafe", "call_soon", "call_soon_threadsafe", "call_later",
     "Thread", "Process", "Timer", "add_task", "BackgroundTask", "start_new_thread"}
)  # fmt: skip
FIELDS = frozenset({"error", "error_message", "error_status_code", "error_type"})
ERROR_SENDERS = re.compile(r"^_*(?:send|emit|write|queue|publish)_\w*error\w*$|^\w*error_payload$")
SENDERS = frozenset({"send_json", "send_text", "send_bytes", "send"})
QUEUEING = frozenset({"put", "put_nowait"})
EVENT = re.compile(r"^(?:event|data): ")
# Methods of built-in and tensor types: a call by one of these names alone says nothing about who is called.
COMMON = frozenset(
    {name for kind in (str, bytes, dict, list, set, tuple, int, float) for name in dir(kind)}
    | {"to", "cuda", "cpu", "view", "reshape", "size", "item", "unsqueeze", "squeeze", "permute", "transpose", "float",
       "numpy", "tolist", "mean", "sum", "info", "debug", "warning", "error", "exception", "is_set", "put",
       "put_nowait", "get_nowait",
       "wait", "acquire", "release", "read_text", "exists", "mkdir", "resolve", "is_file", "is_dir"}
)  # fmt: skip
_NAMES = re.compile(r"[A-Za-z_][\w.]*")
_CONSTANT_STATUS = re.compile(r"HTTP_(\d{3})_")
_TYPING = frozenset(
    {"Any", "None", "Optional", "Union", "list", "dict", "tuple", "set", "frozenset", "type", "str", "int", "float",
     "bool", "bytes", "object", "Callable", "Awaitable", "Iterator", "Iterable", "Sequence", "Mapping", "Generator",
     "AsyncGenerator", "AsyncIterator", "Literal", "Annotated", "ClassVar", "Self"}
)  # fmt: skip

_BUILTINS = frozenset(vars(builtins))
_OWN = frozenset({"self", "cls", "super"})
_SCOPES = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda})
_LEAVES = frozenset({ast.Name, ast.Constant, ast.Load, ast.Store, ast.Del, ast.Pass, str, int, type(None)})
_PARTS: dict[type, tuple[str, ...]] = {
    kind: tuple(name for name in kind._fields if name not in ("ctx", "op", "ops", "id", "attr", "arg", "conversion"))
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_PARTS[ast.Constant] = _PARTS[ast.MatchSingleton] = ()
"""The parts of each kind of node that may hold an expression."""


def extract(path: str, text: bytes, package: str = "vllm_omni") -> File:
    """What one file of a package says. A file that does not parse has a `problem`, and nothing else."""
    lines = text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        source = Source(as_parsed(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return File(path, lines, problem=f"{type(error).__name__}: {getattr(error, 'msg', None) or error}")
    walk = _Walk(File(path, lines), source, package)
    try:
        walk.statements(tree.body)
    except RecursionError:
        return File(path, lines, problem="RecursionError: nested too deeply")
    return walk.finished()


def dotted(node: ast.AST) -> str:
    """An expression as a path of names, with ``()`` for a call and ``[]`` for an item; empty for anything else."""
    rest = ""
    part: Any = node
    while True:
        kind = part.__class__
        if kind is ast.Name:
            return f"{part.id}{rest}"
        if kind is ast.Attribute:
            rest = f".{part.attr}{rest}"
            part = part.value
        elif kind is ast.Call:
            rest = "()" + rest
            part = part.func
        elif kind is ast.Subscript:
            rest = "[]" + rest
            part = part.value
        elif kind is ast.Await:
            part = part.value
        else:
            return ""


def status_of(node: ast.expr | None) -> int | None:
    """An HTTP status that the source spells out."""
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Attribute():
            names = dotted(node).split(".")
            if "HTTPStatus" in names[:-1]:
                found = HTTPStatus.__members__.get(names[names.index("HTTPStatus") + 1])
                return int(found) if found is not None else None
            constant = _CONSTANT_STATUS.match(names[-1])
            return int(constant.group(1)) if constant else None
        case ast.Call(func=ast.Name(id="int"), args=[argument]):
            return status_of(argument)
    return None


def _status_in(call: ast.Call, position: int | None = None) -> int | None:
    for keyword in call.keywords:
        if keyword.arg in ("status_code", "code", "status"):
            return status_of(keyword.value)
    return status_of(call.args[position]) if position is not None and len(call.args) > position else None


@dataclass(slots=True)
class _Scope:
    """The function, or the module, whose statements are being walked."""

    name: str
    line: int
    cls: str
    is_async: bool = False
    is_generator: bool = False
    decorators: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()
    calls: dict[tuple[str, int, int], int] = field(default_factory=dict)
    types: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class _ClassScope:
    name: str
    line: int
    bases: tuple[str, ...]
    attributes: dict[str, list[str]] = field(default_factory=dict)
    properties: list[str] = field(default_factory=list)


class _Walk:
    def __init__(self, file: File, source: Source, package: str) -> None:
        self.file, self.source, self.package = file, source, package
        self.names: list[str] = []
        self.scope = _Scope(MODULE_FUNCTION, 1, "")
        self.scopes = [self.scope]
        self.classes: list[_ClassScope] = []
        self.class_stack: list[_ClassScope] = []
        self.chain = NO_CHAIN
        self.handled: tuple[str, ...] | None = None
        self.caught: str | None = None
        self.renamed: dict[str, str] = {}
        self.local: set[str] = set()
        self.counted: set[int] = set()
        self.detached: set[int] = set()

    # ---- statements ----

    def statements(self, body: list[ast.stmt]) -> None:
        for node in body:
            method = _STATEMENTS.get(type(node))
            if method is not None:
                method(self, node)
            else:
                self.expressions(node)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.expressions(decorator)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.expressions(default)
        self.names.append(node.name)
        name = ".".join(self.names)
        self.local.add(node.name)
        parent = (
            self.class_stack[-1]
            if self.class_stack and ".".join(self.names[:-1]) == self.class_stack[-1].name
            else None
        )
        scope = _Scope(
            name,
            node.lineno,
            parent.name if parent else self.scope.cls,
            isinstance(node, ast.AsyncFunctionDef),
            decorators=tuple(filter(None, (dotted(decorator) for decorator in node.decorator_list))),
            returns=_annotation(node.returns),
        )
        if parent and any(d.endswith("property") for d in scope.decorators):
            parent.properties.append(node.name)
        self._routes(node, name)
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            types = _annotation(argument.annotation)
            if types:
                scope.types[argument.arg] = list(types)
        outer = self.scope, self.chain, self.handled, self.caught
        self.scope, self.chain, self.handled, self.caught = scope, NO_CHAIN, None, None
        self.scopes.append(scope)
        self.statements(node.body)
        self.scope, self.chain, self.handled, self.caught = outer
        self.names.pop()

    def class_(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.expressions(decorator)
        self.names.append(node.name)
        self.local.add(node.name)
        bases = tuple(filter(None, (dotted(base).split("[")[0] for base in node.bases)))
        scope = _ClassScope(".".join(self.names), node.lineno, bases)
        self.classes.append(scope)
        self.class_stack.append(scope)
        outer = self.scope
        self.scope = _Scope(scope.name, node.lineno, scope.name)
        self.scopes.append(self.scope)
        self.statements(node.body)
        for name, types in self.scope.types.items():
            scope.attributes.setdefault(name, []).extend(types)
        self.scope = outer
        self.class_stack.pop()
        self.names.pop()

    def try_(self, node: "ast.Try | ast.TryStar") -> None:
        if not node.handlers:
            self.statements(node.body)
        else:
            outer = self.chain
            places = []
            for handler in node.handlers:
                types = _caught(handler)
                types = tuple(self.renamed.get(name, name) for name in types)
                places.append(len(self.file.handlers))
                actions, digest = self._actions(handler)
                self.file.handlers.append(Handler(handler.lineno, ".".join(self.names), types, digest, actions, outer))
            self.chain = len(self.file.chains)
            self.file.chains.append(Chain(outer, tuple(places)))
            self.statements(node.body)
            self.chain = outer
            for handler, place in zip(node.handlers, places, strict=True):
                before = self.handled, self.caught
                self.handled, self.caught = self.file.handlers[place].types, handler.name
                if handler.type is not None:
                    self.expressions(handler.type)
                self.statements(handler.body)
                self.handled, self.caught = before
        self.statements(node.orelse)
        self.statements(node.finalbody)

    def raise_(self, node: ast.Raise) -> None:
        call = node.exc if isinstance(node.exc, ast.Call) else None
        name = self._raised(node.exc)
        said = message(self.source, call, self.caught)
        status = _status_in(call, 0 if name == "HTTPException" else None) if call else None
        made = dotted(node.exc) if name == VARIABLE and node.exc is not None else ""
        if made and made == self.caught and self.handled and len(self.handled) == 1:
            made = "=" + self.handled[0]
        self.file.raises.append(
            Raise(
                node.lineno, ".".join(self.names), name, said.text, said.hash, said.echo, self.chain, self.handled,
                status, made,
            )
        )  # fmt: skip
        self.expressions(node.exc, node.cause)

    def return_(self, node: ast.Return) -> None:
        if node.value is None:
            return
        if isinstance(node.value, ast.Call) and _last(dotted(node.value.func)) in RESPONSES:
            self._response(node.value, "returned")
        self.expressions(node.value)

    def assign(self, node: ast.Assign) -> None:
        self._assigned(node, node.targets, self._made(node.value))
        self.expressions(*node.targets, node.value)

    def annotated(self, node: ast.AnnAssign) -> None:
        self._assigned(node, [node.target], (*_annotation(node.annotation), *self._made(node.value)))
        self.expressions(node.target, node.annotation, node.value)

    def _assigned(self, node: ast.Assign | ast.AnnAssign, targets: list[ast.expr], types: tuple[str, ...]) -> None:
        for target in targets:
            if isinstance(target, ast.Name):
                if types:
                    self.scope.types.setdefault(target.id, []).extend(types)
                if isinstance(node.value, ast.Name | ast.Attribute) and target.id[:1].isupper():
                    self.renamed[target.id] = _last(dotted(node.value))
            elif isinstance(target, ast.Attribute):
                if types and isinstance(target.value, ast.Name) and target.value.id == "self" and self.class_stack:
                    self.class_stack[-1].attributes.setdefault(target.attr, []).extend(types)
                if target.attr in FIELDS and not _is_nothing(node.value):
                    said = self._said(node.value) if node.value is not None else None
                    if said is not None and dotted(target.value) != "self":
                        self._add_response(node.lineno, "fields", target.attr, said, None)

    def expression(self, node: ast.Expr) -> None:
        self.expressions(node.value)

    def if_(self, node: ast.If) -> None:
        self.expressions(node.test)
        self.statements(node.body)
        self.statements(node.orelse)

    def block(self, node: Any) -> None:
        """A statement that holds statements: its expressions first, then what it holds."""
        for value in node.__dict__.values():
            if value.__class__ is list:
                if value and isinstance(value[0], ast.stmt):
                    self.statements(value)
                    continue
                for item in value:
                    if isinstance(item, ast.withitem):
                        self._with_item(item)
                    elif isinstance(item, ast.match_case):
                        self.expressions(item.pattern)
                        if item.guard is not None:
                            self.expressions(item.guard)
                        self.statements(item.body)
                    elif isinstance(item, ast.AST):
                        self.expressions(item)
            elif isinstance(value, ast.expr):
                self.expressions(value)

    def _with_item(self, item: ast.withitem) -> None:
        if isinstance(item.optional_vars, ast.Name):
            self.scope.types.setdefault(item.optional_vars.id, []).extend(self._made(item.context_expr))
        self.expressions(item.context_expr)

    def import_(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                self.file.imports[alias.asname] = alias.name
            else:
                top = alias.name.partition(".")[0]
                self.file.imports[top] = top

    def import_from(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            self.file.imports[alias.asname or alias.name] = f"{module}:{alias.name}"
            if alias.asname and alias.name != alias.asname:
                self.renamed[alias.asname] = alias.name

    # ---- expressions ----

    def expressions(self, *roots: ast.AST | None) -> None:
        """Every call below some nodes, the last first, and the error answers that they make by hand."""
        stack: list[Any] = []
        pop, push = stack.pop, stack.append
        for root in roots:
            if root.__class__ not in _LEAVES:
                push(root)
        note, chain = self.scope.calls.setdefault, self.chain
        while stack:
            node = pop()
            kind = node.__class__
            if kind is ast.Call:
                self._call(node, push)
            elif kind is ast.Attribute:
                base = node.value
                if base.__class__ is ast.Name:
                    if base.id == "self":
                        note(("self." + node.attr, chain, REFERENCE), node.lineno)
                elif base.__class__ not in _LEAVES:
                    push(base)
            elif kind is ast.BinOp:
                if node.left.__class__ not in _LEAVES:
                    push(node.left)
                if node.right.__class__ not in _LEAVES:
                    push(node.right)
            else:
                if kind is ast.Dict:
                    self._dict(node)
                elif kind is ast.JoinedStr:
                    self._event(node)
                elif kind is ast.Yield or kind is ast.YieldFrom:
                    self.scope.is_generator = True
                for name in _PARTS[kind]:
                    value = getattr(node, name)
                    if value.__class__ is list:
                        for item in value:
                            if item.__class__ not in _LEAVES:
                                push(item)
                    elif value.__class__ not in _LEAVES:
                        push(value)

    def _call(self, node: ast.Call, push: Callable[[ast.expr], None]) -> None:
        note, chain, line = self.scope.calls.setdefault, self.chain, node.lineno
        function: Any = node.func
        if function.__class__ is ast.Name:
            callee = last = function.id
        elif function.__class__ is ast.Attribute and function.value.__class__ is ast.Name:
            last = function.attr
            callee = f"{function.value.id}.{last}"
        else:
            callee = dotted(function)
            last = callee.rpartition(".")[2]
            if function.__class__ is ast.Attribute:
                function = function.value
            if function.__class__ not in _LEAVES:
                push(function)
        if callee and callee not in _BUILTINS:
            note((callee, chain, DETACHED if id(node) in self.detached else 0), line)
        flags = DETACHED if last in DETACHING else STREAMED if last == "StreamingResponse" else 0
        given: list[Any] = node.args
        if node.keywords:
            given = [*given, *[keyword.value for keyword in node.keywords]]
        for value in given:
            kind = value.__class__
            if kind is ast.Name:
                note((value.id, chain, REFERENCE | flags), line)
            elif kind is ast.Attribute and value.value.__class__ is ast.Name:
                if value.value.id == "self":
                    note(("self." + value.attr, chain, REFERENCE | flags), line)
                    if flags:
                        push(value)
            elif kind not in _LEAVES:
                push(value)
                if kind is ast.Call and flags == DETACHED:
                    self.detached.add(id(value))
        answers = _answering(last)
        if answers is not None:
            answers(self, node, last, callee)

    # ---- responses ----

    def _maker(self, node: ast.Call, _last: str, _callee: str) -> None:
        if id(node) not in self.counted:
            self._response(node, "built")

    def _http(self, node: ast.Call, last: str, _callee: str) -> None:
        status = _status_in(node)
        body = next((k.value for k in node.keywords if k.arg == "content"), node.args[0] if node.args else None)
        given = any(k.arg == "status_code" for k in node.keywords)
        if (status is not None and status >= 400) or (given and status is None) or _is_error_dict(body):
            self._claim(body)
            self._add_response(node.lineno, "json", last, self._said(_text_in(body)), status)

    def _between_processes(self, node: ast.Call, last: str, _callee: str) -> None:
        error = next((k.value for k in node.keywords if k.arg == "error"), None)
        status = next((status_of(k.value) for k in node.keywords if k.arg == "status_code"), None)
        self._add_response(node.lineno, "message", last, self._said(error), status)

    def _error_sender(self, node: ast.Call, last: str, _callee: str) -> None:
        strings = [a for a in node.args if isinstance(a, ast.Constant | ast.JoinedStr | ast.BinOp)]
        text = strings[-1] if strings else node.args[-1] if node.args else None
        self._add_response(node.lineno, "websocket", last, self._said(text), None)

    def _sender(self, node: ast.Call, last: str, _callee: str) -> None:
        if node.args and _is_error_dict(node.args[0]):
            self._claim(node.args[0])
            self._add_response(node.lineno, "websocket", last, self._said(_text_in(node.args[0])), None)

    def _close(self, node: ast.Call, _last: str, callee: str) -> None:
        if "websocket" in callee.lower() and (node.args or node.keywords):
            code = next((status_of(k.value) for k in node.keywords if k.arg == "code"), None)
            reason = next((k.value for k in node.keywords if k.arg == "reason"), None)
            self._add_response(node.lineno, "websocket", f"close {code or ''}".strip(), self._said(reason), None)

    def _output(self, node: ast.Call, last: str, _callee: str) -> None:
        error = next((k.value for k in node.keywords if k.arg == "error" and not _is_nothing(k.value)), None)
        if error is not None and "error" not in last.lower():
            self._claim(error)
            status = next((status_of(k.value) for k in node.keywords if k.arg and "status_code" in k.arg), None)
            self._add_response(node.lineno, "fields", last, self._said(_text_in(error)), status)

    def _dict(self, node: ast.Dict) -> None:
        if id(node) not in self.counted and _is_error_dict(node):
            self._claim(node)
            status = next((status_of(v) for k, v in _items(node) if k in ("code", "status_code")), None)
            self._add_response(node.lineno, "dict", "dict", self._said(_text_in(node)), status)

    def _event(self, node: ast.JoinedStr) -> None:
        first = node.values[0] if node.values else None
        if not (isinstance(first, ast.Constant) and isinstance(first.value, str) and EVENT.match(first.value)):
            return
        if self.handled is not None or "error" in self.source.between(*self.source.span(node)).lower():
            self._add_response(node.lineno, "sse", "event", self._said(node), None)

    def _claim(self, node: ast.AST | None) -> None:
        """A dict that belongs to a response is none of its own."""
        if node is not None:
            self.counted.update(id(part) for part in ast.walk(node) if isinstance(part, ast.Dict))

    def _response(self, node: ast.Call, form: str) -> None:
        self.counted.add(id(node))
        callee = _last(dotted(node.func))
        said = message(self.source, node, self.caught)
        status = _status_in(node)
        if callee == "ErrorResponse":
            info = next((k.value for k in node.keywords if k.arg == "error"), None)
            if isinstance(info, ast.Call):
                said, status = message(self.source, info, self.caught), _status_in(info)
        self._add_response(node.lineno, form, callee, said, status)

    def _add_response(self, line: int, form: str, callee: str, said: Message | None, status: int | None) -> None:
        said = said or made_of(NO_MESSAGE)
        self.file.responses.append(
            Response(line, ".".join(self.names), form, callee, said.text, said.hash, said.echo, self.chain,
                     self.handled, status)
        )  # fmt: skip

    def _said(self, node: ast.expr | None) -> Message | None:
        if node is None:
            return None
        return made_of(normalized(self.source, node, self.source.span(node)), echo_of(node, self.caught))

    # ---- what names mean ----

    def _raised(self, node: ast.expr | None) -> str:
        if node is None:
            return BARE
        name = dotted(node.func if isinstance(node, ast.Call) else node)
        last = _last(name)
        if not name or "(" in name or "[" in name:
            return EXPRESSION
        if not last.lstrip("_")[:1].isupper():
            return VARIABLE
        return self.renamed.get(last, last) if name == last else last

    def _made(self, node: ast.expr | None) -> tuple[str, ...]:
        match node:
            case ast.Call() | ast.Await():
                name = dotted(node)
                return (name,) if name else ()
            case ast.Name():
                return tuple(self.scope.types.get(node.id, ()))
            case ast.Attribute():
                name = dotted(node)
                return ("=" + name,) if name else ()
            case ast.BoolOp():
                return tuple(found for value in node.values for found in self._made(value))
            case ast.IfExp():
                return (*self._made(node.body), *self._made(node.orelse))
        return ()

    def _routes(self, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> None:
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            method = _last(dotted(decorator.func))
            if method not in METHODS or not isinstance(decorator.func, ast.Attribute) or not decorator.args:
                continue
            path = decorator.args[0]
            if isinstance(path, ast.Constant) and isinstance(path.value, str) and path.value.startswith("/"):
                shown = "WS" if method == "websocket" else method.upper()
                self.file.routes.append(Route(name, shown, made_of(path.value).text))

    def _actions(self, handler: ast.ExceptHandler) -> tuple[tuple[Action, ...], str]:
        """What a clause does, in order, and a hash of it that does not depend on layout or on local names."""
        actions: list[Action] = []
        words: list[str] = [handler.name or ""]
        stack: list[ast.AST] = list(reversed(handler.body))
        while stack:
            node = stack.pop()
            if node.__class__ in _SCOPES:
                continue
            if isinstance(node, ast.Raise):
                name = self._raised(node.exc)
                same = isinstance(node.exc, ast.Name) and node.exc.id == handler.name
                detail = "" if name == BARE or same else name
                call = node.exc if isinstance(node.exc, ast.Call) else None
                status = _status_in(call, 0 if name == "HTTPException" else None) if call else None
                actions.append(Action("raises", detail, status))
                words.append(f"raise {detail} {status or ''}")
            elif isinstance(node, ast.Call):
                name = dotted(node.func)
                last = _last(name)
                words.append(name or "?")
                if last in RESPONSES or (last in HTTP_RESPONSES and node.keywords):
                    actions.append(Action("responds", last, _status_in(node)))
                elif ERROR_SENDERS.match(last) or (last in SENDERS and "socket" in name.lower()) or last in QUEUEING:
                    actions.append(Action("sends", last, None))
            elif isinstance(node, (ast.Return, ast.Continue, ast.Break)):
                words.append(type(node).__name__.lower())
                actions.append(Action("breaks", type(node).__name__.lower(), None))
            elif isinstance(node, ast.Yield):
                words.append("yield")
                actions.append(Action("sends", "yield", None))
            stack.extend(reversed(children(node)))
        return tuple(actions), hash_of("|".join(words))

    # ---- the end ----

    def finished(self) -> File:
        """The record, without the calls that cannot lead to anything in the tree."""
        file = self.file
        known = self.local | {name for name, origin in file.imports.items() if self._inside(origin)}
        outside = file.imports.keys() - known
        methods = {scope.name.rpartition(".")[2] for scope in self.scopes}
        for scope in self.scopes:
            made = []
            roots = set()
            for (callee, chain, flags), line in scope.calls.items():
                if callee.isidentifier():
                    root = callee
                    leads = root in known if flags & REFERENCE else root not in outside or root in _OWN
                else:
                    root = _root(callee)
                    leads = _leads(callee, root, flags, scope, known, outside, methods)
                if leads:
                    made.append(Call(callee, line, chain, flags))
                    roots.add(root)
            if not made and scope.name == MODULE_FUNCTION:
                continue
            types = {
                name: tuple(dict.fromkeys(found))
                for name, found in scope.types.items()
                if found and (name in roots or scope.decorators)
            }
            file.functions.append(
                Function(scope.name, scope.line, scope.cls, scope.is_async, scope.is_generator, scope.decorators,
                         scope.returns, made, types)
            )  # fmt: skip
        file.imports = {name: origin for name, origin in file.imports.items() if name in known}
        for cls in self.classes:
            attributes = {name: tuple(dict.fromkeys(types)) for name, types in cls.attributes.items()}
            file.classes.append(Class(cls.name, cls.line, cls.bases, attributes, tuple(cls.properties)))
        return file

    def _inside(self, origin: str) -> bool:
        return origin.startswith(".") or origin.partition(":")[0].partition(".")[0] == self.package


def _root(callee: str) -> str:
    return callee.partition(".")[0].partition("(")[0].partition("[")[0]


def _leads(
    callee: str, root: str, flags: int, scope: _Scope, known: set[str], outside: set[str], methods: set[str]
) -> bool:
    """Whether what is called, which is more than a name, may lead to the tree."""
    if flags & REFERENCE:
        return root == "self" and callee.rpartition(".")[2] in methods
    if root in known or root in _OWN:
        return True
    return root in scope.types or (root not in outside and callee.rpartition(".")[2] not in COMMON)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _caught(handler: ast.ExceptHandler) -> tuple[str, ...]:
    if handler.type is None:
        return ("BaseException",)
    elements = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = (_last(dotted(element)) for element in elements)
    return tuple(name if name and name[-1] not in ")]" else EXPRESSION for name in names)


def _annotation(node: ast.expr | None) -> tuple[str, ...]:
    if node is None:
        return ()
    if node.__class__ is ast.Name:
        return () if node.id in _TYPING else (node.id,)
    found: list[str] = []
    stack: list[Any] = [node]
    while stack:
        part = stack.pop()
        kind = part.__class__
        if kind is ast.Name or kind is ast.Attribute:
            found.append(dotted(part))
        elif kind is ast.BinOp:
            stack += (part.left, part.right)
        elif kind is ast.Subscript:
            stack += (part.value, part.slice)
        elif kind is ast.Tuple or kind is ast.List:
            stack += part.elts
        elif kind is ast.Constant and part.value.__class__ is str:
            found += _NAMES.findall(part.value)
    return tuple(name for name in dict.fromkeys(found) if name and name not in _TYPING)


def _is_nothing(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value in (None, False, ""))


def _items(node: ast.Dict) -> list[tuple[str, ast.expr]]:
    return [
        (key.value, value)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]


def _is_error_dict(node: ast.AST | None) -> bool:
    if not isinstance(node, ast.Dict):
        return False
    for key, value in _items(node):
        if key == "error" and not _is_nothing(value) and not isinstance(value, ast.Name | ast.Attribute):
            return True
        if key in ("type", "status") and isinstance(value, ast.Constant) and value.value == "error":
            return True
    return False


def _text_in(node: ast.expr | None) -> ast.expr | None:
    """The message within a hand-made error."""
    if not isinstance(node, ast.Dict):
        return node
    items = dict(_items(node))
    for key in ("message", "detail", "error"):
        if key in items:
            return _text_in(items[key])
    return node


_STATEMENTS: dict[type, Any] = {
    ast.FunctionDef: _Walk.function,
    ast.AsyncFunctionDef: _Walk.function,
    ast.ClassDef: _Walk.class_,
    ast.Try: _Walk.try_,
    ast.TryStar: _Walk.try_,
    ast.Raise: _Walk.raise_,
    ast.Return: _Walk.return_,
    ast.Assign: _Walk.assign,
    ast.AnnAssign: _Walk.annotated,
    ast.Expr: _Walk.expression,
    ast.If: _Walk.if_,
    ast.Import: _Walk.import_,
    ast.ImportFrom: _Walk.import_from,
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Match), _Walk.block),
}
_ANSWERS: dict[str, Any] = {
    **dict.fromkeys(RESPONSES, _Walk._maker),
    **dict.fromkeys(HTTP_RESPONSES, _Walk._http),
    **dict.fromkeys(SENDERS, _Walk._sender),
    "ErrorMessage": _Walk._between_processes,
    "close": _Walk._close,
}
"""What makes an error answer, by its last name."""


@cache
def _answering(last: str) -> Any:
    """How calls of a name are read for an error answer, or None."""
    if last in _ANSWERS:
        return _ANSWERS[last]
    if last[:1].isupper():
        return _Walk._output
    return _Walk._error_sender if "error" in last and ERROR_SENDERS.match(last) else None
