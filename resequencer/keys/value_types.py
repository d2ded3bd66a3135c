"""The value types of configuration keys: how a value is read, what is expected, and how it is shown."""

import re
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Protocol

import msgspec

from resequencer.keys.secret import Secret
from resequencer.printable import without_path, without_secrets

_DURATION = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(ms|millis|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)")
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|[kKMG]|[KMG]iB?|kB|MB|GB)?")
_BYTES = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*/\s*s")
_FOREIGN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


_LONGEST_TOPIC = 249
_TOPIC = re.compile(rf"(?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,{_LONGEST_TOPIC}}}")
"""Kafka takes neither `.` nor `..`: a topic is a directory of the broker."""
_MAX_DURATIONS = 100
_LONGEST_OBJECT = 100_000
_LONGEST_NAME = 255
_LONGEST_PATH = 4_000
"""The longest file name and path of Linux, in bytes: 255, and 4 096 less the suffixes that the service adds."""


class Mismatch(ValueError):
    """The value is not of the type, or out of bounds."""


class ValueType(Protocol):
    """The type of one key's value."""

    @property
    def expects(self) -> str: ...

    def read(self, value: Any) -> Any:
        """Return the typed value: milliseconds, bytes, a path, a tuple, a number or a text.

        Raises:
            Mismatch: The value is not of this type.
        """
        ...

    def show(self, value: Any) -> Any:
        """Return a typed value for JSON and for people (`3s`, `512M`)."""
        ...


class Choice(msgspec.Struct, frozen=True):
    """One of the options. If `foreign` is set (the kind of object), also the user's own as `package.module:Name`.

    `remark` says what else a user may look for here.
    """

    options: tuple[str, ...]
    foreign: str = ""
    remark: str = ""

    @property
    def expects(self) -> str:
        own = f", or your own as package.module:{self.foreign}" if self.foreign else ""
        remark = f" ({self.remark})" if self.remark else ""
        return f"one of {', '.join(self.options)}{own}{remark}"

    def read(self, value: Any) -> str:
        text = _unquoted(value) if isinstance(value, str) else ""
        if text in self.options or (self.foreign and _FOREIGN.fullmatch(text)):
            return text
        raise Mismatch

    def show(self, value: str) -> str:
        return value


class Foreign(msgspec.Struct, frozen=True):
    """A user's own object as `package.module:Name`. The text `null` describes what null means."""

    name: str
    null: str

    @property
    def expects(self) -> str:
        return f"your own as package.module:{self.name}, or null: {self.null}"

    def read(self, value: Any) -> str | None:
        if value is None:
            return None
        text = _unquoted(value) if isinstance(value, str) else ""
        if not _FOREIGN.fullmatch(text):
            raise Mismatch
        return text

    def show(self, value: str | None) -> str | None:
        return value


class Text(msgspec.Struct, frozen=True):
    """A text that matches `pattern` as a whole. A number or duration is refused, because its spelling is lost in parsing.

    Null is allowed if `null` describes its meaning.
    """

    pattern: str
    what: str
    null: str = ""

    @property
    def expects(self) -> str:
        return self.what + (f", or null: {self.null}" if self.null else "")

    def read(self, value: Any) -> str | None:
        if value is None and self.null:
            return None
        if not isinstance(value, str) or not re.fullmatch(self.pattern, _unquoted(value), re.ASCII):
            raise Mismatch
        return _unquoted(value)

    def show(self, value: str | None) -> str | None:
        return value


class TopicName(msgspec.Struct, frozen=True):
    """The name of a Kafka topic. Empty is allowed if `empty` describes its meaning."""

    empty: str = ""

    @property
    def expects(self) -> str:
        empty = f"; empty: {self.empty}" if self.empty else ""
        return f"a Kafka topic: 1 to {_LONGEST_TOPIC} letters, digits, dots, underscores and hyphens{empty}"

    def read(self, value: Any) -> str:
        text = _unquoted(value) if isinstance(value, str) else None
        if text is None or not (_TOPIC.fullmatch(text) or (self.empty and not text)):
            raise Mismatch
        return text

    def show(self, value: str) -> str:
        return value


class SecretText(msgspec.Struct, frozen=True):
    """A text that is kept unchanged, including apostrophes, and is never shown.

    Null is allowed if `null` describes its meaning.
    """

    null: str = ""

    @property
    def expects(self) -> str:
        null = f", or null: {self.null}" if self.null else ""
        return f"a text (in double quotes if it looks like a number or a duration){null}"

    def read(self, value: Any) -> Secret | None:
        if value is None and self.null:
            return None
        if not isinstance(value, str):
            raise Mismatch
        return Secret(value)

    def show(self, value: Secret | None) -> str | None:
        return None if value is None else value.masked


class Url(msgspec.Struct, frozen=True):
    """A URL with one of the schemes. The password in it is a secret, and with `hides_path` what follows the host, too.

    Null is allowed if `null` describes its meaning.
    """

    schemes: tuple[str, ...]
    null: str = ""
    hides_path: bool = False

    @property
    def expects(self) -> str:
        null = f", or null: {self.null}" if self.null else ""
        return "a URL in double quotes that begins with " + " or ".join(f"{each}://" for each in self.schemes) + null

    def read(self, value: Any) -> Secret | None:
        if value is None and self.null:
            return None
        text = _unquoted(value) if isinstance(value, str) else ""
        scheme, separator, rest = text.partition("://")
        if scheme not in self.schemes or not separator or not rest or re.search(r"[\s\x00-\x1f]", text):
            raise Mismatch
        return Secret(text)

    def show(self, value: Secret | None) -> str | None:
        return None if value is None else self.masked(value)

    def masked(self, text: str) -> str:
        """Return a text as it may be shown, also one that is refused."""
        return without_path(text) if self.hides_path else without_secrets(text)


class Names(msgspec.Struct, frozen=True):
    """A list of different names. Apostrophes are no quotes in HOCON; those of the documented examples are removed."""

    expects: str = 'a list of different names, such as ["BusinessData"]'

    def read(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise Mismatch
        names = tuple(map(_unquoted, value))
        if any(not name.strip() or "'" in name or re.search(r"[\x00-\x1f\x7f]", name) for name in names) or len(set(names)) < len(
            names
        ):
            raise Mismatch
        return names

    def show(self, value: tuple[str, ...]) -> list[str]:
        return list(value)


class Choices(msgspec.Struct, frozen=True):
    """A list of different names, each of them one of these."""

    names: tuple[str, ...]

    @property
    def expects(self) -> str:
        return f"a list of different ones of {', '.join(self.names)}"

    def read(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or len(set(map(str, value))) < len(value):
            raise Mismatch
        if any(each not in self.names for each in value):
            raise Mismatch
        return tuple(value)

    def show(self, value: tuple[str, ...]) -> list[str]:
        return list(value)


class Object(msgspec.Struct, frozen=True):
    """An object of texts, numbers, switches, lists and further objects, as JSON text with its names in order."""

    expects: str = 'an object, such as { kind = REPORT, pages = 3 }; durations in it are texts: "5s" in double quotes'

    def read(self, value: Any) -> str:
        if not isinstance(value, dict):
            raise Mismatch
        try:
            text = msgspec.json.encode(_untimed(value), order="sorted").decode()
        except (TypeError, ValueError, RecursionError, UnicodeError) as error:
            raise Mismatch from error
        if len(text) > _LONGEST_OBJECT:
            raise Mismatch
        return text

    def show(self, value: str) -> Any:
        return msgspec.json.decode(value)


class Switch(msgspec.Struct, frozen=True):
    """True or false, or their texts, as environment variables are texts."""

    expects: str = "true or false"

    def read(self, value: Any) -> bool:
        text = value.strip().lower() if isinstance(value, str) else value
        found = {"true": True, "false": False}.get(text) if isinstance(text, str) else text
        if not isinstance(found, bool):
            raise Mismatch
        return found

    def show(self, value: bool) -> bool:
        return value


class FilePath(msgspec.Struct, frozen=True):
    """A path, relative to the working directory. If `derived` is set, null is allowed, and `derived` describes its meaning."""

    derived: str = ""

    @property
    def expects(self) -> str:
        return "a path" + (f", or null: {self.derived}" if self.derived else "")

    def read(self, value: Any) -> Path | None:
        if value is None and self.derived:
            return None
        text = _unquoted(value) if isinstance(value, str) else ""
        names = text.encode("utf-8", "surrogateescape").split(b"/")
        if not text.strip() or "\x00" in text or len(text) > _LONGEST_PATH or max(map(len, names)) > _LONGEST_NAME:
            raise Mismatch
        return Path(text)

    def show(self, value: Path | None) -> str | None:
        return None if value is None else str(value)


class Location(msgspec.Struct, frozen=True):
    """A path, or a URL of a file system that Hadoop knows. Null is allowed, and `derived` describes its meaning."""

    derived: str

    @property
    def expects(self) -> str:
        return f"a path, a URL of Hadoop's such as hdfs://host/path, or null: {self.derived}"

    def read(self, value: Any) -> str | None:
        if value is None:
            return None
        scheme, separator, rest = _unquoted(value).partition("://") if isinstance(value, str) else ("", "", "")
        if not separator:
            return str(FilePath().read(value))
        is_scheme = re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) is not None
        if not is_scheme or not re.fullmatch(r"[^\s\x00-\x1f]+", rest) or len(rest) > _LONGEST_PATH:
            raise Mismatch
        return f"{scheme}://{rest}"

    def show(self, value: str | None) -> str | None:
        return None if value is None else without_secrets(value)


class Duration(msgspec.Struct, frozen=True):
    """Milliseconds. A unit is required, because `30` may be meant as seconds. Null is allowed if `null` describes its meaning.

    `word` is a word that is allowed instead of a duration, and is kept unchanged.
    """

    least: str
    most: str
    null: str = ""
    word: str = ""

    @property
    def expects(self) -> str:
        word = f", or {self.word}" if self.word else ""
        null = f", or null: {self.null}" if self.null else ""
        return f"a duration with its unit from {self.least} to {self.most}{word}{null}"

    def read(self, value: Any) -> int | str | None:
        if value is None and self.null:
            return None
        if self.word and isinstance(value, str) and _unquoted(value) == self.word:
            return self.word
        milliseconds = _milliseconds(value)
        if not _milliseconds(self.least) <= milliseconds <= _milliseconds(self.most):
            raise Mismatch
        return milliseconds

    def show(self, value: int | str | None) -> str | None:
        if value is None or isinstance(value, str):
            return value
        unit = next(unit for unit, size in reversed(_MILLISECONDS.items()) if value % size == 0)
        return f"{value // _MILLISECONDS[unit]}{unit}" if value else "0s"


class Durations(msgspec.Struct, frozen=True):
    """A list of durations, each as `Duration` reads them."""

    least: str
    most: str
    empty: str

    @property
    def expects(self) -> str:
        return f"a list of durations with their units from {self.least} to {self.most}, such as [1s, 10s]; empty: {self.empty}"

    def read(self, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) > _MAX_DURATIONS:
            raise Mismatch
        each_of = Duration(self.least, self.most)
        return tuple(int(each_of.read(each) or 0) for each in value)

    def show(self, value: tuple[int, ...]) -> list[str]:
        return [str(Duration(self.least, self.most).show(each)) for each in value]


class Size(msgspec.Struct, frozen=True):
    """Bytes. As in HOCON, K, M and G are powers of 1024; kB, MB and GB are powers of 1000; a bare number is in bytes.

    Null is allowed if `null` describes its meaning.
    """

    least: str
    most: str
    null: str = ""

    @property
    def expects(self) -> str:
        size = f"a size from {self.least} to {self.most}, such as 512M (not 512m, which is minutes)"
        return size + (f", or null: {self.null}" if self.null else "")

    def read(self, value: Any) -> int | None:
        if value is None and self.null:
            return None
        size = _bytes(value)
        if not _bytes(self.least) <= size <= _bytes(self.most):
            raise Mismatch
        return size

    def show(self, value: int | None) -> str | int | None:
        if value is None:
            return None
        unit = next(unit for unit in ("G", "M", "K", "B") if value % _BYTES[unit] == 0)
        return value if unit == "B" else f"{value // _BYTES[unit]}{unit}"


class Whole(msgspec.Struct, frozen=True):
    """A whole number, or its text, as environment variables are texts. Null is allowed if `null` describes its meaning."""

    least: int
    most: int
    null: str = ""

    @property
    def expects(self) -> str:
        return f"a whole number from {self.least} to {self.most}" + (f", or null: {self.null}" if self.null else "")

    def read(self, value: Any) -> int | None:
        if value is None and self.null:
            return None
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise Mismatch
        return value

    def show(self, value: int | None) -> int | None:
        return value


class Number(msgspec.Struct, frozen=True):
    """A number with or without a fraction."""

    least: float
    most: float

    @property
    def expects(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"

    def read(self, value: Any) -> float:
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", value.strip()):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Mismatch
        if not self.least <= value <= self.most:
            raise Mismatch
        return float(value)

    def show(self, value: float) -> float | int:
        return int(value) if value.is_integer() else value


class PerSecond(msgspec.Struct, frozen=True):
    """A rate as `50/s`, from 0.001/s to 100000/s. Null is allowed, and `null` describes its meaning."""

    null: str

    @property
    def expects(self) -> str:
        return f"a rate such as 50/s, or null: {self.null}"

    def read(self, value: Any) -> float | None:
        if value is None:
            return None
        match = _RATE.fullmatch(_unquoted(value).strip()) if isinstance(value, str) else None
        if match is None or not 0.001 <= float(match[1]) <= 100_000:
            raise Mismatch
        return float(match[1])

    def show(self, value: float | None) -> str | None:
        return None if value is None else f"{value:g}/s"


class Statuses(msgspec.Struct, frozen=True):
    """A list of different HTTP statuses."""

    expects: str = "a list of HTTP statuses from 200 to 599, such as [404, 410]"

    def read(self, value: Any) -> tuple[int, ...]:
        status = Whole(200, 599)
        if not isinstance(value, list):
            raise Mismatch
        found = tuple(status.read(each) or 0 for each in value)
        if len(set(found)) < len(found):
            raise Mismatch
        return found

    def show(self, value: tuple[int, ...]) -> list[int]:
        return list(value)


def _unquoted(text: str) -> str:
    """Return the text without the apostrophes that pyhocon keeps around `'BusinessData'`."""
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == "'" else text


def _milliseconds(value: Any) -> int:
    if isinstance(value, timedelta):
        exact = Decimal(value // timedelta(microseconds=1)) / 1000
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())) and len(value) < 40:
        unit = match[2] if match[2] in _MILLISECONDS else match[2][:2] if match[2].startswith("milli") else match[2][0]
        exact = _decimal(match[1]) * _MILLISECONDS["ms" if unit == "mi" else unit]
    else:
        raise Mismatch
    if exact != int(exact):
        raise Mismatch
    return int(exact)


def _bytes(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 40 else None
    if not match:
        raise Mismatch
    unit = match[2] or "B"
    exact = _decimal(match[1]) * _BYTES[unit if unit in _BYTES else unit[0].upper()]
    if exact != int(exact):
        raise Mismatch
    return int(exact)


def _untimed(value: Any) -> Any:
    """Return a value without the apostrophes that are no quotes in HOCON. The spelling of a duration is lost: it is refused."""
    if isinstance(value, timedelta):
        raise Mismatch
    if isinstance(value, dict):
        return {name.strip('"'): _untimed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_untimed(each) for each in value]
    return value


def _decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation as error:
        raise Mismatch from error


USER = Text(r"[^\x00-\x1f]{1,256}", "a text", "no login")
PASSWORD = SecretText("no login")
