# SPDX-License-Identifier: Apache-2.0
"""Who calls whom in a tree, as far as names, annotations and constructors tell; what is only a guess says so.

A call is resolved through imports, the types that annotations and constructors give to names and attributes, and return
annotations. A method of a declared type leads to its overrides too. Where nothing tells the receiver's type, a method's
name that few classes of the tree define is taken as a guess.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

from vllm_omni_errors.audit.extract import COMMON
from vllm_omni_errors.audit.facts import NO_CHAIN, REFERENCE, Class, File, Function
from vllm_omni_errors.audit.parallel import in_processes

GUESSES = 3
"""A method's name alone is followed if at most so many functions have it."""
OVERRIDES = 60
PARALLEL_FROM_FUNCTIONS = 1_000
DEPTH = 6

_STEP = re.compile(r"[^.()\[\]]+|\(\)|\[\]")


class Edge(NamedTuple):
    """A call from one function to another.

    Attributes:
        target: place of the callee in `Graph.functions`.
        chain: innermost try statement around the call, in the caller's file.
        flags: those of `facts.Call`.
        guess: why it is not certain; empty if it is.
        line: of the call.
    """

    target: int
    chain: int
    flags: int
    guess: str
    line: int


class Node(NamedTuple):
    """A function, and the file that it stands in."""

    path: str
    function: Function
    file: File

    @property
    def title(self) -> str:
        """``path:function``, for people."""
        return f"{self.path}:{self.function.name}"


class _Type(NamedTuple):
    path: str
    cls: Class


class Graph:
    """The calls of a tree.

    Attributes:
        functions: every function, with the statements of each module as a function without a name.
        edges: for each function, its calls.
        index: ``(path, qualified name)`` → place in `functions`.
    """

    def __init__(self, package: str, files: Sequence[File]) -> None:
        self.package = package
        self.files = {file.path: file for file in files}
        self.functions: list[Node] = [Node(f.path, function, f) for f in files for function in f.functions]
        self.index = {(node.path, node.function.name): place for place, node in enumerate(self.functions)}
        self._modules = {_module(package, file.path): file for file in files}
        self._module_of = {file.path: name for name, file in self._modules.items()}
        self._classes: dict[tuple[str, str], Class] = {(f.path, c.name): c for f in files for c in f.classes}
        self._methods: dict[str, list[int]] = defaultdict(list)
        self._own: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        self._inner: dict[str, set[str]] = defaultdict(set)  # by file, names that some function gives a meaning
        for place, node in enumerate(self.functions):
            owner, _, name = node.function.name.rpartition(".")
            self._inner[node.path].update(node.function.types)
            if (node.path, owner) in self._classes:
                self._methods[name].append(place)
                self._own[node.path, owner][name] = place
            elif owner:
                self._inner[node.path].add(name)
        self._names: dict[tuple[str, str], tuple[str, object] | None] = {}
        self._lines: dict[tuple[str, str], tuple[_Type, ...]] = {}
        self._inherited: dict[tuple[str, str], dict[str, int]] = {}
        self._properties = {name for cls in self._classes.values() for name in cls.properties}
        self._validators: dict[tuple[str, str], list[int]] = {}
        self._subclasses: dict[tuple[str, str], list[_Type]] = {}
        self._children: dict[tuple[str, str], list[_Type]] = defaultdict(list)
        self._attributes: dict[tuple[str, str, str], list[_Type]] = {}
        self._held: dict[tuple[int, str], list[_Type]] = {}
        for (path, _), cls in self._classes.items():
            for base in self.bases(path, cls):
                self._children[base.path, base.cls.name].append(_Type(path, cls))
        self._routes = {(file.path, route.function) for file in files for route in file.routes}
        self.edges = self._edges(range(len(self.functions)))

    def _edges(self, places: range) -> list[list[Edge]]:
        """Of functions; the second half in another process, if it is worth one."""
        if len(places) < PARALLEL_FROM_FUNCTIONS:
            return [self._edges_of(place) for place in places]
        middle = len(places) // 2
        with in_processes(lambda some: [self._edges_of(place) for place in some], [places[middle:]]) as found:
            edges = [self._edges_of(place) for place in places[:middle]]
            try:
                return edges + next(found)
            except BrokenProcessPool:  # somebody killed it
                return edges + [self._edges_of(place) for place in places[middle:]]

    # ---- classes ----

    def bases(self, path: str, cls: Class) -> list[_Type]:
        """The direct bases of a class that the tree defines."""
        found = []
        for base in cls.bases:
            meaning = self._absolute(path, base)
            if meaning is not None and meaning[0] == "class":
                found.append(meaning[1])
        return [base for base in found if isinstance(base, _Type)]

    def line(self, path: str, cls: Class) -> tuple[_Type, ...]:
        """A class and its parents in the tree, nearest first."""
        key = (path, cls.name)
        if key not in self._lines:
            self._lines[key] = (_Type(path, cls),)  # a class that is its own parent ends here
            seen: dict[tuple[str, str], _Type] = {key: _Type(path, cls)}
            for base in self.bases(path, cls):
                for parent in self.line(base.path, base.cls):
                    seen.setdefault((parent.path, parent.cls.name), parent)
            self._lines[key] = tuple(seen.values())
        return self._lines[key]

    def external_bases(self, path: str, cls: Class) -> set[str]:
        """Last names of the bases that the tree does not define, of a class and of its parents."""
        found = set()
        for parent in self.line(path, cls):
            known = {base.cls.name.rpartition(".")[2] for base in self.bases(parent.path, parent.cls)}
            found |= {base.rpartition(".")[2] for base in parent.cls.bases} - known
        return found

    def exception_bases(self) -> dict[str, tuple[str, ...]]:
        """Last name → last names of the bases, of every class of the tree."""
        return {
            cls.name.rpartition(".")[2]: tuple(base.rpartition(".")[2] for base in cls.bases)
            for cls in self._classes.values()
            if cls.bases and cls.bases != ("Exception",)
        } | {c.name.rpartition(".")[2]: ("Exception",) for c in self._classes.values() if c.bases == ("Exception",)}

    def _below(self, kind: _Type) -> list[_Type]:
        top = (kind.path, kind.cls.name)
        if top in self._subclasses:
            return self._subclasses[top]
        found: dict[tuple[str, str], _Type] = {}
        open_types = [kind]
        while open_types and len(found) < OVERRIDES:
            for child in self._children[open_types[-1].path, open_types.pop().cls.name]:
                key = (child.path, child.cls.name)
                if key not in found:
                    found[key] = child
                    open_types.append(child)
        return self._subclasses.setdefault(top, list(found.values()))

    def method(self, path: str, cls: Class, name: str) -> int | None:
        """The function that a method of a class is, in it or in its parents."""
        key = (path, cls.name)
        found = self._inherited.get(key)
        if found is None:
            found = self._inherited[key] = {}
            for parent in reversed(self.line(path, cls)):
                found.update(self._own.get((parent.path, parent.cls.name), ()))
        return found.get(name)

    def types_of(self, place: int, expression: str) -> tuple[str, ...]:
        """Last names of the classes that an expression in a function may be an instance of."""
        kinds = self._resolve(self.functions[place], expression)[1]
        return tuple(dict.fromkeys(_last(kind.cls.name) for kind in kinds))

    # ---- names ----

    def _absolute(self, path: str, name: str, depth: int = 0) -> tuple[str, object] | None:
        """What a dotted name means at the top of a module: ``("class", _Type)``, ``("function", place)`` or
        ``("module", path)``."""
        key = (path, name)
        if key in self._names:
            return self._names[key]
        self._names[key] = None
        found = self._look_up(path, name, depth)
        self._names[key] = found
        return found

    def _look_up(self, path: str, name: str, depth: int) -> tuple[str, object] | None:
        if depth > DEPTH:
            return None
        if (path, name) in self._classes:
            return "class", _Type(path, self._classes[path, name])
        if (path, name) in self.index:
            return "function", self.index[path, name]
        first, _, rest = name.partition(".")
        if rest:
            meaning = self._absolute(path, first, depth)
            if meaning is not None and meaning[0] == "module":
                return self._in_module(str(meaning[1]), rest, depth)
            if meaning is not None and isinstance(meaning[1], _Type):
                nested = f"{meaning[1].cls.name}.{rest}"
                return self._absolute(meaning[1].path, nested, depth) if nested != name else None
            return None
        imported = self.files[path].imports.get(name)
        if imported is None:
            return None
        module, _, attribute = imported.partition(":")
        target = self._target_module(path, module)
        if target is None or not target.startswith(self.package):
            return None
        return self._in_module(target, attribute, depth + 1) if attribute else ("module", target)

    def _in_module(self, module: str, name: str, depth: int) -> tuple[str, object] | None:
        first, _, rest = name.partition(".")
        inner = f"{module}.{first}"
        file = self._modules.get(module)
        if file is not None:
            found = self._absolute(file.path, name, depth + 1)
            if found is not None:
                return found
        if inner in self._modules or any(known.startswith(inner + ".") for known in self._packages(inner)):
            return self._in_module(inner, rest, depth + 1) if rest else ("module", inner)
        return None

    def _packages(self, inner: str) -> Iterable[str]:
        return (inner + ".",) if inner + ".__init__" in self._modules else ()

    def _target_module(self, path: str, module: str) -> str | None:
        dots = len(module) - len(module.lstrip("."))
        if not dots:
            return module
        parts = self._module_of[path].split(".")
        if not path.endswith("__init__.py"):
            parts = parts[:-1]
        parts = parts[: len(parts) - dots + 1]
        rest = module.lstrip(".")
        return ".".join([*parts, rest] if rest else parts)

    # ---- expressions ----

    def _resolve(self, node: Node, expression: str, depth: int = 0) -> tuple[list[int], list[_Type]]:
        """Functions, and types of instances, that an expression may mean."""
        if not expression or depth > DEPTH:
            return [], []
        functions: list[int] = []
        instances: list[_Type] = []
        classes: list[_Type] = []
        modules: list[str] = []
        first, *rest = [expression] if expression.isidentifier() else _STEP.findall(expression)
        if first in ("self", "cls") and node.function.cls:
            cls = self._classes.get((node.path, node.function.cls))
            instances = [_Type(node.path, cls)] if cls else []
        elif first == "super" and node.function.cls:
            cls = self._classes.get((node.path, node.function.cls))
            instances = self.bases(node.path, cls) if cls else []
            rest = rest[1:]
            if len(rest) == 1 and instances:
                found = [self.method(base.path, base.cls, rest[0]) for base in instances]
                return [place for place in found if place is not None][:1], []
        else:
            functions, instances, classes, modules = self._name(node, first, depth)
        for step in rest:
            if not (functions or instances or classes or modules):
                return [], []
            if step == "()":
                returned = [kind for place in functions for kind in self._returns(place, depth)]
                functions, instances, classes = [], [*classes, *returned], []
                modules = []
            elif step == "[]":
                continue
            else:
                functions, instances, classes, modules = self._attribute(
                    functions, instances, classes, modules, step, depth
                )
        for kind in classes:
            for name in ("__init__", "__new__", "__post_init__"):
                place = self.method(kind.path, kind.cls, name)
                if place is not None:
                    functions.append(place)
            functions += self.validators(kind.path, kind.cls)
        return functions, instances

    def validators(self, path: str, cls: Class) -> list[int]:
        """The pydantic validators of a class, which run when one is made."""
        key = (path, cls.name)
        if key not in self._validators:
            self._validators[key] = [
                place
                for parent in self.line(path, cls)
                for place in self._own[parent.path, parent.cls.name].values()
                if is_validator(self.functions[place].function)
            ]
        return self._validators[key]

    def _name(self, node: Node, name: str, depth: int) -> tuple[list[int], list[_Type], list[_Type], list[str]]:
        scope = node.function.name
        instances: list[_Type] = []
        while name in self._inner[node.path]:
            nested = f"{scope}.{name}" if scope else name
            here = (node.path, nested)
            if here in self.index and here not in self._classes and (node.path, scope) not in self._classes:
                return [self.index[node.path, nested]], [], [], []
            place = self.index.get((node.path, scope))
            if place is not None:
                instances = self._holds(place, name, depth)
                if instances:
                    return [], instances, [], []
            if not scope:
                break
            scope = scope.rpartition(".")[0]
        meaning = self._absolute(node.path, name)
        match meaning:
            case ("function", int() as place):
                return [place], [], [], []
            case ("class", _Type() as kind):
                return [], [], [kind], []
            case ("module", str() as module):
                return [], [], [], [module]
        return [], [], [], []

    def _holds(self, place: int, name: str, depth: int) -> list[_Type]:
        """The types that a name may hold in a function."""
        texts = self.functions[place].function.types.get(name)
        if texts is None:
            return []
        key = (place, name)
        if key not in self._held:
            self._held[key] = []  # a name that is made from itself
            found = [kind for text in texts for kind in self._type(self.functions[place], text, depth + 1)]
            self._held[key] = list(dict.fromkeys(found))
        return self._held[key]

    def _attribute(
        self,
        functions: list[int],
        instances: list[_Type],
        classes: list[_Type],
        modules: list[str],
        name: str,
        depth: int,
    ) -> tuple[list[int], list[_Type], list[_Type], list[str]]:
        found: list[int] = []
        kinds: list[_Type] = []
        made: list[_Type] = []
        deeper: list[str] = []
        for module in modules:
            match self._in_module(module, name, 0):
                case ("function", int() as place):
                    found.append(place)
                case ("class", _Type() as kind):
                    made.append(kind)
                case ("module", str() as inner):
                    deeper.append(inner)
        for kind in (*instances, *classes):
            method = self.method(kind.path, kind.cls, name)
            if method is not None:
                if name in self._properties and any(
                    name in parent.cls.properties for parent in self.line(kind.path, kind.cls)
                ):
                    kinds += self._returns(method, depth)
                found.append(method)
                found += [
                    self._own[child.path, child.cls.name][name]
                    for child in self._below(kind)
                    if name in self._own[child.path, child.cls.name]
                ]
                continue
            kinds += self._attribute_types(kind, name, depth)
        return list(dict.fromkeys(found)), list(dict.fromkeys(kinds)), made, deeper

    def _attribute_types(self, kind: _Type, name: str, depth: int) -> list[_Type]:
        key = (kind.path, kind.cls.name, name)
        if key not in self._attributes:
            self._attributes[key] = []
            for parent in self.line(kind.path, kind.cls):
                texts = parent.cls.attributes.get(name, ())
                if texts:
                    owner = self.index.get((parent.path, f"{parent.cls.name}.__init__"))
                    at = self.functions[owner] if owner is not None else self._class_node(parent)
                    found = [made for text in texts for made in self._type(at, text, depth + 1)]
                    self._attributes[key] = list(dict.fromkeys(found))
                    if found:
                        break
        return self._attributes[key]

    def _class_node(self, kind: _Type) -> Node:
        empty = Function(kind.cls.name, kind.cls.line, kind.cls.name, False, False, (), (), [], {})
        return Node(kind.path, empty, self.files[kind.path])

    def _returns(self, place: int, depth: int) -> list[_Type]:
        node = self.functions[place]
        return [kind for name in node.function.returns for kind in self._type(node, name, depth + 1)]

    def _type(self, node: Node, text: str, depth: int) -> list[_Type]:
        """The classes that a name's type text (`facts.Function.types`) may mean."""
        if depth > DEPTH:
            return []
        if text.startswith("="):
            return self._resolve(node, text[1:], depth)[1]
        if "(" in text:
            return self._resolve(node, text, depth)[1]
        meaning = self._absolute(node.path, text)
        if meaning is not None and isinstance(meaning[1], _Type):
            return [meaning[1]]
        return []

    # ---- edges ----

    def _edges_of(self, place: int) -> list[Edge]:
        node = self.functions[place]
        found: dict[tuple[int, int], Edge] = {}
        for call in node.function.calls:
            targets, instances = self._resolve(node, call.callee)
            guess = ""
            if call.flags & REFERENCE:
                instances = []
            for kind in instances:
                for name in ("__call__", "forward"):
                    method = self.method(kind.path, kind.cls, name)
                    if method is not None:
                        targets.append(method)
                        break
            if len(targets) > 1 and "." in call.callee:
                guess = f"{_last(call.callee)} may be one of {len(targets)} implementations"
            if not targets and not instances and "." in call.callee and not call.flags & REFERENCE:
                targets = self._by_name(node, call.callee)
                guess = f"{_last(call.callee)} is matched by its name alone" if targets else ""
            for target in targets:
                if target != place:
                    found.setdefault((target, call.chain), Edge(target, call.chain, call.flags, guess, call.line))
        if (node.path, node.function.name) in self._routes:
            for name in node.function.types:
                for body in self._holds(place, name, 0):
                    for target in self.validators(body.path, body.cls):
                        found.setdefault((target, NO_CHAIN), Edge(target, NO_CHAIN, 0, "", node.function.line))
        return list(found.values())

    def _by_name(self, node: Node, callee: str) -> list[int]:
        name = _last(callee)
        first = callee.split(".")[0]
        imported = node.file.imports.get(first)
        if name in COMMON or len(name) < 5 or (imported is not None and first not in node.function.types):
            return []
        places = self._methods.get(name, [])
        return list(places) if 0 < len(places) <= GUESSES else []


def is_validator(function: Function) -> bool:
    """Whether pydantic calls a function when a model is made."""
    return any(name.removesuffix("()").rpartition(".")[2] in VALIDATORS for name in function.decorators)


VALIDATORS = frozenset({"field_validator", "model_validator", "validator", "root_validator"})


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _module(package: str, path: str) -> str:
    parts = path.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join([package, *parts])
