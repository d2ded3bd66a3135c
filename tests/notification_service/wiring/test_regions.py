"""From a configuration to the transport of a region, and the commands that do not work with one."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from guardian.ports import Channel
from notification_service.configuration.transports import (
    is_region,
    jms_sink_settings,
    jms_source_settings,
    kafka_sink_settings,
    kafka_source_settings,
    max_of_interval,
    mqtt_sink_settings,
    only_with_files,
    only_with_one_kind,
)
from notification_service.connectors.dead_letters.port import AskedFor
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.kafka.sink import KafkaTransport
from notification_service.connectors.region_transport import RegionTransport
from notification_service.status.report import State, StatusReport
from notification_service.status.service_report import service_report
from notification_service.status.sink_attributes import RegionOrderFile
from notification_service.supervision.locks import RunningService
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring import console, regions
from notification_service.wiring.composition import compose, refuse_unusable
from notification_service.wiring.console import InputPartitions, console_sources
from notification_service.wiring.dead_letter_stores import open_store
from notification_service.wiring.regions import LocalRegions, RegionNotReset, find_initial_refusal, make_region_transport
from resequencer.clock import instant_text
from resequencer.errors import ConfigurationError

N = "payment-status-notification"
I = "ipf.processing-data.ingress"  # noqa: E741 (short, as N is)
PARTS = ", ".join(f'{{ queue = E, selector = "part = {number}" }}' for number in range(5))
JMS = f"{I} {{ transport = jms, jms.partitions = [{PARTS}] }}\n"
EMBEDDED = f"{N}.resequencer.storage-type = embedded\n"


@pytest.fixture
def configured(loaded, tmp_path):
    """Return a configuration with the embedded storage under `tmp_path`."""
    return lambda text, *overrides: loaded(f'{EMBEDDED}{N}.run-directory = "{tmp_path}/run"\n{text}', *overrides)


@pytest.mark.parametrize(("text", "every_ms"), [(f"{N}.transport = file", 5_000), (f"{JMS}{N}.transport = jms", 0)])
def test_positions_move_as_often_as_acknowledge_every_says_and_those_of_queues_at_once(configured, text, every_ms):
    configuration = configured(f"{text}\n{N}.resequencer.acknowledge-every = 5s")
    parts = compose(configuration, lambda _: None, lambda: False)
    assert parts.cycle._settings.acknowledge_every_ms == every_ms
    for each in parts.servers:
        each.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", KafkaTransport),
        (f"{I}.transport = file\n{N}.transport = file", FileTransport),
        (f"{I}.transport = file", RegionTransport),
        (f"{N}.transport = file", RegionTransport),
        (f"{N}.transport = jms", RegionTransport),
        (f"{N}.further-transports = [jms]", RegionTransport),
        (f"{N}.transport = mqtt", RegionTransport),
        (f"{N}.further-transports = [mqtt, xms]", RegionTransport),
        (f"{JMS}{N}.transport = jms", RegionTransport),
        (f"{I}.kafka.partitions = [0, 1]", RegionTransport),
    ],
)
def test_only_two_kinds_several_sinks_or_fixed_partitions_are_a_region(configured, text, kind):
    configuration = configured(text)
    parts = compose(configuration, lambda *_: None, lambda: False)
    assert type(parts.servers.transport) is kind
    assert is_region(configuration) is (kind is RegionTransport)
    for server in parts.servers:
        server.close()


def test_the_first_sink_takes_everything_and_the_others_the_notifications(configured):
    configuration = configured(f"{N} {{ transport = jms, further-transports = [file, kafka] }}")
    transport = make_region_transport(configuration, lambda *_: None, 0)
    taken = {each.name: each.channels for each in transport._routes}
    assert taken == {
        "sink jms": frozenset(Channel),
        "sink file": frozenset({Channel.NOTIFICATIONS}),
        "sink kafka": frozenset({Channel.NOTIFICATIONS}),
    }
    transport.close()


def test_the_slots_of_one_machine_share_the_partitions_out_and_each_keeps_its_number(configured):
    configuration = configured(f"{JMS}{N}.transport = jms\n{N}.worker.count = 2")
    shares = [jms_source_settings(configuration, slot).named for slot in range(2)]
    assert [[each.number for each in share] for share in shares] == [[0, 2, 4], [1, 3]]
    assert [each.selector for each in shares[1].values()] == ["part = 1", "part = 3"]
    assert list(jms_source_settings(configuration).named) == list(InputPartitions(configuration).find())


def test_the_slots_of_one_machine_share_fixed_partitions_out_and_a_slot_too_many_has_none(configured):
    configuration = configured(f"{I}.kafka.partitions = [5, 0, 7]\n{N}.worker.count = 4")
    shares = [kafka_source_settings(configuration, slot).partitions for slot in range(4)]
    assert shares == [(5,), (0,), (7,), ()]
    assert kafka_source_settings(configured(f"{N}.transport = jms")).partitions is None


def test_a_kafka_sink_has_one_transactional_id_wherever_it_runs_and_one_for_each_namespace(configured):
    first = configured(f'{N} {{ transport = jms, further-transports = [kafka], run-directory = "/a" }}')
    elsewhere = configured(f'{N} {{ transport = jms, further-transports = [kafka], run-directory = "/b" }}')
    another = configured(f"{N} {{ further-transports = [jms], storage.namespace = another }}")
    ids = [kafka_sink_settings(each).transactional_id for each in (first, elsewhere, another)]
    assert ids[0] == ids[1] != ids[2]


def test_a_further_kafka_sink_needs_no_topics_but_its_own(configured):
    keys = "aggregation.enabled = true, transport = file, further-transports = [kafka]"
    topics = kafka_sink_settings(configured(f"{N} {{ {keys} }}")).topics
    assert topics.all == ("PAYMENT_STATUS_NOTIFICATION_MARKERS", topics.notifications, topics.dead_letters)


def test_a_trigger_count_is_the_most_of_an_interval_and_the_window_of_messages(configured):
    counted = configured(f"{JMS}{N}.region.trigger-count = 70")
    assert max_of_interval(counted) == jms_source_settings(counted).window == 70
    assert max_of_interval(configured(f"{JMS}{I}.batch-size = 90")) == 90
    assert max_of_interval(configured(f"{I}.batch-size = 90\n{N}.region.trigger-count = 70")) == 90, "this is no region"


def test_broker_and_queues_are_those_of_the_configuration(configured):
    keys = 'url = "amqps://host", user = me, password = s3cret'
    configuration = configured(f"{JMS}{I}.jms {{ {keys}, heartbeat = 3s }}\n{N}.jms {{ {keys}, notifications.queue = A }}")
    source, sink = jms_source_settings(configuration), jms_sink_settings(configuration)
    assert (source.url, source.user, source.password) == ("amqps://host", "me", "s3cret")
    assert (source.heartbeat_ms, sink.heartbeat_ms) == (3_000, 3_000)
    assert (sink.notifications, sink.markers) == ("A", "PAYMENT_STATUS_NOTIFICATION_MARKERS")
    assert "s3cret" not in repr(source) + repr(sink)


def test_a_client_that_is_not_installed_is_refused_with_the_remedy(configured, monkeypatch):
    configuration = configured(f"{JMS}{N}.transport = jms")
    refuse_unusable(configuration)
    monkeypatch.setattr(regions, "find_spec", lambda name: None if name == "proton" else find_spec(name))
    with pytest.raises(ConfigurationError) as refused:
        refuse_unusable(configuration)
    assert f"{I}.transport: is jms, whose client is not installed; install it by `make setup-jms`" in str(refused.value)
    assert f"{N}.transport: is jms, whose client" in str(refused.value)
    refuse_unusable(configured(""))


@pytest.mark.parametrize(("kind", "module", "extra"), [("mqtt", "paho", "mqtt"), ("xms", "proton", "jms")])
def test_a_sink_whose_client_is_not_installed_is_refused_with_the_remedy(configured, monkeypatch, kind, module, extra):
    configuration = configured(f"{N}.further-transports = [{kind}]")
    refuse_unusable(configuration)
    monkeypatch.setattr(regions, "find_spec", lambda name: None if name == module else find_spec(name))
    with pytest.raises(ConfigurationError, match=rf"is {kind}, whose client is not installed.*pip install '.\[{extra}\]'"):
        refuse_unusable(configuration)


def test_broker_topics_and_login_of_a_sink_mqtt_are_those_of_the_configuration(configured):
    keys = 'url = "mqtts://host", user = me, password = s3cret, client-id = c, qos = 2, heartbeat = 3s, notifications.topic = A'
    configuration = configured(f"{N} {{ transport = mqtt, mqtt {{ {keys} }} }}")
    sinks = [mqtt_sink_settings(configuration, slot) for slot in (0, 1, None)]
    assert [each.client_id for each in sinks] == ["c-0", "c-1", "c-check"]
    broker = sinks[0]
    assert (broker.place, broker.has_tls, broker.user, broker.password) == ("mqtts://host:8883", True, "me", "s3cret")
    assert (broker.heartbeat_ms, sinks[0].qos, sinks[0].notifications) == (3_000, 2, "A")
    assert mqtt_sink_settings(configured(f"{N}.transport = mqtt"), 0).client_id is None
    assert "s3cret" not in repr(sinks)


@pytest.mark.parametrize(
    "text",
    [
        f"{JMS}{N}.transport = jms",
        f"{I}.transport = file",
        f"{N}.transport = jms",
        f"{N}.transport = mqtt",
        f"{N}.transport = xms",
    ],
)
def test_commands_that_need_one_kind_say_so(configured, text):
    configuration = configured(text)
    refusal = only_with_one_kind(configuration, "audit")
    assert refusal is not None
    assert "`audit` needs both to be kafka, or both to be file" in str(refusal)
    assert only_with_files(configuration, "archive") is not None
    with pytest.raises(ConfigurationError, match=r"These dead letters are in the (queue|topic) "):
        open_store(configuration, AskedFor())


def test_a_further_sink_leaves_the_commands_of_one_kind(configured):
    configuration = configured(f"{I}.transport = file\n{N} {{ transport = file, further-transports = [jms] }}")
    assert only_with_one_kind(configuration, "audit") is None
    refusal = only_with_files(configuration, "archive")
    assert refusal is not None
    assert "only they tell what has left" in str(refusal)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", None),
        (f"{I}.transport = file", None),
        (f"{N}.resequencer.storage-type = none", "storage-type is none"),
        (f"{JMS}{N}.transport = jms", "messages that were acknowledged cannot be read again"),
        (f"{N}.aggregation.enabled = true", "would be reported again without a mark"),
    ],
)
def test_the_initial_state_is_refused_where_something_would_be_lost_or_repeated_without_a_mark(configured, text, why):
    refusal = find_initial_refusal(configured(text))
    assert refusal is None if why is None else why in refusal


@pytest.fixture
def running(monkeypatch):
    """A service with the process id 7 that has a worker in slot 0."""
    now = instant_text(SystemClock().now())
    found = service_report([StatusReport(State.READY, None, 7, "conf", now, now)], SystemClock().now(), is_running=True)
    monkeypatch.setattr(regions, "find_service", lambda *_: RunningService("ready", found, "7"))


@pytest.mark.usefixtures("running")
def test_orders_for_regions_are_files_of_the_slot(configured):
    configuration = configured("")
    local, file = LocalRegions(configuration), RegionOrderFile(configuration.notification.run_directory, 0)
    configuration.notification.run_directory.mkdir(parents=True)
    assert [local.reset(1, "anna", is_forced=True), local.plan_initial(1, "anna"), local.reset_to_initial(1, "anna", "x")] == [
        None
    ] * 3
    given = local.reset(0, "anna", is_forced=True)
    taken = file.take(7)
    assert (taken.id, taken.by, taken.is_forced, taken.to_initial) == (given, "anna", True, False)
    local.plan_initial(0, "anna")
    with pytest.raises(RegionNotReset, match="has not read the last order yet"):
        local.plan_initial(0, "anna")
    planned = file.take(7)
    assert (planned.to_initial, planned.is_dry_run) == (True, True)
    order = local.reset_to_initial(0, "anna", "a new handler")
    assert (file.take(7), order.because) == (order, "a new handler")


@pytest.mark.usefixtures("running")
def test_a_proposal_becomes_an_order_by_another_person_alone(configured):
    configuration = configured(f"{N}.http {{ auth = basic, approval = [reset-to-initial] }}")
    configuration.notification.run_directory.mkdir(parents=True)
    local, file = LocalRegions(configuration), RegionOrderFile(configuration.notification.run_directory, 0)
    proposed = local.reset_to_initial(0, "anna", "a new handler")
    assert (local.needs_approval, file.take(7), local.find_proposal(0)) == (True, None, proposed)
    for who, which in (("Anna", proposed.id), ("ben", "other")):
        with pytest.raises(RegionNotReset):
            local.decide(0, which, who, is_approved=True)
    local.decide(0, proposed.id, "ben", is_approved=True)
    assert file.take(7) == replace(proposed, approved_by="ben")
    assert local.find_proposal(0) is None
    other = local.reset_to_initial(0, "anna", "again")
    local.decide(0, other.id, "anna", is_approved=False)
    assert (file.take(7), local.find_proposal(0)) == (None, None)


@pytest.mark.usefixtures("running")
def test_of_two_people_who_decide_at_the_same_moment_one_is_refused(configured, monkeypatch):
    configuration = configured(f"{N}.http {{ auth = basic, approval = [reset-to-initial] }}")
    configuration.notification.run_directory.mkdir(parents=True)
    local, both, give = LocalRegions(configuration), Barrier(2), RegionOrderFile.give
    proposed, given = local.reset_to_initial(0, "anna", "a new handler"), []

    def give_together(file, order):
        with suppress(BrokenBarrierError):
            both.wait(0.5)
        given.append(order.approved_by)
        give(file, order)

    def decide(who):
        with suppress(RegionNotReset):
            local.decide(0, proposed.id, who, is_approved=True)

    monkeypatch.setattr(RegionOrderFile, "give", give_together)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(decide, ["ben", "carl"]))
    assert len(given) == 1


def test_the_partitions_of_the_input_are_asked_for_again_beside_who_reads_them(configured, tmp_path, monkeypatch):
    """A broker that answers slowly keeps no page waiting, and makes nothing old that is read from elsewhere."""
    partitions = InputPartitions(configured(f'{I} {{ transport = file, file.directory = "{tmp_path}" }}'))
    (tmp_path / "partition-0.jsonl").touch()
    assert [each.number for each in partitions.find()] == [0]
    (tmp_path / "partition-1.jsonl").touch()
    assert [each.number for each in partitions.find()] == [0], "a moment ago"
    began = []
    monkeypatch.setattr(console, "_FRESH_MS", 0)
    monkeypatch.setattr(console, "Thread", lambda target, **_: SimpleNamespace(start=lambda: began.append(target)))
    assert [each.number for each in partitions.find()] == [0]
    began[0]()
    monkeypatch.setattr(console, "_FRESH_MS", 30_000)
    assert [each.number for each in partitions.find()] == [0, 1]


def test_the_console_has_the_sink_mqtt_where_there_is_one(configured):
    assert console_sources(configured("")).sink is None
    mqtt = f'{N} {{ transport = mqtt, mqtt.url = "mqtt://me:s3cret@first:1883" }}'
    sink = console_sources(configured(mqtt)).sink
    shown = {each.name: (each.value, each.by) for each in sink.shown()}
    assert shown["url"] == ("mqtt://first:1883", None)
    assert list(shown) == ["url", "qos", "notifications.topic", "dead-letters.topic"]
