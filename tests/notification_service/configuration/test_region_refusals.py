"""What a region cannot promise is refused, with the reason and the remedy; what it promises less is named."""

import pytest

P = "payment-status-notification"
R = f"{P}.resequencer"
I = "ipf.processing-data.ingress"  # noqa: E741 (short, as P and R are)
PARTS = f'{I}.jms.partitions = [{{ queue = E, selector = "part = 0" }}, {{ queue = E, selector = "part = 1" }}]\n'
JMS = f"{I}.transport = jms\n{PARTS}"


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        (f"{P}.further-transports = [kafka]", f"{P}.further-transports", "name each kind once"),
        (f"{P}.transport = file\n{R}.storage-type = none", f"{R}.storage-type", "choose embedded, redis or infinispan"),
        (f"{I}.kafka.partitions = [0, 1]\n{R}.storage-type = none", f"{R}.storage-type", f"and {I}.kafka.partitions to be empty"),
        (f"{P}.further-transports = [jms]\n{R}.storage-type = none", f"{R}.storage-type", "known from the storage alone"),
        (f"{JMS}{P}.transport = jms\n{R}.storage-type = none", f"{R}.storage-type", "known from the storage alone"),
        (f"{JMS}{P}.region.trigger = operator-driven", f"{P}.region.trigger", "give a number, or set periodic"),
        (f"{P}.transport = file\n{P}.worker.count = 2", f"{P}.worker.count", "Set it to 1, or use kafka or jms"),
        (f"{I}.transport = file\n{P}.worker.count = 2", f"{P}.worker.count", "Set it to 1, or use kafka or jms"),
        (f"{P}.further-transports = [file]\n{P}.worker.count = 2", f"{P}.worker.count", "Set it to 1, or use kafka or jms"),
        (f"{I}.transport = jms", f"{I}.jms.partitions", "name the queues, such as"),
        (f"{JMS}{I}.jms.partitions = [{{ queue = E }}, {{ queue = E }}]", f"{I}.jms.partitions", "different selectors"),
        (f"{JMS}{I}.jms.partitions += [{{ queue = E }}]", f"{I}.jms.partitions", "different selectors"),
        (f'{JMS}{I}.jms.partitions += [{{ queue = E, selector = "part = 1" }}]', f"{I}.jms.partitions", "different selectors"),
        (
            f'{JMS}{I}.jms.partitions = [{{ queue = E, selector = "part = 0", exclusive = true }}]',
            f"{I}.jms.partitions",
            "would never get a message",
        ),
        (f"{JMS}{P} {{ transport = jms, jms.notifications.queue = E }}", f"{I}.jms.partitions", "read its own output"),
        (
            f"{P} {{ transport = jms, jms.markers.queue = A, jms.notifications.queue = A }}",
            f"{P}.jms.markers.queue",
            "a queue of its own",
        ),
        (f"{P} {{ further-transports = [file], kafka.markers.topic = IPF_PROCESSING_DATA }}", f"{P}.kafka.markers.topic", "own"),
        (f"{JMS}{I}.kafka.partitions = [0, 1]", f"{I}.kafka.partitions", f"needs {I}.transport = kafka"),
        (f"{P}.transport = jms\n{P}.orders.enabled = true", f"{P}.orders.enabled", "belongs to a partition of the source"),
        (f"{JMS}{P}.transport = jms\n{P}.orders.enabled = true", f"{P}.orders.enabled", "belongs to a partition of the source"),
        (f"{P}.transport = jms\n{P}.aggregation.enabled = true", f"{P}.aggregation.enabled", "read again from a topic or a file"),
        (
            f"{I} {{ transport = file, file.archive-every = 1h }}\n{R}.storage-type = embedded",
            f"{I}.file.archive-every",
            "only the files tell what has left",
        ),
        (
            f'{P}.transport = jms\n{P}.delivery.receivers.tracker.url = "http://localhost"',
            f"{P}.delivery.receivers.tracker.url",
            "such as [jms]",
        ),
        (f"{I}.transport = mqtt", f"{I}.transport", "mqtt and xms cannot begin a region: a bridge reads them"),
        (f"{I}.transport = xms", f"{I}.transport", "see ipf.bridge"),
        (f"{P}.transport = stomp", f"{P}.transport", "expected: one of kafka, file, jms, mqtt, xms"),
        (f"{P} {{ transport = mqtt, mqtt.qos = 3 }}", f"{P}.mqtt.qos", "a whole number from 0 to 2"),
        (f'{P} {{ transport = mqtt, mqtt.url = "tcp://h" }}', f"{P}.mqtt.url", "begins with mqtt:// or mqtts://"),
        (f'{P} {{ transport = mqtt, mqtt.notifications.topic = "A/#" }}', f"{P}.mqtt.notifications.topic", "a topic of MQTT"),
        (
            f"{P} {{ transport = mqtt, mqtt {{ notifications.topic = A, dead-letters.topic = A }} }}",
            f"{P}.mqtt.dead-letters.topic",
            "could not tell dead letters from notifications",
        ),
        (
            f"{P} {{ further-transports = [xms], xms {{ notifications.queue = A, dead-letters.queue = A }} }}",
            f"{P}.xms.dead-letters.queue",
            "a queue of its own",
        ),
        (f"{P} {{ transport = jms, further-transports = [xms] }}", f"{P}.xms.notifications.queue", "in it twice"),
        (f"{JMS}{P} {{ transport = xms, xms.notifications.queue = E }}", f"{I}.jms.partitions", "read its own output"),
        (f"{P}.transport = mqtt\n{R}.storage-type = none", f"{R}.storage-type", "known from the storage alone"),
        (f"{P}.transport = xms\n{P}.orders.enabled = true", f"{P}.orders.enabled", "belongs to a partition of the source"),
        (f"{P}.transport = mqtt\n{P}.aggregation.enabled = true", f"{P}.aggregation.enabled", "read again from a topic"),
        (
            f'{P}.transport = mqtt\n{P}.delivery.receivers.tracker.url = "http://localhost"',
            f"{P}.delivery.receivers.tracker.url",
            "cannot be read twice",
        ),
        (
            f"{I}.file.archive-every = 1h\n{R}.storage-type = embedded",
            f"{I}.file.archive-every",
            "only the files tell what has left",
        ),
        (
            f"{P} {{ further-transports = [file], aggregation {{ enabled = true, facts.topic = M }}, kafka.markers.topic = M }}",
            f"{P}.kafka.markers.topic",
            "own",
        ),
        (f"{P}.further-transports = [jms, jms]", f"{P}.further-transports", "different"),
    ],
)
def test_what_cannot_be_promised_is_refused_with_reason_and_remedy(refused, text, path, reason):
    ((found, problem),) = refused(text).items()
    assert found == path
    assert reason in problem


@pytest.mark.parametrize(
    "text",
    [
        f"{P}.transport = file",
        f"{I}.transport = file",
        f"{P}.transport = jms\n{P}.worker.count = 2",
        f"{P}.further-transports = [file, jms]",
        f"{P}.further-transports = [jms]\n{P}.orders.enabled = true\n{P}.aggregation.enabled = true",
        f"{P}.transport = jms\n{I}.kafka.partitions = [0, 3]\n{P}.worker.count = 2",
        f"{I}.kafka.partitions = [0, 1]",
        f'{JMS}{P} {{ transport = jms, jms.url = "amqp://elsewhere:5672", jms.notifications.queue = E }}',
        f"{JMS}{P}.region {{ trigger = operator-driven, trigger-count = 500 }}",
        f"{JMS}{I}.jms.partitions = [{{ queue = A, exclusive = true }}, {{ queue = B, exclusive = true }}]",
        f"{P}.jms.markers.queue = PAYMENT_STATUS_NOTIFICATION",
        f"{P}.kafka.markers.topic = IPF_PROCESSING_DATA",
        f"{P}.transport = mqtt\n{P}.worker.count = 2",
        f"{P} {{ transport = kafka, further-transports = [mqtt, xms, file] }}",
        f"{P} {{ transport = jms, further-transports = [xms], xms {{ notifications.queue = A, dead-letters.queue = B }} }}",
        f'{P}.mqtt.dead-letters.topic = "PAYMENT_STATUS_NOTIFICATION/NOTIFICATIONS"',
    ],
)
def test_what_can_be_promised_is_taken(loaded, text):
    loaded(text)


def test_a_source_that_cannot_be_read_again_is_reported(loaded):
    (reason,) = loaded(JMS).warnings
    assert reason.startswith(f"{I}.transport: is jms: a message that was acknowledged cannot be read again")
    assert loaded(f"{P}.transport = jms").warnings == ()


def test_a_sink_without_a_marker_is_reported_and_so_is_qos_0(loaded):
    for kind in ("mqtt", "xms"):
        (reason,) = loaded(f"{P}.further-transports = [{kind}]").warnings
        assert reason.startswith(f"{P}.transport: names {kind}, which gets each message at least once")
    (reason,) = loaded(f"{P} {{ transport = mqtt, mqtt.qos = 0 }}").warnings
    assert reason.startswith(f"{P}.mqtt.qos: is 0, which promises nothing")
    assert loaded(f"{P}.mqtt.qos = 0").warnings == ()


def test_workers_without_a_partition_are_reported(loaded):
    assert any("have no work" in each for each in loaded(f"{JMS}{P}.worker.count = 3").warnings)
    assert not any("have no work" in each for each in loaded(f"{JMS}{P}.worker.count = 2").warnings)


def test_passwords_of_brokers_are_never_shown(loaded, refused_text):
    shown = {
        each.path: each.value for each in loaded(f'{JMS}{I}.jms {{ url = "amqp://me:s3cret@host", password = s3cret }}').effective
    }
    assert shown[f"{I}.jms.password"] == "***"
    assert "s3cret" not in str(shown)
    assert "s3cret" not in refused_text(f'{I}.jms {{ url = "ftp://me:s3cret@host", password = [s3cret] }}')
