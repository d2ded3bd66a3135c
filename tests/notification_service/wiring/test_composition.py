"""From a configuration to a worker's parts."""

import os
import sys

import pytest

from notification_service.configuration.schema import ConfigurationRefused
from notification_service.configuration.storages import storage_kind
from notification_service.configuration.transports import kafka_settings
from notification_service.supervision.locks import AlreadyRunning, acquire_locks
from notification_service.wiring.composition import (
    compose,
    handler_settings,
    load_notification_settings,
    make_strategy_of,
    refuse_unusable,
)
from resequencer.errors import ConfigurationError
from resequencer.record import Partition
from storage.embedded.storage import EmbeddedStorage
from storage.embedded.view import EmbeddedStorageView
from storage.infinispan.view import InfinispanStorageView
from storage.none import NoneStorage
from storage.redis.view import RedisStorageView

N = "payment-status-notification"
R = f"{N}.resequencer"
ON_FILES = f"ipf.processing-data.ingress.transport = file\n{N}.transport = file\n"
HEADER = "process_flow_name,event_name,transaction_status,reason_code,additional_information\n"

STRATEGY = """
from resequencer.strategies.sequence import Sequence


class Mine(Sequence):
    def __init__(self, settings):
        self.settings = settings
"""


@pytest.fixture
def composed(loaded, tmp_path):
    """Return the parts for a configuration on files, with its run directory under `tmp_path`."""
    made = []

    def make(text="", *overrides):
        configuration = loaded(f'{ON_FILES}{N}.run-directory = "{tmp_path}/run"\n{text}', *overrides)
        made.append(compose(configuration, lambda *_: None, lambda: False))
        return made[-1]

    yield make
    for each in made:
        for server in each.servers:
            server.close()


@pytest.mark.parametrize(
    ("storage", "kind"), [("embedded", EmbeddedStorageView), ("redis", RedisStorageView), ("infinispan", InfinispanStorageView)]
)
def test_the_view_is_that_of_the_configured_storage_and_nothing_is_connected_or_created(loaded, tmp_path, storage, kind):
    text = f'{ON_FILES}{N}.run-directory = "{tmp_path}/run"\n{R}.storage-type = {storage}'
    configuration = loaded(text)
    view = storage_kind(configuration).open_view(configuration)
    assert isinstance(view, kind)
    view.close()
    assert [each.name for each in tmp_path.iterdir()] == ["service.conf"]


def test_storage_none_has_no_view(loaded):
    assert storage_kind(loaded(f"{ON_FILES}{R}.storage-type = none")).open_view is None


@pytest.fixture
def working_directory(tmp_path, monkeypatch):
    """An empty working directory that the import system forgets afterwards."""
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(directory))])
    before = set(sys.modules)
    yield directory
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(("storage", "kind"), [("embedded", EmbeddedStorage), ("none", NoneStorage)])
def test_the_configured_storage_is_made_and_nothing_is_created(composed, tmp_path, storage, kind):
    parts = composed(f"{R}.storage-type = {storage}\n{R}.strategy = SEQUENCE")
    assert isinstance(parts.servers.storage, kind)
    assert not (tmp_path / "run").exists()


def test_everything_in_the_file_reaches_the_parts_that_need_it(loaded):
    configuration = loaded(
        f"{R} {{ processing-timeout = 1s, max-attempts = 4, backoff-factor = 3, jitter-factor = 0.1, stash-timeout = 7s\n"
        "stash-limit.envelopes-per-unit = 17 }"
    )
    settings = configuration.resequencer
    assert (settings.processing_timeout_ms, settings.max_attempts, settings.backoff_factor) == (1_000, 4, 3)
    assert (settings.jitter_factor, settings.stash_timeout_ms, settings.stash_limit) == (0.1, 7_000, 17)
    assert settings.deadline_ms == 7_000


def test_a_strategy_of_ones_own_is_found_in_the_working_directory(loaded, working_directory):
    (working_directory / "my_strategies.py").write_text(STRATEGY, encoding="utf-8")
    strategy = make_strategy_of(loaded(f'{R}.strategy = "my_strategies:Mine"'))
    assert strategy.name == "my_strategies:Mine"


def test_a_target_of_ones_own_is_found_in_the_working_directory(loaded, working_directory):
    (working_directory / "my_targets.py").write_text("def report(mapping): return b''\n", encoding="utf-8")
    refuse_unusable(loaded(f'{N}.target-type = "my_targets:report"'))


HANDLERS = {
    "Sync": "def handle(self, *given): return []",
    "Async": "async def handle(self, *given): return []",
    "Yields": "async def handle(self, *given): yield",
}
TARGETS = "def sync(mapping): return b''\nasync def waits(mapping): return b''\n"


@pytest.fixture
def own(working_directory):
    """Write handlers and target types, and return what names one in the configuration."""
    made = "\n".join(f"class {name}:\n  def __init__(self, settings): pass\n  {text}" for name, text in HANDLERS.items())
    (working_directory / "my_own.py").write_text(f"{made}\n{TARGETS}", encoding="utf-8")
    return lambda name: f'{N}.{"handler" if name in HANDLERS else "target-type"} = "my_own:{name}"\n' if name else ""


@pytest.mark.parametrize(
    ("name", "threads", "note"),
    [
        ("Sync", 0, "is 0, and your handler or target type is synchronous: processing-timeout cannot end its calls"),
        ("sync", 0, "is 0, and your handler or target type is synchronous"),
        *((name, 0, None) for name in ("Async", "Yields", "waits", "")),
        *((name, 2, None) for name in ("Sync", "sync")),
        *((name, 2, "is 2, and has no effect: your handler or target type is async") for name in ("Async", "waits")),
        ("", 2, "is 2, and has no effect: the service's own handler needs no threads"),
    ],
)
def test_what_threads_mean_to_the_handler_is_noted(loaded, own, name, threads, note):
    notes = refuse_unusable(loaded(f"{own(name)}{R}.handling-threads = {threads}"))
    assert len(notes) == (note is not None)
    assert note is None or notes[0].startswith(f"{R}.handling-threads: {note}")


@pytest.mark.parametrize(
    ("name", "threads", "limit"),
    [("", 0, None), ("sync", 0, None), ("sync", 3, 3), ("sync", 9, 5), ("waits", 3, 5), ("Yields", 0, 5)],
)
def test_a_handler_that_waits_has_calls_side_by_side(composed, own, name, threads, limit):
    parts = composed(
        f"{own(name)}{R} {{ storage-type = none, strategy = SEQUENCE, handling-threads = {threads}, handling-concurrency = 5 }}"
    )
    assert (parts.handler.call is not None) == (limit is not None)
    assert limit is None or parts.users_calls.limit == limit


def test_all_that_cannot_be_used_is_refused_at_once(loaded, working_directory):
    configuration = loaded(f'{R}.strategy = "nowhere:Mine"\n{N}.target-type = "nowhere:report"')
    with pytest.raises(ConfigurationRefused) as refused:
        refuse_unusable(configuration)
    assert [each.path for each in refused.value.problems] == [f"{R}.strategy", f"{N}.target-type"]
    assert len(str(refused.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file"),
        (b"", "the file is empty"),
        (b"flow,event\n", "the header is"),
        (f"{HEADER}F,E,XXXX,,\n".encode(), "'XXXX' is no ISO code"),
        (f"{HEADER}F,E,RJCT,ZZZZ,\n".encode(), "'ZZZZ'"),
        (HEADER.encode() + b"F,E,RJCT,,\xe9\n", "utf-8"),
        (f"{HEADER}F,E,RJCT\n".encode(), "3 cells"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_and_name_the_file(loaded, tmp_path, content, problem):
    file = tmp_path / "own.csv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=problem) as refused:
        load_notification_settings(loaded(f'{N}.settings = "{file}"'))
    assert str(file) in str(refused.value)


def test_settings_may_begin_with_a_byte_order_mark_and_end_lines_as_windows_does(loaded, tmp_path):
    file = tmp_path / "own.csv"
    file.write_bytes(f"\ufeff{HEADER}F,E,RJCT,MS03,why\n".replace("\n", "\r\n").encode())
    (row,) = load_notification_settings(loaded(f'{N}.settings = "{file}"'))
    assert (row.transaction_status, row.reason_code, row.additional_information) == ("RJCT", "MS03", ("why",))


def test_a_cell_of_the_settings_may_hold_a_line_end(loaded, tmp_path):
    file = tmp_path / "own.csv"
    file.write_text(f'{HEADER}F,E,RJCT,MS03,"one\ntwo"\n', encoding="utf-8")
    (row,) = load_notification_settings(loaded(f'{N}.settings = "{file}"'))
    assert row.additional_information == ("one two",)


def test_facts_are_made_and_written_only_with_aggregation(loaded, composed, tmp_path):
    plain = loaded("")
    assert (kafka_settings(plain).topics.facts, handler_settings(plain).makes_facts) == ("", False)
    aggregating = loaded(f"{N}.aggregation.enabled = true")
    assert kafka_settings(aggregating).topics.facts == "PAYMENT_STATUS_FACTS"
    assert kafka_settings(aggregating).topics.all[-1] == "PAYMENT_STATUS_FACTS"
    assert handler_settings(aggregating).makes_facts
    for is_enabled in (False, True):
        parts = composed(f"{R}.storage-type = none\n{N}.aggregation.enabled = {str(is_enabled).lower()}")
        parts.servers.transport.position(Partition("IPF_PROCESSING_DATA", 0))
        assert (tmp_path / "run" / "facts" / "partition-0.jsonl").exists() is is_enabled


def test_the_facts_are_locked_beside_their_directory(loaded, tmp_path):
    shared = f'{N}.aggregation {{ enabled = true, facts.directory = "{tmp_path}/facts" }}'
    one, two = (loaded(f'{ON_FILES}{N}.run-directory = "{tmp_path}/{name}"\n{shared}') for name in ("one", "two"))
    held = acquire_locks(one)
    with pytest.raises(AlreadyRunning, match=f"{tmp_path}/facts: in use by the service"):
        acquire_locks(two)
    for each in held:
        os.close(each)
    assert not (tmp_path / "facts").exists()
