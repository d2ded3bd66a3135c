"""The commits of a stage: a refusal ends with what was refused."""

from notification_service.delivery.direct.consumer import Commits
from notification_service.delivery.direct.owned import Owned
from resequencer.record import Partition
from tests.notification_service.delivery.direct.core.test_partition import opened, partition

P = Partition("T", 0)


def taken_over() -> Owned:
    """Return a partition of which nothing was read."""
    return Owned(partition(), None, None, None)  # type: ignore[arg-type] # Nothing is read or ordered here.


def test_a_refusal_lasts_until_a_commit_is_made() -> None:
    owned = taken_over()
    owned.state.read([opened(0, "a")], 1)
    commits = Commits({P: owned}, int)
    assert len(commits.next()) == 1
    commits.is_refused = True
    commits.forget()
    owned.state.has_news = True
    assert (len(commits.next()), commits.is_refused) == (1, True)
    commits.published()
    assert (commits.is_refused, owned.position is None) == (False, False)


def test_a_refusal_ends_when_the_partition_is_taken_over_anew_and_nothing_is_left_of_what_was_refused() -> None:
    held = {P: taken_over()}
    held[P].state.read([opened(0, "a")], 1)
    commits = Commits(held, int)
    assert len(commits.next()) == 1
    commits.is_refused = True
    commits.forget()
    held.clear()
    assert (commits.next(), commits.is_refused) == ([], True), "the clients are made anew, and what was refused may come back"
    held[P] = taken_over()
    assert (commits.next(), commits.is_refused, commits.find_wait_ms()) == ([], False, 0)
