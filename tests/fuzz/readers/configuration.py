"""Target `configuration`: any file is a valid configuration or refused by name, and the output of `check` is the same one."""

import json
from pathlib import Path
from typing import Any
from zlib import crc32

from fuzz.independent.json import NotJson, Number, Object, read_json
from fuzz.scratch import scratch

from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.hocon import Plain, parse_text, resolve
from notification_service.configuration.schema import SCHEMA, ConfigurationRefused
from resequencer.errors import ConfigurationError
from resequencer.keys.secret import is_secret_name

SHIPPED = Path(__file__).parents[3] / "conf" / "application.conf"
TOKENS = (
    *(b"${", b"${?", b"+=", b" = ", b"include ", b'"""', b"#", b"//", b"3s", b"512M", b"1.5h", b"-1s", b"'x'", b'"x"', b"kafka"),
    *(b"payment-status-notification", b"resequencer", b".", b"transport", b"file", b"${ipf}", b"${?HOME}", b"[A, B]", b"null"),
)

_directory = scratch()
_FILE = Path(_directory.name) / "service.conf"


def check(data: bytes) -> None:
    """Check the bytes as a configuration file. A file that includes others is skipped, because it could include any file.

    * It is loaded or refused with a `ConfigurationError`; each problem names a key, a section or the file and is one line.
    * What `check` prints of a configuration loads again, with the same values.
    * A text that is JSON says what JSON says.
    * A file leaves nothing behind in the process: an empty one means the defaults, whatever was loaded before.

    The second and the last are asked of a part of the inputs, for pyhocon takes its time.
    """
    chance = crc32(data)
    if b"include" in data:
        return
    _FILE.write_bytes(data)
    try:
        configuration = load(_FILE)
    except ConfigurationError as error:
        _check_refusal(error)
    else:
        if chance % 4 == 0:
            _check_printed(configuration)
    _check_json(data)
    if chance % 16 == 0:
        _FILE.write_bytes(b"")
        assert load(_FILE) == _DEFAULTS


def _check_refusal(error: ConfigurationError) -> None:
    for each in error.problems if isinstance(error, ConfigurationRefused) else (error,):
        assert each.path
        assert str(each).isprintable(), each
        assert len(each.problem) < 600, each


def _check_printed(configuration: Configuration) -> None:
    shown = [each for each in configuration.effective if not is_secret_name(each.path)]
    _FILE.write_text("\n".join(map(str, shown)), encoding="utf-8")
    again = {each.path: each.value for each in load(_FILE).effective}
    assert {each.path: each.value for each in shown} == {path: again[path] for path in again if not is_secret_name(path)}


def _check_json(data: bytes) -> None:
    try:
        document = read_json(data)
    except NotJson:
        return
    if not isinstance(document, Object) or not _is_plain(document):
        return
    text = data.decode()
    resolved = resolve([parse_text(text, "text", where="text")]).values
    assert resolved == dict(_flat(document, "")), resolved


def _is_plain(value: Any) -> bool:
    """Return whether the text uses only JSON: no names that are paths or come twice, and no endless numbers."""
    if isinstance(value, Object):
        names = [name for name, _ in value.pairs]
        is_plain = len(set(names)) == len(names) and all(name.replace("-", "").isalnum() and name.isascii() for name in names)
        return is_plain and all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not isinstance(value, Number) or len(value.literal) < 300


def _flat(value: Any, path: str) -> list[tuple[str, Plain]]:
    if isinstance(value, Object) and (value or not path):
        return [pair for name, item in value.items() for pair in _flat(item, f"{path}.{name}" if path else name)]
    return [(path, json.loads(json.dumps(value, default=str)) if not isinstance(value, Number) else json.loads(value.literal))]


def seeds() -> list[bytes]:
    """Yield the shipped file, every key with its default, the same as JSON, and all features of HOCON; in pieces,
    because pyhocon is slow.
    """
    defaults = [each for each in _DEFAULTS.effective if each.path in SCHEMA.keys]
    pieces = [defaults[at : at + 8] for at in range(0, len(defaults), 8)]
    printed = ["\n".join(map(str, piece)).encode() for piece in pieces]
    nested = [json.dumps(_nested({each.path: each.value for each in piece})).encode() for piece in pieces]
    return [SHIPPED.read_bytes(), *printed, *nested, *_EVERYTHING.split(b"\n\n")]


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        inner = root
        for each in sections:
            inner = inner.setdefault(each, {})
        inner[name] = value
    return root


_EVERYTHING = b"""\
topic = PAYMENTS
ipf.processing-data.ingress { transport = file, kafka.consumer { topic = ${topic}, kafka-clients { "group.id" = a, x.y = 5s } } }
payment-status-notification {
  transport = file // like the other
  resequencer { strategy = FULL_PAIN001_AND_CUSTOM_DATA, custom-data-keys = ['BusinessData'], custom-data-keys += "Other" }
  resequencer.processing-timeout = 1500ms
  resequencer.stash-limit { envelopes-per-unit = ${?HOME_THAT_IS_NOT_SET}
    bytes-per-worker = 64M }
  storage.embedded.file = ${?HOME}"/state.db" # a comment
  storage { redis.url = \"\"\"redis://user:pass@host:6379/0\"\"\" }
}

payment-status-notification { storage.namespace = "a\\u0062" }
payment-status-notification = ${payment-status-notification} { http.port = 0 }
"""

_FILE.write_bytes(b"")
_DEFAULTS = load(_FILE)
