"""The description of a key: what follows from it, and that some code reads the key."""

import ast
import re
from typing import Annotated, get_type_hints

import msgspec
import pytest
from harness.documented_keys import DOCUMENT, REFERENCE, find_gaps
from harness.typed_reads import ROOT, TypedReads, sources

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.resolution import read_reference
from notification_service.configuration.schema import SCHEMA, Schema, path_of, settings_from
from notification_service.configuration.sections import SOURCES, Ingress, RecordsArchive, Resequencers, Sections
from notification_service.jobs.topic_archive.writer import ArchiveSettings
from notification_service.payments.settings import HandlerSettings
from notification_service.payments.strategies import StrategySettings
from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.value_types import Choice, Duration, TopicName, Whole
from resequencer.settings import ResequencerSettings
from storage.redis.settings import RedisServerSettings, RedisSettings

ROOM = "notification_service/configuration"
DESCRIBING = {f"{ROOM}/{name}.py" for name in ("sections", "schema", "constraints", "resolution", "effective", "configuration")}
"""Modules that read all fields of any section: their reads do not count as a use."""


class Toy(msgspec.Struct, frozen=True):
    """A section with one key."""

    idle_ms: Annotated[int, Key(Duration("1s", "1h"))]


class WithToy(Sections, frozen=True, kw_only=True):
    toy: Annotated[Toy, Section("payment-status-notification.toy")]


KEY = "payment-status-notification.toy.idle"
COMMENTED = f"\n# How long a toy is idle.\n{KEY} = 3s\n"
ROW = f'| `{KEY}` | `"3s"` | 1s to 1h |'


@pytest.fixture(scope="module")
def toys():
    """The present schema with one more key."""
    return Schema(WithToy)


def unread(schema, reads):
    """Return the keys and sections that nothing reads. Defaults of named sections are read by the schema alone."""
    fields = [(section, each) for section, fields in schema.sections.items() for each in fields]
    return {
        each.path for section, each in fields if each.path not in schema.named.values() and not reads.is_read(section, each.name)
    }


def test_every_key_and_section_is_read_by_something_beside_what_loads_it():
    assert unread(SCHEMA, TypedReads(sources(), DESCRIBING)) == set()


TOYS = f"{Toy.__module__.replace('.', '/')}.py"
DECLARED = """
class Toy:
    idle_ms: int
class WithToy:
    toy: Toy
class ToySettings:
    idle_ms: int
"""


def read_by(code: str) -> TypedReads:
    of_the_same_name = "class Toy:\n    idle_ms: int"
    code = f"from {Toy.__module__} import ToySettings, WithToy\n{code}"
    return TypedReads({TOYS: DECLARED, "delivery/other.py": of_the_same_name, "daemon/user.py": code})


def test_a_key_that_something_reads_is_not_found(toys):
    assert KEY not in unread(toys, read_by("def f(settings: WithToy) -> int: return settings.toy.idle_ms"))


@pytest.mark.parametrize(
    "code",
    [
        "",
        "def f(settings: ToySettings) -> int: return settings.idle_ms",
        "def f(settings: WithToy) -> None: settings.toy.idle_ms = 5",
        "def f(settings: WithToy): settings_from(ToySettings, settings.toy)",
        "def f(settings: WithToy): return settings_from(ToySettings, settings.toy, idle_ms=5).idle_ms",
        "class Toy:\n    idle_ms: int\ndef f(toy: Toy) -> int: return toy.idle_ms",
        "from delivery.other import Toy\ndef f(toy: Toy) -> int: return toy.idle_ms",
    ],
)
def test_a_key_that_nothing_reads_is_found_though_a_field_of_the_same_name_is_read(toys, code):
    assert KEY in unread(toys, read_by(code))


def test_a_section_that_nothing_reads_is_found_though_a_parent_of_its_class_reads_its_keys(toys):
    parent = "class Parent:\n    def f(self) -> int: return self.idle_ms\n"
    declared = parent + DECLARED.replace("class Toy:", "class Toy(Parent):").replace("class ToySettings", "class Other")
    assert KEY.rpartition(".")[0] in unread(toys, TypedReads({TOYS: declared}))


@pytest.mark.slow
def test_gaps_in_the_reference_and_in_the_documentation_are_found(toys):
    reference, document = read_reference(), (ROOT / DOCUMENT).read_text(encoding="utf-8")
    for schema, given, gap_text in (
        (toys, (reference, document), f"{REFERENCE}: {KEY} is missing"),
        (toys, (f"{reference}\n{KEY} = 3s\n", document), f"{REFERENCE}: {KEY} has no comment"),
        (toys, (reference + COMMENTED, document), f"{DOCUMENT}: this row is missing"),
        (SCHEMA, (reference + COMMENTED, document), f"{REFERENCE}: {KEY} is no key"),
        (SCHEMA, (reference, f"{document}{ROW}\n"), f"{DOCUMENT}: this row is of no key"),
    ):
        (gap,) = find_gaps(schema, *given)
        assert gap.startswith(gap_text)
    assert find_gaps(toys, reference + COMMENTED, f"{document}{ROW}\n") == []


def test_a_constraint_on_a_key_that_there_is_not_fails_when_it_is_imported():
    assert path_of(Ingress, "batch_size") == "ipf.processing-data.ingress.batch-size"
    with pytest.raises(LookupError, match=r"Ingress\.bacth_size is no key"):
        path_of(Ingress, "bacth_size")


def test_two_fields_cannot_be_the_same_key():
    class Doubled(Sections, frozen=True, kw_only=True):
        count: Annotated[int, Key(Whole(1, 2), path_of(Sections, "worker_count"))]

    with pytest.raises(AssertionError, match=r"payment-status-notification\.worker\.count is described twice"):
        Schema(Doubled)


@pytest.mark.slow
def test_every_key_that_a_package_names_in_what_it_says_is_one():
    """Packages below the daemon do not know the schema, so their errors spell out the keys that they name."""
    for path, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = re.findall(
                    r"(?:payment-status-notification|ipf\.processing-data\.ingress)(?:\.[a-z]+(?:-[a-z]+)*)+", node.value
                )
                unknown = [each for each in named if each not in SCHEMA.keys and not SCHEMA.is_section(each)]
                assert [each for each in unknown if not SCHEMA.is_option(each)] == [], path


@pytest.mark.parametrize(
    ("settings", "section"),
    [
        (Configuration, Sections),
        (ResequencerSettings, Resequencers),
        (StrategySettings, Resequencers),
        (HandlerSettings, Resequencers),
        (RedisSettings, RedisServerSettings),
        (ArchiveSettings, RecordsArchive),
    ],
)
def test_settings_of_packages_have_the_types_of_the_sections_that_they_are_made_from(settings, section):
    ours, theirs = get_type_hints(section), get_type_hints(settings)
    assert {name: theirs[name] for name in ours.keys() & theirs.keys()} == {
        name: ours[name] for name in ours.keys() & theirs.keys()
    }


def test_settings_with_a_field_that_is_neither_in_the_section_nor_computed_are_not_made_of_its_default():
    class Settings(msgspec.Struct):
        idle_ms: int = 1
        jitter: float = 0.2

    assert settings_from(Settings, Toy(5_000), jitter=0.1) == Settings(5_000, 0.1)
    with pytest.raises(AttributeError, match="jitter"):
        settings_from(Settings, Toy(5_000))


def test_the_defaults_that_settings_have_by_themselves_are_those_of_the_reference(loaded):
    configuration = loaded("")
    for section in (configuration.resequencer, configuration.storage.redis, configuration.storage.infinispan):
        for field in msgspec.structs.fields(section):
            if field.default is not msgspec.NODEFAULT:
                assert getattr(section, field.name) == field.default, field.name


def test_every_key_for_a_topic_takes_the_names_that_kafka_takes():
    fields = [each for fields in SCHEMA.sections.values() for each in fields]
    topics = [each for each in fields if each.name == "topic" or each.name.endswith("_topic")]
    topics = [each for each in topics if ".mqtt." not in each.path]
    assert len(topics) > 6
    assert [each.path for each in topics if not (isinstance(each.mark, Key) and isinstance(each.mark.takes, TopicName))] == []


def test_the_options_of_a_choice_are_the_members_of_its_type():
    """Except for `cache`, which is another name of an option, and for sources, of which there are fewer than sinks."""
    for fields in SCHEMA.sections.values():
        for field in fields:
            if isinstance(field.mark, Key) and isinstance(field.mark.takes, Choice) and hasattr(field.type, "__members__"):
                members = SOURCES if field.name == "transport" and "ingress" in field.path else tuple(field.type)
                assert {field.type(each) for each in field.mark.takes.options} == set(members)
