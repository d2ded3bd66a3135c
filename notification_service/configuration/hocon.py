"""The adapter to pyhocon: the only module that knows it and its pitfalls."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from glob import glob
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from pyhocon import ConfigFactory, ConfigTree, period_parser
from pyhocon.config_tree import ConfigSubstitution, ConfigValues
from pyhocon.exceptions import ConfigWrongTypeException
from pyparsing import ParseBaseException

from notification_service.configuration.hocon_places import Include, scan
from notification_service.configuration.hocon_substitutions import ABSENT, Substitutions
from notification_service.configuration.pyhocon_fixes import FAILURES, Includes, UnknownEscape, mended, merge
from resequencer.errors import ConfigurationError

Plain: TypeAlias = bool | int | float | str | timedelta | list[Any] | dict[str, Any] | None
"""The types of a parsed value. A dict is a section without keys."""

MAX_FILE_BYTES = 1 << 20

# Where python-dateutil happens to be installed (Spark's libraries bring it), pyhocon reads `3s` as its relativedelta and knows
# months, which have no length.
period_parser.period_impl = timedelta
for _unit in period_parser.optional_period_type_map:
    period_parser.period_type_map.pop(_unit, None)

_PLACE = re.compile(r"line: ([0-9]+), col: ([0-9]+)")


class Place(msgspec.Struct, frozen=True):
    """A line that gives a key a value. `order` counts the values of a document and its includes.

    `optional` is NAME where the value is `${?NAME}` alone.
    """

    order: int
    file: str
    line: int
    optional: str | None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Document(msgspec.Struct, frozen=True):
    """One parsed layer, its substitutions not yet resolved. `name` is what errors and `check` call it.

    `tree` belongs to pyhocon; `resolve` consumes it if it has substitutions. `leaves` are its keys, with the value of those that
    consist of substitutions alone and may have no value. `places` are the lines of the keys of a file and of its includes.
    """

    name: str
    tree: Any
    leaves: Mapping[str, Any]
    places: Mapping[str, Sequence[Place]] = {}


class Resolved(msgspec.Struct, frozen=True):
    """All layers as one: a value per full key, and for each key the layer that set it last.

    `variables` are the keys that substitutions refer to. A user's own key is no typing error if a substitution refers to it.
    `places` are `file:line` of the values that a file has; one in an include that is no file is not known.
    """

    values: Mapping[str, Plain]
    layers: Mapping[str, str]
    variables: frozenset[str]
    places: Mapping[str, str] = {}


def parse_file(file: Path) -> Document:
    """Read a file with its includes.

    Raises:
        ConfigurationError: It does not exist, is no HOCON, or includes what cannot be read; the error names the file.
    """
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigurationError(str(file), f"is longer than {MAX_FILE_BYTES} bytes, which is the maximum")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(str(file), f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(str(file), f"is not UTF-8 (byte {error.start})") from error
    return parse_text(text, f"file {file}", where=str(file), directory=file.parent)


def parse_text(text: str, name: str, *, where: str, directory: Path | None = None) -> Document:
    """Parse HOCON. `where` is what an error names, `directory` what includes are relative to."""
    includes = Includes(where)
    with mended(includes):
        try:
            tree = ConfigFactory.parse_string(text, None if directory is None else str(directory), resolve=False)
            if not isinstance(tree, ConfigTree):
                raise ConfigurationError(includes.current, "is a list; expected: keys and values")
            _spread_quoted_keys(tree, includes.current)
            leaves = {path: value if _may_vanish(value) else None for path, value in _leaves(tree, "")}
        except RecursionError as error:
            raise ConfigurationError(includes.current, includes.recursion()) from error
        except FAILURES as error:
            if isinstance(error, OSError):
                includes.note_missing(str(error.filename or error))
            if not includes.missing:
                raise ConfigurationError(includes.current, f"is not HOCON: {_reason(error)}") from error
    if includes.missing:
        raise includes.missing[0]
    return Document(name, tree, leaves, {} if directory is None else _places(text, where, directory))


def resolve(documents: Sequence[Document]) -> Resolved:
    """Lay the documents over each other, the last on top, and put in what substitutions ask for.

    Raises:
        ConfigurationError: A substitution cannot be resolved, or runs in a circle.
    """
    root = ConfigTree()
    for document in documents:
        merge(root, document.tree)
    substitutions = Substitutions(root)
    values: dict[str, Plain] = {}
    layers: dict[str, str] = {}
    places: dict[str, str] = {}
    for path, raw in _leaves(root, ""):
        value, names = substitutions.resolve(raw, path)
        for key, plain in () if value is ABSENT else _flatten(value, path):
            values[key] = plain
            document = _document_of(key, documents, substitutions)
            layers[key] = f"environment ({', '.join(names)})" if names else document.name
            if not names and (place := _find_place(key, document, substitutions)) is not None:
                places[key] = str(place)
    return Resolved(values, layers, frozenset(substitutions.variables), places)


def _reason(error: Exception) -> str:
    """Return the problem and its place. pyhocon's own message is not used: it quotes values, and any value may be a secret."""
    if isinstance(error, ParseBaseException):
        if (flaw := scan(error.pstr).flaw) is not None:
            return flaw
        return f"line {error.lineno}, column {error.col}: {_excerpt(error.line)} (put special characters in double quotes)"
    if isinstance(error, UnknownEscape):
        return str(error)
    if isinstance(error, ConfigWrongTypeException):
        place = _PLACE.findall(str(error))
        where = "line {}, column {}: ".format(*place[-1]) if place else ""
        return f"{where}a text, a list or a section is joined with another kind (put special characters in double quotes)"
    return f"a number, a duration or a key in it cannot be used ({type(error).__name__})"


def _excerpt(line: str) -> str:
    """Return the key of the line that cannot be parsed; the value is not shown, because it may be a secret."""
    key = line.strip().partition("=")[0].partition(":")[0].strip()
    return f"cannot be parsed from here on, at {key[:60]!r}" if key else "cannot be parsed from here on"


def _spread_quoted_keys(tree: ConfigTree, where: str) -> None:
    """Replace a quoted key such as `"bootstrap.servers"`, which pyhocon keeps with its quotes, by the path that it means."""
    for raw in list(tree):
        value = dict.get(tree, raw)
        if isinstance(value, ConfigTree):
            _spread_quoted_keys(value, where)
        name = raw.strip('"')
        if raw != name and all(part.replace("-", "").replace("_", "").isalnum() for part in name.split(".")):
            if tree.get(name, None) is not None:
                raise ConfigurationError(where, f"{name} is given twice, with quotes and without")
            del tree[raw]
            tree.put(name, value, isinstance(value, ConfigTree))


def _leaves(tree: ConfigTree, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield every key of a tree with its value as pyhocon parsed it."""
    for raw in tree:
        value, path = dict.get(tree, raw), prefix + raw.strip('"')
        if isinstance(value, ConfigTree) and value:
            yield from _leaves(value, path + ".")
        else:
            yield path, value


def _may_vanish(value: Any) -> bool:
    """Return whether the value is `${?NAME}` alone, which may leave the value of a lower layer in force."""
    return (
        isinstance(value, ConfigValues)
        and value.overridden_value is None
        and all(isinstance(each, ConfigSubstitution) and each.optional for each in value.tokens)
    )


def _around(path: str) -> Iterator[str]:
    """Yield the key and the sections around it."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _document_of(path: str, documents: Sequence[Document], substitutions: Substitutions) -> Document:
    """Return the topmost document that sets the key or a section around it."""
    for document in reversed(documents):
        for each in _around(path):
            if each in document.leaves and not substitutions.is_vanishing(document.leaves[each]):
                return document
    return documents[0]


def _find_place(path: str, document: Document, substitutions: Substitutions) -> Place | None:
    """Return the last line of the document that gives the key, or a section around it, a value."""
    given = (place for each in _around(path) for place in document.places.get(each, ()))
    lasting = [each for each in given if each.optional is None or substitutions.has(each.optional)]
    return max(lasting, key=lambda each: each.order, default=None)


def _places(text: str, file: str, directory: Path) -> dict[str, list[Place]]:
    """Return the lines of the keys of a file that pyhocon could read, with those of its includes."""
    found: dict[str, list[Place]] = {}

    def note(text: str, file: str, directory: Path, prefix: str) -> None:
        for each in scan(text).found:
            if not isinstance(each, Include):
                found.setdefault(prefix + each.path, []).append(Place(next(numbers), file, each.line, each.optional))
                continue
            included = str(directory / each.file)
            for name in glob(included, recursive=True) if "*" in included or "?" in included else (included,):
                # An include that is no file, such as a URL, has no lines to show.
                with suppress(OSError, UnicodeDecodeError):
                    note(Path(name).read_text(encoding="utf-8-sig"), name, Path(name).parent, prefix + each.prefix)

    numbers = count()
    note(text, file, directory, "")
    return found


def _flatten(value: Any, path: str) -> Iterator[tuple[str, Plain]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _flatten(item, f"{path}.{name}")
    else:
        yield path, _plain(value, path)


def _plain(value: Any, path: str) -> Plain:
    if isinstance(value, list):
        return [_plain(each, path) for each in value]
    assert value is None or isinstance(value, bool | int | float | str | timedelta | dict), path
    plain: Plain = value
    return plain
