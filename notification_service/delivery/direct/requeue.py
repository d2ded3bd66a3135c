"""How dead letters of a receiver that is delivered to straight from a topic are requeued."""

from guardian.headers import DELIVERY_ID, Way, moved_headers, texts_of
from notification_service.connectors.dead_letters.actions import StoredDeadLetter
from notification_service.connectors.kafka.requeue import RequeueRoute
from notification_service.delivery.direct.core.decision import requeue_topic_of
from resequencer.clock import Clock
from resequencer.record import Headers


def requeue_route(topic: str, group: str, clock: Clock) -> RequeueRoute:
    """Return the route of the dead letters of a group that reads `topic`: to a topic that only this group reads.

    A record keeps its idempotency key and its place in the source. Its attempts are counted again from 0.
    """

    def headers_of(letter: StoredDeadLetter) -> Headers:
        headers, record = letter.headers_to_requeue, letter.letter.record
        key = texts_of(headers)[DELIVERY_ID]
        return moved_headers(headers, Way(record.origin), key, 0, letter.letter.error, clock.now())

    return RequeueRoute(topic, requeue_topic_of(topic, group), headers_of, _why_not)


def _why_not(letter: StoredDeadLetter) -> str | None:
    if DELIVERY_ID in texts_of(letter.letter.record.headers):
        return None
    return f"it has no header {DELIVERY_ID}, so another program wrote it: find out which"
