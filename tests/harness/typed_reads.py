"""Finds which attributes of which classes the service's code reads, by following the annotations in its source.

The name of an attribute is not enough: a read of any `topic` would count for every class that has one. Everything is annotated,
so types are followed through parameters, attributes, properties, return values and assignments. A class is identified by its
module and its name, `notification_service/delivery/settings.py:Retry`: names are followed through imports. A read does not
count if the type of the object is not found.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from harness.packages import PACKAGES, ROOT


def sources() -> dict[str, str]:
    """Return the text of each module of the service, by its path."""
    files = (file for room in PACKAGES for file in sorted((ROOT / room).rglob("*.py")))
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


class Annotation(NamedTuple):
    """The annotation of an attribute or a result, and the module whose names it uses."""

    path: str
    node: ast.expr


class TypedReads:
    """The reads in `sources`. Modules in `unread` declare types, but their reads do not count.

    `settings_from(Settings, section)` passes fields on: a field of the section is read if the field of `Settings` is read.
    """

    def __init__(self, sources: Mapping[str, str], unread: Iterable[str] = ()) -> None:
        trees = {path: ast.parse(text, path) for path, text in sources.items()}
        self.names: dict[str, dict[str, str]] = {path: _names_of(tree, path) for path, tree in trees.items()}
        self.attributes: dict[str, dict[str, Annotation]] = defaultdict(dict)
        self.returns: dict[str, Annotation] = {}
        self.bases: dict[str, list[str]] = {}
        for path, tree in trees.items():
            self._declare(tree, path)
        for _ in range(2):  # What __init__ assigns may have a type that is found only while another module is read.
            self.reads: set[tuple[str, str]] = set()
            self.handed: set[tuple[str, str, str]] = set()
            for path, tree in trees.items():
                if path not in unread:
                    _Reader(self, path).visit(tree)

    def is_read(self, owner: type, name: str) -> bool:
        """Return whether an attribute is read: of the class, of a parent that has it, or of a subclass."""
        family = {_qualified(each) for each in owner.__mro__}
        family |= {each for each in self.bases if _qualified(owner) in self.family(each)}
        if any((each, name) in self.reads for each in family):
            return True
        handed = [to for origin, to, field in self.handed if origin in family and field == name]
        return any((each, name) in self.reads for to in handed for each in self.family(to))

    def family(self, name: str) -> list[str]:
        """Return the class and its parents."""
        return [name, *(each for base in self.bases.get(name, ()) for each in self.family(base))]

    def find_attribute(self, owner: str | None, name: str) -> str | None:
        """Return the class of an attribute, or of a method's result."""
        found = (self.attributes[each].get(name) for each in self.family(owner)) if owner in self.bases else ()
        return next((self.class_of(each.path, each.node) for each in found if each is not None), None)

    def find_name(self, path: str, name: str) -> str | None:
        """Return the class or function that a name stands for in a module, through imports."""
        found = self.names.get(path, {}).get(name)
        if found is None or found == f"{path}:{name}":
            return found
        module, _, original = found.rpartition(":")
        return self.find_name(module, original)

    def class_of(self, path: str, annotation: ast.expr | None) -> str | None:
        """Return the class in an annotation of a module, apart from None."""
        match annotation:
            case ast.Constant(value=str(text)):
                return text if text in self.bases else self.class_of(path, ast.parse(text, mode="eval").body)
            case ast.Name(id=name):
                found = self.find_name(path, name)
                return found if found in self.bases else None
            case ast.BinOp(left=left, right=right):
                return self.class_of(path, left) or self.class_of(path, right)
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[first, *_])):
                return self.class_of(path, first)
        return None

    def _declare(self, tree: ast.Module, path: str) -> None:
        classes = [each for each in _statements(tree) if isinstance(each, ast.ClassDef)]
        for owner in classes:
            named = (self.find_name(path, base.id) for base in owner.bases if isinstance(base, ast.Name))
            self.bases[f"{path}:{owner.name}"] = [each for each in named if each]
        for each in tree.body:
            if isinstance(each, ast.FunctionDef) and each.returns:
                self.returns[f"{path}:{each.name}"] = Annotation(path, each.returns)
        for owner in classes:
            attributes = self.attributes[f"{path}:{owner.name}"]
            for each in owner.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    attributes[each.target.id] = Annotation(path, each.annotation)
                elif isinstance(each, ast.FunctionDef) and each.returns:
                    attributes[each.name] = Annotation(path, each.returns)


class _Reader(ast.NodeVisitor):
    """Visits one module; `types` are the classes of the names known at a place."""

    def __init__(self, found: TypedReads, path: str) -> None:
        self._found = found
        self._path = path
        self._types: dict[str, str | None] = {}
        self._owner: str | None = None

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before, self._owner = self._owner, f"{self._path}:{node.name}"
        self.generic_visit(node)
        self._owner = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        with self._inside(node.args):
            self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        with self._inside(node.args):
            self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        with self._inside(node.args):
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for name, value in zip(target.elts, node.value.elts, strict=False):
                    self._bind(name, value)
            else:
                self._bind(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self._types[node.target.id] = self._found.class_of(self._path, node.annotation)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        owner = self._type_of(node.value)
        if owner is not None and isinstance(node.ctx, ast.Load):
            self._found.reads.add((owner, node.attr))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Name(id="settings_from"), args=[ast.Name(id=name), section]):
                to = self._found.find_name(self._path, name) or name
                computed = {each.arg for each in node.keywords}
                origin = self._type_of(section)
                fields = {name for each in self._found.family(to) for name in self._found.attributes[each]} - computed
                self._found.handed |= {(origin, to, field) for field in fields if origin is not None}
        self.generic_visit(node)

    @contextmanager
    def _inside(self, arguments: ast.arguments) -> Iterator[None]:
        before, self._types = self._types, dict(self._types)
        for number, each in enumerate([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]):
            is_self = number == 0 and each.arg in ("self", "cls")
            self._types[each.arg] = self._owner if is_self else self._found.class_of(self._path, each.annotation)
        yield
        self._types = before

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        type_ = self._type_of(value)
        if isinstance(target, ast.Name):
            self._types[target.id] = type_
        elif isinstance(target, ast.Attribute) and type_ is not None and (owner := self._type_of(target.value)) is not None:
            self._found.attributes[owner].setdefault(target.attr, Annotation(self._path, ast.Constant(type_)))

    def _type_of(self, node: ast.expr) -> str | None:
        type_: str | None = None
        match node:
            case ast.Name(id=name):
                type_ = self._types.get(name)
            case ast.Attribute(value=value, attr=name):
                type_ = self._found.find_attribute(self._type_of(value), name)
            case ast.Call():
                type_ = self._type_of_call(node)
            case ast.IfExp(body=first, orelse=second) | ast.BoolOp(values=[first, second]):
                type_ = self._type_of(first) or self._type_of(second)
            case ast.NamedExpr(value=value):
                type_ = self._type_of(value)
        return type_

    def _type_of_call(self, node: ast.Call) -> str | None:
        match node:
            case ast.Call(func=ast.Name(id="settings_from"), args=[ast.Name(id=name), *_]):
                return self._found.find_name(self._path, name)
            case ast.Call(func=ast.Name(id="replace") | ast.Attribute(attr="replace"), args=[first, *_]):
                return self._type_of(first)
            case ast.Call(func=ast.Name(id=name)):
                called = self._found.find_name(self._path, name)
                if called is None or called in self._found.bases:
                    return called
                returned = self._found.returns.get(called)
                return self._found.class_of(returned.path, returned.node) if returned else None
        return self._type_of(node.func)


def _names_of(tree: ast.Module, path: str) -> dict[str, str]:
    """Return what the names of a module's classes, functions and imports stand for, as `path:name`."""
    found: dict[str, str] = {}
    statements = [*_statements(tree)]
    for each in statements:
        if isinstance(each, ast.ImportFrom) and each.module:
            # A name of a package's own, which __init__ gives, does not occur: __init__ has a docstring alone.
            module = f"{each.module.replace('.', '/')}.py"
            found |= {name.asname or name.name: f"{module}:{name.name}" for name in each.names}
    own = [*tree.body, *(each for each in statements if isinstance(each, ast.ClassDef))]
    return found | {each.name: f"{path}:{each.name}" for each in own if isinstance(each, ast.ClassDef | ast.FunctionDef)}


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node, without their expressions, in which there are no classes and no imports."""
    for name in ("body", "cases", "handlers", "orelse", "finalbody"):
        for each in getattr(tree, name, ()):
            yield each
            yield from _statements(each)


def _qualified(owner: type) -> str:
    return f"{owner.__module__.replace('.', '/')}.py:{owner.__name__}"
