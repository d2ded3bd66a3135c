"""Configurations for single tests."""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.schema import ConfigurationRefused
from resequencer.errors import ConfigurationError


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a configuration file and return its path."""

    def write_file(text: str, name: str = "service.conf") -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return write_file


@pytest.fixture
def loaded(write: Callable[..., Path]) -> Callable[..., Configuration]:
    """Load a text as the configuration, with overrides."""

    def load_text(text: str, *overrides: str) -> Configuration:
        return load(write(text), overrides)

    return load_text


@pytest.fixture
def refused_text(write: Callable[..., Path]) -> Callable[[str], str]:
    """Return the text with which a configuration is refused, without the path of its file."""

    def load_text(text: str) -> str:
        file = write(text)
        with pytest.raises(ConfigurationError) as raised:
            load(file)
        return str(raised.value).replace(str(file), "")

    return load_text


@pytest.fixture
def refused(write: Callable[..., Path]) -> Callable[..., dict[str, str]]:
    """Return the problems of a refused configuration, by path."""

    def load_text(text: str, *overrides: str) -> dict[str, str]:
        with pytest.raises(ConfigurationError) as raised:
            load(write(text), overrides)
        problems = raised.value.problems if isinstance(raised.value, ConfigurationRefused) else (raised.value,)
        return {each.path: each.problem for each in problems}

    return load_text


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """Restore the logging configuration after a test."""
    root = logging.getLogger()
    before = root.level, root.handlers[:], logging.raiseExceptions
    yield
    for handler in root.handlers:
        if handler not in before[1]:
            with suppress(OSError):
                handler.close()
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    logging.raiseExceptions = before[2]
