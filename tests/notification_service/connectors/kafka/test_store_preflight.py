"""What a store on topics will need is checked before it starts: topics, and that values are kept as they must be."""

import pytest
from msgspec.structs import replace

from notification_service.connectors.kafka.preflight import preflight, preflight_store
from notification_service.connectors.kafka.settings import KafkaSettings
from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow

COMPACT = {"cleanup.policy": "compact"}


def settings_of(stage: KafkaStage) -> KafkaSettings:
    settings = stage.settings()
    return replace(settings, topics=replace(settings.topics, values=f"{settings.topics.input}-values"))


def make_values(stage: KafkaStage, partitions: int = 2, **configuration: str) -> None:
    with stage.kafka.admin() as admin:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": configuration}
        admin.create_topics({settings_of(stage).topics.values: wanted}, wait_for_metadata=True)


def refusals(stage: KafkaStage, settings: KafkaSettings) -> list[str]:
    with pytest.raises(ExceptionGroup) as raised:
        preflight_store(settings, [settings.topics.values])
    return [str(each) for each in raised.value.exceptions]


def test_values_that_are_not_there_yet_are_made_by_the_worker(stage: KafkaStage) -> None:
    settings = settings_of(stage)
    assert preflight_store(settings, [settings.topics.values]) == []
    assert any(
        "does not exist" in each for each in refusals(stage, replace(settings, topics=replace(settings.topics, input="gone")))
    )


def test_compacted_values_with_as_many_partitions_are_right(stage: KafkaStage) -> None:
    make_values(stage, **COMPACT)
    settings = settings_of(stage)
    assert preflight_store(settings, [settings.topics.values]) == []


def test_values_that_are_not_compacted_are_refused(stage: KafkaStage) -> None:
    make_values(stage)
    (refusal,) = refusals(stage, settings_of(stage))
    assert "its cleanup.policy is delete" in refusal
    assert "Set cleanup.policy = compact" in refusal


def test_values_with_more_partitions_than_the_commands_are_refused_and_with_fewer_noted(stage: KafkaStage) -> None:
    make_values(stage, 3, **COMPACT)
    (refusal,) = refusals(stage, settings_of(stage))
    assert "it has 3 partitions, but the topic of its commands" in refusal


def test_values_with_fewer_partitions_than_the_commands_are_noted(stage: KafkaStage) -> None:
    make_values(stage, 1, **COMPACT)
    settings = settings_of(stage)
    (note,) = preflight_store(settings, [settings.topics.values])
    assert "has 1 partitions" in note


@pytest.mark.parametrize("which", ["notifications", "dead_letters"])
def test_an_output_that_does_not_exist_is_refused_unless_the_worker_makes_it(stage: KafkaStage, which: str) -> None:
    settings = settings_of(stage)
    mistyped = replace(settings, topics=replace(settings.topics, **{which: "mistyped"}))
    assert any("topic mistyped: this output topic does not exist" in each for each in refusals(stage, mistyped))
    assert preflight_store(mistyped, [mistyped.topics.values, "mistyped"]) == []


def test_more_workers_than_the_input_has_partitions_are_noted(stage: KafkaStage) -> None:
    topic = stage.settings().topics.input
    assert not preflight(stage.settings(), 2)
    (note,) = preflight(stage.settings(), 3)
    assert note.startswith(f"topic {topic} has 2 partitions, and worker.count is 3: 1 worker is on standby. ")
