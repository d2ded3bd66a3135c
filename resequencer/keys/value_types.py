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


class _AsItIs:
    """Its value is shown as it is."""

    __slots__ = ()

    def show(self, value: Any) -> Any:
        return value


class _OrNull(_AsItIs):
    """The value may be null if `null` describes what that means. Any other is as `what` says."""

    __slots__ = ()
    null: str
    what: Any

    @property
    def expects(self) -> str:
        return f"{self.what}, or null: {self.null}" if self.null else str(self.what)

    def read(self, value: Any) -> Any:
        return None if value is None and self.null else self.read_other(value)

    def read_other(self, value: Any) -> Any:
        raise NotImplementedError


class Choice(_AsItIs, msgspec.Struct, frozen=True):
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
        text = unquoted(value) if isinstance(value, str) else ""
        if text in self.options or (self.foreign and _FOREIGN.fullmatch(text)):
            return text
        raise Mismatch


class Foreign(_OrNull, msgspec.Struct, frozen=True):
    """A user's own object as `package.module:Name`."""

    name: str
    null: str

    @property
    def what(self) -> str:
        return f"your own as package.module:{self.name}"

    def read_other(self, value: Any) -> str:
        text = unquoted(value) if isinstance(value, str) else ""
        if not _FOREIGN.fullmatch(text):
            raise Mismatch
        return text


class OptionOrForeign(_OrNull, msgspec.Struct, frozen=True):
    """One of the options, or a user's own as `package.module:Name`. Null is the first option, or stays null if `by_default` says
    what that means.
    """

    options: tuple[str, ...]
    foreign: str
    by_default: str = ""

    @property
    def null(self) -> str:  # type: ignore[override]  # It is computed here.
        return self.by_default or self.options[0]

    @property
    def what(self) -> str:
        return f"one of {', '.join(self.options)}, or your own as package.module:{self.foreign}"

    def read(self, value: Any) -> str | None:
        if value is None:
            return None if self.by_default else self.options[0]
        text = unquoted(value) if isinstance(value, str) else ""
        if text in self.options or _FOREIGN.fullmatch(text):
            return text
        raise Mismatch


class FirstNumber(_AsItIs, msgspec.Struct, frozen=True):
    """0 or 1, or `any`, which is None."""

    expects: str = "0, 1, or any: that of the first event that comes"

    def read(self, value: Any) -> int | None:
        text = unquoted(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        if text not in ("0", "1", "any"):
            raise Mismatch
        return None if text == "any" else int(text)

    def show(self, value: int | None) -> int | str:
        return "any" if value is None else value


class Text(_OrNull, msgspec.Struct, frozen=True):
    """A text that matches `pattern` as a whole. A number or duration is refused, because its spelling is lost in parsing."""

    pattern: str
    what: str
    null: str = ""

    def read_other(self, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(self.pattern, unquoted(value), re.ASCII):
            raise Mismatch
        return unquoted(value)


class TopicName(_AsItIs, msgspec.Struct, frozen=True):
    """The name of a Kafka topic. Empty is allowed if `empty` describes its meaning."""

    empty: str = ""

    @property
    def expects(self) -> str:
        empty = f"; empty: {self.empty}" if self.empty else ""
        return f"a Kafka topic: 1 to {_LONGEST_TOPIC} letters, digits, dots, underscores and hyphens{empty}"

    def read(self, value: Any) -> str:
        text = unquoted(value) if isinstance(value, str) else None
        if text is None or not (_TOPIC.fullmatch(text) or (self.empty and not text)):
            raise Mismatch
        return text


class SecretText(_OrNull, msgspec.Struct, frozen=True):
    """A text that is kept unchanged, including apostrophes, and is never shown."""

    null: str = ""

    @property
    def what(self) -> str:
        return "a text (in double quotes if it looks like a number or a duration)"

    def read_other(self, value: Any) -> Secret:
        if not isinstance(value, str):
            raise Mismatch
        return Secret(value)

    def show(self, value: Secret | None) -> str | None:
        return None if value is None else value.masked


class Url(_OrNull, msgspec.Struct, frozen=True):
    """A URL with one of the schemes. The password in it is a secret, and with `hides_path` what follows the host, too."""

    schemes: tuple[str, ...]
    null: str = ""
    hides_path: bool = False

    @property
    def what(self) -> str:
        return "a URL in double quotes that begins with " + " or ".join(f"{each}://" for each in self.schemes)

    def read_other(self, value: Any) -> Secret:
        text = unquoted(value) if isinstance(value, str) else ""
        scheme, separator, rest = text.partition("://")
        if scheme not in self.schemes or not separator or not rest or re.search(r"[\s\x00-\x1f]", text):
            raise Mismatch
        return Secret(text)

    def show(self, value: Secret | None) -> str | None:
        return None if value is None else self.masked(value)

    def masked(self, text: str) -> str:
        """Return a text as it may be shown, also one that is refused."""
        return without_path(text) if self.hides_path else without_secrets(text)


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


class Switch(_AsItIs, msgspec.Struct, frozen=True):
    """True or false, or their texts, as environment variables are texts."""

    expects: str = "true or false"

    def read(self, value: Any) -> bool:
        text = value.strip().lower() if isinstance(value, str) else value
        found = {"true": True, "false": False}.get(text) if isinstance(text, str) else text
        if not isinstance(found, bool):
            raise Mismatch
        return found


class FilePath(_OrNull, msgspec.Struct, frozen=True):
    """A path, relative to the working directory."""

    null: str = ""

    @property
    def what(self) -> str:
        return "a path"

    def read_other(self, value: Any) -> Path:
        text = unquoted(value) if isinstance(value, str) else ""
        names = text.encode("utf-8", "surrogateescape").split(b"/")
        if not text.strip() or "\x00" in text or len(text) > _LONGEST_PATH or max(map(len, names)) > _LONGEST_NAME:
            raise Mismatch
        return Path(text)

    def show(self, value: Path | None) -> str | None:
        return None if value is None else str(value)


class Location(_OrNull, msgspec.Struct, frozen=True):
    """A path, or a URL of a file system that Hadoop knows."""

    null: str

    @property
    def what(self) -> str:
        return "a path, a URL of Hadoop's such as hdfs://host/path"

    def read_other(self, value: Any) -> str:
        scheme, separator, rest = unquoted(value).partition("://") if isinstance(value, str) else ("", "", "")
        if not separator:
            return str(FilePath().read(value))
        is_scheme = re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) is not None
        if not is_scheme or not re.fullmatch(r"[^\s\x00-\x1f]+", rest) or len(rest) > _LONGEST_PATH:
            raise Mismatch
        return f"{scheme}://{rest}"

    def show(self, value: str | None) -> str | None:
        return None if value is None else without_secrets(value)


class Duration(_OrNull, msgspec.Struct, frozen=True):
    """Milliseconds. A unit is required, because `30` may be meant as seconds.

    `word` is a word that is allowed instead of a duration, and is kept unchanged.
    """

    minimum: str
    maximum: str
    null: str = ""
    word: str = ""

    @property
    def what(self) -> str:
        return f"a duration with its unit from {self.minimum} to {self.maximum}" + (f", or {self.word}" if self.word else "")

    def read_other(self, value: Any) -> int | str:
        if self.word and isinstance(value, str) and unquoted(value) == self.word:
            return self.word
        milliseconds = _milliseconds(value)
        if not _milliseconds(self.minimum) <= milliseconds <= _milliseconds(self.maximum):
            raise Mismatch
        return milliseconds

    def show(self, value: int | str | None) -> str | None:
        if value is None or isinstance(value, str):
            return value
        unit = next(unit for unit, size in reversed(_MILLISECONDS.items()) if value % size == 0)
        return f"{value // _MILLISECONDS[unit]}{unit}" if value else "0s"


class Size(_OrNull, msgspec.Struct, frozen=True):
    """Bytes. As in HOCON, K, M and G are powers of 1024; kB, MB and GB are powers of 1000; a bare number is in bytes."""

    minimum: str
    maximum: str
    null: str = ""

    @property
    def what(self) -> str:
        return f"a size from {self.minimum} to {self.maximum}, such as 512M (not 512m, which is minutes)"

    def read_other(self, value: Any) -> int:
        size = _bytes(value)
        if not _bytes(self.minimum) <= size <= _bytes(self.maximum):
            raise Mismatch
        return size

    def show(self, value: int | None) -> str | int | None:
        if value is None:
            return None
        unit = next(unit for unit in ("G", "M", "K", "B") if value % _BYTES[unit] == 0)
        return value if unit == "B" else f"{value // _BYTES[unit]}{unit}"


class Whole(_OrNull, msgspec.Struct, frozen=True):
    """A whole number, or its text, as environment variables are texts."""

    minimum: int
    maximum: int
    null: str = ""

    @property
    def what(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"

    def read_other(self, value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.minimum <= value <= self.maximum:
            raise Mismatch
        return value


class Number(msgspec.Struct, frozen=True):
    """A number with or without a fraction."""

    minimum: float
    maximum: float

    @property
    def expects(self) -> str:
        return f"a number from {self.minimum:g} to {self.maximum:g}"

    def read(self, value: Any) -> float:
        if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", value.strip()):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Mismatch
        if not self.minimum <= value <= self.maximum:
            raise Mismatch
        return float(value)

    def show(self, value: float) -> float | int:
        return int(value) if value.is_integer() else value


class PerSecond(_OrNull, msgspec.Struct, frozen=True):
    """A rate as `50/s`, from 0.001/s to 100000/s."""

    null: str

    @property
    def what(self) -> str:
        return "a rate such as 50/s"

    def read_other(self, value: Any) -> float:
        match = _RATE.fullmatch(unquoted(value).strip()) if isinstance(value, str) else None
        if match is None or not 0.001 <= float(match[1]) <= 100_000:
            raise Mismatch
        return float(match[1])

    def show(self, value: float | None) -> str | None:
        return None if value is None else f"{value:g}/s"


def unquoted(text: str) -> str:
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
