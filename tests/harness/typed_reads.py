"""Finds which attributes of which classes the service's code reads, by following the annotations in its source.

The name of an attribute is not enough: a read of any `topic` would count for every class that has one. Everything is annotated,
so types are followed through parameters, attributes, properties, return values and assignments. Classes are distinguished by
their names. A read does not count if the type of the object is not found.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from harness.rooms import ROOT, SERVICE_ROOMS


def sources() -> dict[str, str]:
    """Return the text of each module of the service, by its path."""
    files = (file for room in SERVICE_ROOMS for file in sorted((ROOT / room).rglob("*.py")))
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


class TypedReads:
    """The reads in `sources`. Modules in `unread` declare types, but their reads do not count.

    `settings_from(Settings, section)` passes fields on: a field of the section is read if the field of `Settings` is read.
    """

    def __init__(self, sources: Mapping[str, str], unread: Iterable[str] = ()) -> None:
        trees = {path: ast.parse(text, path) for path, text in sources.items()}
        self.attributes: dict[str, dict[str, str]] = defaultdict(dict)
        self.returns: dict[str, str] = {}
        self.bases: dict[str, list[str]] = {}
        for tree in trees.values():
            self._declare(tree)
        for _ in range(2):  # What __init__ assigns may have a type that is found only while another module is read.
            self.reads: set[tuple[str, str]] = set()
            self.handed: set[tuple[str, str, str]] = set()
            for path, tree in trees.items():
                if path not in unread:
                    _Reader(self).visit(tree)

    def is_read(self, owner: type, name: str) -> bool:
        """Return whether an attribute is read: of the class, of a parent that has it, or of a subclass."""
        family = {each.__name__ for each in owner.__mro__} | {each for each in self.bases if owner.__name__ in self.family(each)}
        if any((each, name) in self.reads for each in family):
            return True
        return any(origin in family and field == name and (to, name) in self.reads for origin, to, field in self.handed)

    def family(self, name: str) -> list[str]:
        """Return the class and its parents."""
        return [name, *(each for base in self.bases.get(name, ()) for each in self.family(base))]

    def find_attribute(self, owner: str | None, name: str) -> str | None:
        """Return the class of an attribute, or of a method's result."""
        found = (self.attributes[each].get(name) for each in self.family(owner)) if owner in self.bases else ()
        return next(filter(None, found), None)

    def class_of(self, annotation: ast.expr | None) -> str | None:
        """Return the class in an annotation, apart from None."""
        match annotation:
            case ast.Constant(value=str(text)):
                return self.class_of(ast.parse(text, mode="eval").body)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name if name in self.bases else None
            case ast.BinOp(left=left, right=right):
                return self.class_of(left) or self.class_of(right)
            case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[first, *_])):
                return self.class_of(first)
        return None

    def _declare(self, tree: ast.Module) -> None:
        classes = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
        self.bases |= {each.name: [base.id for base in each.bases if isinstance(base, ast.Name)] for each in classes}
        for each in tree.body:
            if isinstance(each, ast.FunctionDef):
                self.returns[each.name] = ast.unparse(each.returns) if each.returns else ""
        for owner in classes:
            for each in owner.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    self.attributes[owner.name][each.target.id] = ast.unparse(each.annotation)
                elif isinstance(each, ast.FunctionDef) and each.returns:
                    self.attributes[owner.name][each.name] = ast.unparse(each.returns)


class _Reader(ast.NodeVisitor):
    """Visits one module; `types` are the classes of the names known at a place."""

    def __init__(self, found: TypedReads) -> None:
        self._found = found
        self._types: dict[str, str | None] = {}
        self._owner: str | None = None

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        before, self._owner = self._owner, node.name
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
            self._types[node.target.id] = self._found.class_of(node.annotation)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        owner = self._type_of(node.value)
        if owner is not None and isinstance(node.ctx, ast.Load):
            self._found.reads.add((owner, node.attr))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Name(id="settings_from"), args=[ast.Name(id=to), section]):
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
            self._types[each.arg] = self._owner if is_self else self._found.class_of(each.annotation)
        yield
        self._types = before

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        type_ = self._type_of(value)
        if isinstance(target, ast.Name):
            self._types[target.id] = type_
        elif isinstance(target, ast.Attribute) and type_ is not None and (owner := self._type_of(target.value)) is not None:
            self._found.attributes[owner].setdefault(target.attr, type_)

    def _type_of(self, node: ast.expr) -> str | None:
        type_: str | None = None
        match node:
            case ast.Name(id=name):
                type_ = self._types.get(name)
            case ast.Attribute(value=value, attr=name):
                type_ = self._named(self._found.find_attribute(self._type_of(value), name))
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
                return name
            case ast.Call(func=ast.Name(id="replace") | ast.Attribute(attr="replace"), args=[first, *_]):
                return self._type_of(first)
            case ast.Call(func=ast.Name(id=name)):
                return name if name in self._found.bases else self._named(self._found.returns.get(name))
        return self._type_of(node.func)

    def _named(self, annotation: str | None) -> str | None:
        return self._found.class_of(ast.parse(annotation, mode="eval").body) if annotation else None
