"""What the bridge cannot do is refused, with the reason and the remedy; what it promises less is named."""

import pytest

P = "payment-status-notification"
I = "ipf.processing-data.ingress"  # noqa: E741 (short, as P is)
B = "ipf.bridge"
STORED = f"{P}.resequencer.storage-type = embedded"


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        (f"{B}.enabled = true\n{I}.transport = file\n{P}.transport = file", f"{B}.start", "what the bridge appends would not be"),
        (f"{B} {{ enabled = true, start = file }}", f"{B}.start", "set both to kafka, or both to file"),
        (f"{B}.source = kafka", f"{B}.source", "expected: one of mqtt, xms"),
        (f"{B}.mqtt.message-queue-size = 0", f"{B}.mqtt.message-queue-size", "from 1 to 10000"),
        (f"{B}.mqtt.qos = 3", f"{B}.mqtt.qos", "from 0 to 2"),
        (f"{B}.mqtt.topics = []", f"{B}.mqtt.topics", "topic filters of MQTT"),
        (f'{B}.mqtt.topics = ["$share/g/T"]', f"{B}.mqtt.topics", "none of them begins with $share/"),
        (f'{B}.mqtt.topics = ["a/#/b"]', f"{B}.mqtt.topics", "topic filters of MQTT"),
        (f'{B}.mqtt.topics = ["a/b+"]', f"{B}.mqtt.topics", "topic filters of MQTT"),
        (f'{B}.mqtt.url = "amqp://h:1"', f"{B}.mqtt.url", "mqtt://"),
        (
            f"{STORED}\n{B} {{ enabled = true, source = xms, xms.queue = Q }}\n"
            f"{P} {{ transport = jms, jms.dead-letters.queue = Q }}",
            f"{B}.xms.queue",
            "read its own output",
        ),
        (
            f"{STORED}\n{B} {{ enabled = true, source = xms, xms.queue = Q }}\n"
            f"{P} {{ further-transports = [xms], xms.notifications.queue = Q }}",
            f"{B}.xms.queue",
            "read its own output",
        ),
        (
            f'{STORED}\n{B} {{ enabled = true, mqtt.topics = ["#"] }}\n{P}.further-transports = [mqtt]',
            f"{B}.mqtt.topics",
            "read its own output",
        ),
    ],
)
def test_what_the_bridge_cannot_do_is_refused_with_reason_and_remedy(refused, text, path, reason):
    ((found, problem),) = refused(text).items()
    assert found == path
    assert reason in problem


@pytest.mark.parametrize("kind", ["mqtt", "xms"])
def test_a_source_that_cannot_be_read_again_is_refused_and_the_bridge_is_named(refused, kind):
    ((found, problem),) = refused(f"{I}.transport = {kind}").items()
    assert found == f"{I}.transport"
    assert "see ipf.bridge" in problem


@pytest.mark.parametrize(
    "text",
    [
        f"{B}.enabled = true",
        f"{B}.start = file",
        f"{STORED}\n{B} {{ enabled = true, start = file }}\n{I}.transport = file\n{P}.transport = file",
        f"{STORED}\n{B} {{ enabled = true, source = xms }}\n{P}.transport = jms",
        f'{STORED}\n{B} {{ enabled = true, mqtt.topics = ["+", "a/+/b", "c/#"] }}\n{P} {{ transport = mqtt, '
        "mqtt { notifications.topic = d/e, dead-letters.topic = d/f } }",
        f'{STORED}\n{B} {{ enabled = true, mqtt.topics = ["#"] }}\n{P} {{ transport = mqtt, mqtt.url = "mqtt://elsewhere" }}',
    ],
)
def test_what_it_can_do_is_loaded(loaded, text):
    loaded(text)


@pytest.mark.parametrize(("qos", "reason"), [(0, "messages may be lost"), (1, None), (2, "a crash of the bridge may lose")])
def test_the_quality_of_service_that_promises_less_is_reported(loaded, qos, reason):
    warnings = [each for each in loaded(f"{B} {{ enabled = true, mqtt.qos = {qos} }}").warnings if each.startswith(B)]
    assert bool(warnings) == (reason is not None)
    assert reason is None or reason in warnings[0]


def test_passwords_of_the_bridge_are_never_shown(loaded):
    text = f'{B} {{ mqtt {{ url = "mqtt://me:s3cret@host", password = s3cret }}, xms.url = "amqp://me:s3cret@host" }}'
    assert "s3cret" not in str([each.value for each in loaded(text).effective])
