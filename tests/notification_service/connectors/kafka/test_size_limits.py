"""Records that are too large for a topic: a notification becomes a dead letter, and a dead letter is cut."""

from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardian.ports import Channel, OutputRecord, TransportRefused
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.core.records import BEGINNING_BYTES, ProducerRecord, size_of
from notification_service.connectors.kafka.core.size_limits import SizeLimits
from resequencer.order import Order, OrderKind, OrderOutcome, OrderResult, decode_outcome, encode_outcome

NOW = 1_774_740_835_941
TOPICS = KafkaTopics("in", "out", "dead", "orders", "outcomes", "facts")


def fit(records: OutputRecord, out: int = 1_000, dead: int = 1_000) -> ProducerRecord:
    return SizeLimits(TOPICS, {"out": out, "dead": dead, "outcomes": dead, "facts": out}).fit(records, NOW)


def notification(value: bytes) -> OutputRecord:
    return OutputRecord(7, Channel.NOTIFICATIONS, b"unit", (("notification-id", b"N"), ("source-position", b"in-3@17")), value)


def dead_letter(value: bytes, *headers: tuple[str, bytes], key: bytes | None = b"unit") -> OutputRecord:
    return OutputRecord(7, Channel.DEAD_LETTERS, key, (*headers, ("dead-letter-reason", b"undecodable")), value)


def test_what_fits_leaves_as_it_is() -> None:
    given = notification(b"x" * 100)
    assert fit(given) == ProducerRecord("out", given.key, given.headers, given.value)


def test_a_notification_that_is_too_large_becomes_a_dead_letter_that_says_so() -> None:
    record = fit(notification(b"x" * 1_000), dead=100_000)
    assert (record.topic, record.key, record.value) == ("dead", b"unit", b"x" * 1_000)
    headers = dict(record.headers)
    assert headers["notification-id"] == b"N"
    assert headers["dead-letter-reason"] == b"too-large"
    assert headers["dead-letter-source-position"] == b"in-3@17"
    assert headers["dead-letter-at"] == b"2026-03-28T23:33:55.941Z"
    assert headers["dead-letter-error"].startswith(b"the notification takes 1")
    assert headers["dead-letter-error"].endswith(
        b"but out accepts 1000; raise its max.message.bytes and the producer's max.request.size"
    )


def test_a_dead_letter_that_is_too_large_is_cut_with_its_length_and_digest() -> None:
    value = bytes(range(256)) * 8
    record = fit(dead_letter(value))
    assert value.startswith(record.value)
    assert 500 < len(record.value) < 1_000
    headers = dict(record.headers)
    assert headers["dead-letter-value-length"] == b"2048"
    assert headers["dead-letter-value-sha256"] == sha256(value).hexdigest().encode()


def test_a_dead_letter_that_was_cut_before_keeps_what_it_said_of_the_whole() -> None:
    was = (("dead-letter-value-length", b"9999999"), ("dead-letter-value-sha256", b"of the whole"))
    record = fit(OutputRecord(7, Channel.DEAD_LETTERS, b"k", was, b"x" * 5_000))
    assert record.headers == was


def test_no_more_is_kept_of_it_than_of_any_value_that_is_cut() -> None:
    assert len(fit(dead_letter(b"x" * 300_000), dead=200_000).value) == BEGINNING_BYTES


def test_headers_that_are_too_large_go_before_those_that_we_added() -> None:
    record = fit(dead_letter(b"{}", ("huge", b"x" * 5_000)))
    assert [name for name, _ in record.headers] == [
        "dead-letter-reason",
        "dead-letter-value-length",
        "dead-letter-value-sha256",
    ]
    assert record.key == b"unit"


def test_a_key_that_is_too_large_goes_at_last() -> None:
    assert fit(dead_letter(b"{}", key=b"k" * 5_000)).key is None


@given(
    st.binary(max_size=3_000),
    st.one_of(st.none(), st.binary(max_size=3_000)),
    st.lists(st.tuples(st.text(max_size=300), st.binary(max_size=3_000)), max_size=5),
    st.sampled_from([each for each in Channel if each not in (Channel.FACTS, Channel.VALUES)]),
    st.integers(1_000, 4_000),
)
def test_whatever_leaves_fits(
    value: bytes, key: bytes | None, headers: list[tuple[str, bytes]], channel: Channel, limit: int
) -> None:
    ours = (("dead-letter-reason", b"undecodable"), ("dead-letter-error", b"e" * 100), ("dead-letter-at", b"2026"))
    record = fit(OutputRecord(1, channel, key, (*headers, *ours), value), limit, limit)
    assert size_of(record.key, record.headers, record.value) <= limit
    assert value.startswith(record.value)


def test_a_fact_leaves_whole_or_its_topic_is_refused_with_the_remedy() -> None:
    fact = OutputRecord(7, Channel.FACTS, b"group", (("member", b"unit"),), b"x" * 500)
    assert fit(fact) == ProducerRecord("facts", fact.key, fact.headers, fact.value)
    problem = r"^topic facts: a fact takes 6\d\d bytes, but it accepts 500\. Raise its max\.message\.bytes and the producer's"
    with pytest.raises(TransportRefused, match=problem):
        fit(fact, out=500)


@pytest.mark.parametrize("limit", [400, 700, 2_000, 20_000])
def test_the_outcome_of_an_order_that_is_too_large_stays_readable(limit: int) -> None:
    order = Order(id="o", kind=OrderKind.RETRY, by="ann", because="b" * 300, at=NOW, unit="unit")
    whole = OrderOutcome(order=order, order_offset=5, result=OrderResult.DONE, text="x" * 50_000, at=NOW)
    headers = (("order-partition", b"in-3"), ("order-offset", b"5"))
    limits = SizeLimits(TOPICS, {"outcomes": limit})
    record = limits.fit(OutputRecord(7, Channel.ORDER_OUTCOMES, b"unit", headers, encode_outcome(whole)), NOW)
    read = decode_outcome(record.value)
    assert (record.partition, record.headers) == (3, headers)
    assert size_of(record.key, record.headers, record.value) <= limit
    assert (read.order_offset, read.result, read.at) == (5, OrderResult.DONE, NOW)
    assert read.order == (order if limit >= 700 else None)
    assert whole.text.startswith(read.text)


def test_a_value_that_is_too_large_is_refused_and_not_cut_for_its_key_would_have_another_value():
    limits = SizeLimits(msgspec.structs.replace(TOPICS, values="values"), {"values": 1_000})
    with pytest.raises(TransportRefused, match=r"topic values: a value takes .* bytes, but it accepts 1000. Raise"):
        limits.fit(OutputRecord(7, Channel.VALUES, b"k", (), b"x" * 1_000, 3), NOW)
    kept = limits.fit(OutputRecord(7, Channel.VALUES, b"k", (), b"x", 3), NOW)
    deleted = limits.fit(OutputRecord(8, Channel.VALUES, b"k", (), b"", 3), NOW)
    assert [(each.topic, each.value, each.partition) for each in (kept, deleted)] == [("values", b"x", 3), ("values", None, 3)]


@pytest.mark.parametrize(
    ("record", "topic", "what"),
    [
        (notification(b"x" * 1_000), "dead", "a dead letter"),
        (dead_letter(b"x"), "dead", "a dead letter"),
        (OutputRecord(7, Channel.ORDER_OUTCOMES, b"unit", (), b"x" * 200), "outcomes", "an outcome of an order"),
    ],
)
def test_a_topic_that_accepts_not_even_the_shortest_form_is_refused_with_the_remedy(
    record: OutputRecord, topic: str, what: str
) -> None:
    with pytest.raises(TransportRefused) as refused:
        fit(record, out=70, dead=70)
    assert str(refused.value) == (
        f"topic {topic}: it accepts 70 bytes, and the shortest form of {what} takes more. Raise its max.message.bytes and the "
        "producer's max.request.size"
    )
