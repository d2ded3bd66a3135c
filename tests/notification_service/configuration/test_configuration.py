"""The values of a valid configuration."""

from pathlib import Path

import pytest

from notification_service.configuration.configuration import load
from notification_service.configuration.schema import SCHEMA, ConfigurationRefused
from notification_service.configuration.sections import Acknowledge, StorageType, TransportType
from notification_service.payments.strategies import STRATEGIES

KEYS, CLIENTS = SCHEMA.keys, SCHEMA.open_sections
R = "payment-status-notification.resequencer"

# The default configuration of Icon's IPF documentation (page "Resequencer"), letter by letter.
SEED = """
payment-status-notification {
  resequencer {
    # * `none` - a no-op storage;
    # * `cache` - which uses (our) cache adapters
    storage-type = cache

    # * `FULL_PAIN001` - stash all (group header, instruction, transaction);
    strategy = FULL_PAIN001

    # Only used for strategy FULL_PAIN001_AND_CUSTOM_DATA.
    custom-data-keys = []

    # Only used for strategy FULL_PAIN001_AND_PDS_DATA.
    pds-data-keys = []

    # The amount of time
    processing-timeout = 3s

    # The number of times
    max-attempts = 3

    # The delay multiplier
    backoff-factor = 2

    # The max amount of time
    idle-timeout = 30s

    # The percentage of randomness
    jitter-factor = 0.2
  }
}
"""


def test_the_seeds_block_is_valid_and_is_the_default(loaded):
    from_seed, from_nothing = loaded(SEED), loaded("")
    assert from_seed.resequencer == from_nothing.resequencer
    assert from_seed.resequencer.storage_type is StorageType.INFINISPAN
    assert from_seed.resequencer.strategy == "FULL_PAIN001"
    assert from_seed.resequencer.processing_timeout_ms == 3_000
    assert from_seed.resequencer.max_attempts == 3
    assert from_seed.resequencer.backoff_factor == 2
    assert from_seed.resequencer.idle_timeout_ms == 30_000
    assert from_seed.resequencer.jitter_factor == 0.2
    assert from_seed.warnings == ()


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        (f"{R}.strategy = FULL_PAIN001", "strategy", "FULL_PAIN001"),
        (f"{R}.strategy = SEQUENCE", "strategy", "SEQUENCE"),
        (f"{R}.custom-data-keys = ['BusinessData']", "custom_data_keys", ("BusinessData",)),
        (f"{R}.pds-data-keys = ['pdsBusinessData']", "pds_data_keys", ("pdsBusinessData",)),
        (f"{R}.storage-type = none", "storage_type", StorageType.NONE),
        (f"{R}.storage-type = cache", "storage_type", StorageType.INFINISPAN),
    ],
)
def test_the_seeds_one_line_examples_are_valid_with_their_apostrophes(loaded, line, field, expected):
    assert getattr(loaded(line).resequencer, field) == expected
    assert getattr(loaded("", line).resequencer, field) == expected


def test_the_seeds_examples_of_a_strategy_with_its_keys_are_valid(loaded):
    custom = loaded(f"{R}.strategy = FULL_PAIN001_AND_CUSTOM_DATA\n{R}.custom-data-keys = ['BusinessData']")
    pds = loaded(f"{R}.strategy = FULL_PAIN001_AND_PDS_DATA\n{R}.pds-data-keys = ['pdsBusinessData']")
    assert custom.resequencer.custom_data_keys == ("BusinessData",)
    assert pds.resequencer.pds_data_keys == ("pdsBusinessData",)


def test_the_shipped_configuration_runs_files_embedded_and_in_sequence():
    configuration = load()
    assert configuration.ingress.transport is configuration.notification.transport is TransportType.FILE
    assert configuration.resequencer.storage_type is StorageType.EMBEDDED
    assert configuration.resequencer.strategy == "SEQUENCE"


def test_the_run_directory_is_named_after_the_file_and_holds_the_rest(loaded):
    configuration = loaded("")
    assert configuration.notification.run_directory == Path("run/service")
    assert configuration.ingress.file_directory == Path("run/service/in")
    assert configuration.notification.output_directory == Path("run/service/out")
    assert configuration.storage.embedded_file == Path("run/service/state.db")


def test_what_follows_from_the_run_directory_follows_a_changed_one(loaded):
    configuration = loaded("payment-status-notification { run-directory = /var/lib/psn, storage.embedded.file = /fast/state.db }")
    assert configuration.ingress.file_directory == Path("/var/lib/psn/in")
    assert configuration.storage.embedded_file == Path("/fast/state.db")


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("3s", 3_000),
        ("1.5s", 1_500),
        ("500ms", 500),
        ("250 millis", 250),
        ("2 minutes", 120_000),
        ("0.5h", 1_800_000),
        ("1d", 86_400_000),
        ('"4s"', 4_000),
        ("3 seconds", 3_000),
    ],
)
def test_a_duration_is_read_to_the_millisecond(loaded, written, milliseconds):
    assert loaded(f"{R}.stash-timeout = {written}").resequencer.stash_timeout_ms == milliseconds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("512M", 512 << 20),
        ("1G", 1 << 30),
        ("1.5G", 3 << 29),
        ("64MB", 64_000_000),
        ("64MiB", 64 << 20),
        ("1048576", 1 << 20),
        ('"8 M"', 8 << 20),
    ],
)
def test_a_size_is_read_to_the_byte(loaded, written, size):
    text = f"ipf.processing-data.ingress.max-record-bytes = 1M\n{R}.stash-limit.bytes-per-worker = {written}"
    assert loaded(text).resequencer.stash_limit_bytes_per_worker == size


@pytest.mark.parametrize(
    ("worker", "record", "unit", "bytes_per_unit"),
    [
        ("512M", "5M", "null", 64 << 20),
        ("16M", "5M", "null", 10 << 20),
        ("5M", "5M", "null", 10 << 20),
        ("1G", "5M", "20M", 20 << 20),
    ],
)
def test_a_unit_may_hold_an_eighth_of_its_worker_where_nothing_is_said(loaded, worker, record, unit, bytes_per_unit):
    text = f"""ipf.processing-data.ingress.max-record-bytes = {record}
        {R}.stash-limit {{ bytes-per-worker = {worker}, bytes-per-unit = {unit} }}"""
    assert loaded(text).resequencer.stash_bytes == bytes_per_unit


def test_values_from_the_environment_are_read_by_the_kind_of_their_key(loaded, monkeypatch):
    for name, value in {
        "IDLE": "45s",
        "PROBES": "5",
        "JITTER": "0.5",
        "PORT": "0",
        "STRATEGY": "SEQUENCE",
        "LIMIT": "256M",
    }.items():
        monkeypatch.setenv(name, value)
    configuration = loaded(
        f"""{R} {{ idle-timeout = ${{?IDLE}}, max-attempts = ${{?PROBES}}, jitter-factor = ${{?JITTER}}
        strategy = ${{?STRATEGY}}, stash-limit.bytes-per-worker = ${{?LIMIT}} }}
        payment-status-notification.http.port = ${{?PORT}}"""
    )
    assert configuration.resequencer.idle_timeout_ms == 45_000
    assert configuration.resequencer.max_attempts == 5
    assert configuration.resequencer.jitter_factor == 0.5
    assert configuration.resequencer.strategy == "SEQUENCE"
    assert configuration.resequencer.stash_limit_bytes_per_worker == 256 << 20
    assert configuration.http.port == 0


def test_an_override_is_hocon_and_beats_the_file_and_the_environment(loaded, monkeypatch):
    monkeypatch.setenv("PROBES", "5")
    text = f"{R}.max-attempts = 4\n{R}.max-attempts = ${{?PROBES}}"
    assert loaded(text).resequencer.max_attempts == 5
    assert loaded(text, f"{R}.max-attempts=6").resequencer.max_attempts == 6
    assert loaded(text, f"{R}.max-attempts=6", f"{R}.max-attempts=7").resequencer.max_attempts == 7
    assert loaded(text, f"{R} {{ custom-data-keys=[A, B] }}").resequencer.custom_data_keys == ("A", "B")


@pytest.mark.parametrize("section", CLIENTS)
def test_options_of_the_kafka_clients_are_taken_with_or_without_quotes(loaded, section):
    configuration = loaded(f'{section} {{ "client.id" = "psn, 1", request.timeout.ms = 6000, ssl.ca.location = ca.pem }}')
    clients = configuration.ingress.kafka_clients if section == CLIENTS[0] else configuration.notification.kafka_clients
    assert {"client.id": "psn, 1", "request.timeout.ms": 6000, "ssl.ca.location": "ca.pem"}.items() <= dict(clients).items()


def test_options_that_kafka_does_not_have_or_that_the_service_sets_itself_are_refused_by_their_full_path(refused):
    problems = refused(f"{CLIENTS[0]} {{ enable.auto.commit = true, session.timout.ms = 1 }}\n{CLIENTS[1]}.acks = 1")
    assert problems.keys() == {
        f"{CLIENTS[0]}.enable.auto.commit", f"{CLIENTS[0]}.session.timout.ms", f"{CLIENTS[1]}.acks"
    }  # fmt: skip
    assert problems[f"{CLIENTS[0]}.session.timout.ms"].endswith("the nearest is session.timeout.ms")
    assert problems[f"{CLIENTS[1]}.acks"].startswith("it is always all")


def test_every_known_strategy_and_ones_own_are_taken(loaded):
    keys = f"{R} {{ custom-data-keys = [A], pds-data-keys = [B], required-parts = [C], order-by = sequence }}\n"
    linked = "ipf.processing-data.ingress.events.format = cloudevents\npayment-status-notification.handler = pass-through\n"
    for strategy in (*STRATEGIES, "acme.orders:ByPriority"):
        needs = linked if strategy == "PREVIOUS" else ""
        assert loaded(f'{keys}{needs}{R}.strategy = "{strategy}"').resequencer.strategy == strategy


def test_a_secret_never_shows_in_a_repr(loaded):
    configuration = loaded(
        f"""payment-status-notification.storage {{
          infinispan.password = "'s3cret'", redis.url = "redis://:s3cret@cache:6379/0" }}
        {CLIENTS[0]} {{
          sasl.password = s3cret, sasl.jaas.config = "a.Login required username=\\"u\\" password=\\"s3cret\\";" }}"""
    )
    assert "s3cret" not in repr(configuration)
    assert not [each for each in configuration.effective if "s3cret" in str(each)]
    assert configuration.storage.infinispan.password == "'s3cret'"
    assert dict(configuration.ingress.kafka_clients)["sasl.password"] == "s3cret"
    assert configuration.storage.redis.url == "redis://:s3cret@cache:6379/0"


def test_of_the_urls_of_receivers_and_ledger_nothing_secret_is_shown(loaded):
    configuration = loaded(
        """payment-status-notification.delivery {
          receivers.tracker.url = "https://hooks.example:8443/services/s3cret?code=s3cret"
          ledger.url = "postgresql://ledger/db?sslmode=require&password=s3cret" }"""
    )
    shown = "\n".join(map(str, configuration.effective))
    assert "s3cret" not in shown
    assert "https://hooks.example:8443/***" in shown
    assert "postgresql://ledger/db?sslmode=require&password=***" in shown


@pytest.mark.parametrize("storage", ["infinispan", "cache"])
def test_cache_is_another_name_for_infinispan(loaded, storage):
    assert loaded(f"{R}.storage-type = {storage}").resequencer.storage_type is StorageType.INFINISPAN


def test_a_deadline_beyond_the_idle_timeout_is_no_reason_for_a_warning(loaded):
    """A unit in which something waits stays active, however long that is."""
    assert loaded(f"{R} {{ stash-timeout = 5m, idle-timeout = 30s }}").warnings == ()


def test_threads_that_never_have_a_call_are_allowed_with_a_warning(loaded):
    assert loaded(f"{R} {{ handling-threads = 64 }}").warnings == ()
    (warning,) = loaded(f"{R} {{ handling-threads = 65 }}").warnings
    assert warning.startswith(f"{R}.handling-threads: is above {R}.handling-concurrency, which is 64")


def test_with_window_the_deadline_is_the_window(loaded):
    window = f"ipf.processing-data.ingress.events.format = cloudevents\npayment-status-notification.handler = pass-through\n{R}"
    attempts = "processing-timeout = 1h, max-attempts = 100, handling-limit = 1h, idle-timeout = 1h"
    clients = "ipf.processing-data.ingress.kafka.consumer.kafka-clients.max.poll.interval.ms = 7200000\n"
    assert loaded(f"{clients}{window} {{ strategy = WINDOW, {attempts} }}").warnings == ()
    with pytest.raises(ConfigurationRefused, match="a deadline of more than 30d"):
        loaded(f"{clients}{R} {{ {attempts} }}")
    shorter = loaded(f"{window} {{ strategy = WINDOW, stash-timeout = 1s, reorder-window = 5m }}")
    assert shorter.resequencer.deadline_ms == 300_000


@pytest.mark.parametrize(
    ("transport", "acknowledge", "reason"),
    [
        ("kafka", "when-settled", "a worker that ends or loses the partition loses them"),
        ("kafka", "when-handled", "unhandled records are read again"),
        ("file", "when-settled", "a notification that was being sent at a crash may be sent again"),
    ],
)
def test_storage_none_says_what_it_gives_up(loaded, transport, acknowledge, reason):
    transports = f"ipf.processing-data.ingress.transport = {transport}\npayment-status-notification.transport = {transport}\n"
    (warning,) = loaded(f"{transports}{R} {{ storage-type = none, acknowledge = {acknowledge} }}").warnings
    assert reason in warning


def test_when_handled_is_for_no_storage_on_kafka(loaded):
    configuration = loaded(f"{R} {{ storage-type = none, acknowledge = when-handled }}")
    assert configuration.resequencer.acknowledge is Acknowledge.WHEN_HANDLED


def test_every_key_is_in_the_reference_with_a_comment_before_it():
    lines = Path("conf/reference.conf").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if "=" in line and not line.lstrip().startswith("#"):
            assert lines[number - 1].lstrip().startswith("#"), line
    assert {each.path for each in load().effective if not each.path.startswith(CLIENTS)} == set(KEYS)
