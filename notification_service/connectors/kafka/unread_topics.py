"""Topics of which a group has not read everything, though it may read them no more."""

from collections.abc import Callable, Mapping
from contextlib import closing

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec

from notification_service.connectors.kafka.errors import translated
from notification_service.connectors.kafka.made_topics import open_admin
from notification_service.connectors.kafka.settings import KafkaSettings


def find_unread(settings: KafkaSettings, group_of: Callable[[str], str | None]) -> Mapping[str, str]:
    """Return each topic that holds records beyond the positions of its group, with the group.

    `group_of` returns the group that reads a topic, None if the topic is not asked for.

    Raises:
        TransportUnavailable, TransportRefused: It cannot be found out.
    """
    with closing(open_admin(settings)) as admin, translated("the topics"):
        asked = {name: group for name in admin.list_topics() if (group := group_of(name)) is not None}
        return {name: group for name, group in asked.items() if _is_unread(admin, name, group)}


def _is_unread(admin: KafkaAdminClient, topic: str, group: str) -> bool:
    (described,) = admin.describe_topics([topic])
    names = [TopicPartition(topic, each["partition_index"]) for each in described["partitions"]]
    starts = admin.list_partition_offsets(dict.fromkeys(names, OffsetSpec.EARLIEST))
    ends = admin.list_partition_offsets(dict.fromkeys(names, OffsetSpec.LATEST))
    committed = admin.list_group_offsets({group: names}).get(group, {})
    positions = {name: max(starts[name].offset, committed[name].offset if name in committed else 0) for name in names}
    return any(positions[name] < ends[name].offset for name in names)
