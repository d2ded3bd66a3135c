"""What follows from a requeued dead letter is marked if the dead letter was: it may have been published before."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from harness.service_under_test import TOPIC, Service, envelope_line

from notification_service.connectors.dead_letters.decisions import requeue_named, requeue_new
from notification_service.connectors.dead_letters.port import Signature
from notification_service.connectors.files.settings import FileSettings
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore
from resequencer.errors import PermanentError


@pytest.fixture
def service(new_service: Callable[..., Service]) -> Service:
    return new_service(has_facts=True)


Requeue = Callable[[FileDeadLetterStore], Iterator[object]]


def requeue(service: Service, what: Requeue) -> None:
    directory = service.directory
    store = FileDeadLetterStore(FileSettings(TOPIC, directory / "in", directory / "out"), lambda: Signature("anna", "now"))
    with closing(store):
        assert len(list(what(store))) > 0
    service.run()


def read_again(service: Service) -> None:
    """Lose the storage, and heal."""
    service.run()
    service.kill()
    service.forget_database()
    service.start()
    service.run()


def test_a_dead_letter_and_its_repetition_are_requeued_and_what_follows_from_the_second_is_marked(
    service: Service,
) -> None:
    service.put(b"no record")
    read_again(service)
    requeue(service, requeue_new)
    assert [each.is_possible_duplicate for each in service.dead] == [False, True, False, True]
    requeue(service, requeue_new)
    assert [each.is_possible_duplicate for each in service.dead] == [False, True, False, True, False, True]


@pytest.mark.parametrize("number", [1, 2])
def test_its_notification_and_its_fact_have_the_mark_too(service: Service, number: int) -> None:
    service.handler.raises["uow-1#A#2"] = PermanentError("not now")
    service.put(envelope_line("uow-1", 1), envelope_line("uow-1", 2))
    read_again(service)
    del service.handler.raises["uow-1#A#2"]
    requeue(service, lambda store: requeue_named(store, [[each.number for each in store.letters()][number - 1]]))
    for each in (service.notifications, service.told_as_facts):
        assert [(one.sequence, one.is_possible_duplicate) for one in each] == [(1, False), (1, True), (2, number == 2)]
