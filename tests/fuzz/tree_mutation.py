"""Changes to JSON that keep it JSON: a value is replaced, removed, repeated, wrapped, moved or renamed."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Place = tuple[Any, Any]
"""A container, and the key of one of its values."""


def mutated_tree(rng: Random, tree: Any, names: Sequence[str], scalars: Sequence[Any], most: int = 6) -> Any:
    """Return a copy after one to `most` changes. `names` are meaningful names, `scalars` are unusual values."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.randint(1, most)):
        places = _places(tree)
        if not places:
            return rng.choice(scalars)
        container, key = rng.choice(places)
        rng.choice(_CHANGES)(rng, container, key, _Vocabulary(places, names, scalars))
    return tree


class _Vocabulary:
    """The names and values that a change may insert."""

    def __init__(self, places: list[Place], names: Sequence[str], scalars: Sequence[Any]) -> None:
        self.places = places
        self.names = names
        self._scalars = scalars

    def draw_scalar(self, rng: Random) -> Any:
        """Return an unusual value, a copy: an object that is put into itself would have no end."""
        return json.loads(json.dumps(rng.choice(self._scalars)))


def _places(tree: Any) -> list[Place]:
    found: list[Place] = []
    waiting = [tree]
    while waiting:
        container = waiting.pop()
        if isinstance(container, dict | list):
            keys = list(container) if isinstance(container, dict) else range(len(container))
            found += [(container, key) for key in keys]
            waiting += [container[key] for key in keys]
    return found


def _put_scalar(rng: Random, container: Any, key: Any, words: _Vocabulary) -> None:
    container[key] = words.draw_scalar(rng)


def _remove(rng: Random, container: Any, key: Any, words: _Vocabulary) -> None:
    del container[key]


def _wrap(rng: Random, container: Any, key: Any, words: _Vocabulary) -> None:
    value = container[key]
    container[key] = rng.choice(([value], {rng.choice(words.names): value}, {"value": value}, {"Ccy": "EUR", "value": value}))


def _repeat(rng: Random, container: Any, key: Any, words: _Vocabulary) -> None:
    container[key] = [container[key]] * rng.randint(0, 12)


def _copy_here(rng: Random, container: Any, key: Any, words: _Vocabulary) -> None:
    other, place = rng.choice(words.places)
    if (isinstance(other, dict) and place not in other) or (isinstance(other, list) and place >= len(other)):
        return  # An earlier change removed it.
    container[key] = json.loads(json.dumps(other[place]))


def _rename(rng: Random, container: Any, key: Any, words: _Vocabulary) -> None:
    if isinstance(container, dict):
        container[rng.choice(words.names)] = container.pop(key)


def _add(rng: Random, container: Any, key: Any, words: _Vocabulary) -> None:
    if isinstance(container, dict):
        name = rng.choice(words.names)
        container[name] = words.draw_scalar(rng)


def _as_number(rng: Random, container: Any, key: Any, words: _Vocabulary) -> None:
    value = container[key]
    if isinstance(value, str) and value.replace(".", "", 1).isdecimal() and value.isascii():
        container[key] = float(value) if "." in value else int(value)


def _change_text(rng: Random, container: Any, key: Any, words: _Vocabulary) -> None:
    value = container[key]
    if isinstance(value, str):
        at = rng.randint(0, len(value))
        put = rng.choice(("", " ", "\n", "\x00", "9", "x", "\u00e9", "\ufffe", value))
        container[key] = value[:at] + put + value[at + rng.randint(0, 1) :]


_CHANGES: tuple[Callable[[Random, Any, Any, _Vocabulary], None], ...] = (
    *(_put_scalar, _put_scalar, _remove, _wrap, _repeat, _copy_here, _rename, _add, _as_number, _change_text, _change_text),
)
