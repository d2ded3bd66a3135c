"""Topics that are there already: what would lose the service's records is changed, and what an operator chose stays."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import pytest
from harness.waiting import pause_until
from kafka.admin import ConfigResource, ConfigResourceType

from notification_service.connectors.kafka.core.client_options import KEPT_FOR_EVER
from notification_service.connectors.kafka.topics import make_topics
from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow
DAY = 86_400_000
READ = {**KEPT_FOR_EVER, "retention.ms": str(7 * DAY), "message.timestamp.type": "LogAppendTime"}
LOOKED_AT = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")


def made_of(
    stage: KafkaStage, found: Mapping[str, str], wanted: Mapping[str, str], expected: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Let the service find a topic like this; return what it has of `LOOKED_AT` then. A broker shows changes a moment later."""
    name = f"{stage.topics.input}-made"
    stage.kafka.create_topics(name, partitions=2, config=dict(found))
    make_topics(stage.settings(), stage.topics.input, {name: wanted})
    with closing(stage.kafka.admin()) as admin:

        def look() -> tuple[str, ...]:
            now = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all")["topic"][name]
            return tuple(now[each]["value"] for each in LOOKED_AT)

        if expected:
            pause_until(lambda: look() == expected, seconds=10)
        return look()


@pytest.mark.parametrize(
    "found",
    [
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact,delete", "retention.ms": str(DAY)},
        {"retention.bytes": "1000", "retention.ms": str(7 * DAY)},
        {"message.timestamp.type": "CreateTime", "retention.ms": str(7 * DAY)},
    ],
    ids=["only-compacted", "compacted-and-deleted", "bound-of-bytes", "time-of-the-client"],
)
def test_a_topic_from_which_the_service_delivers_is_changed_so_that_it_loses_nothing(
    stage: KafkaStage, found: Mapping[str, str]
) -> None:
    expected = ("delete", str(7 * DAY), "-1", "LogAppendTime")
    assert made_of(stage, found, READ, expected) == expected


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        ({"cleanup.policy": "compact", "retention.ms": str(DAY), "retention.bytes": "1000"}, ("-1", "-1")),
        ({"cleanup.policy": "compact,delete", "retention.ms": str(DAY), "retention.bytes": "1000"}, (str(DAY), "1000")),
        ({"retention.ms": str(DAY), "retention.bytes": "1000"}, (str(DAY), "1000")),
    ],
    ids=["only-compacted", "compacted-and-deleted", "deleted"],
)
def test_dead_letters_are_no_more_compacted_and_how_long_they_are_kept_stays_with_the_operator(
    stage: KafkaStage, found: Mapping[str, str], kept: tuple[str, str]
) -> None:
    assert made_of(stage, found, KEPT_FOR_EVER) == ("delete", *kept, "CreateTime")


@pytest.mark.parametrize("wanted", [{"cleanup.policy": "delete"}, {"cleanup.policy": "compact", "retention.ms": "-1"}])
def test_the_policy_of_a_topic_that_is_for_others_or_compacted_on_purpose_stays(
    stage: KafkaStage, wanted: Mapping[str, str]
) -> None:
    found = {"cleanup.policy": "compact", "retention.ms": str(DAY)}
    assert made_of(stage, found, wanted)[:2] == ("compact", str(DAY))
