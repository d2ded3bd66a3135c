"""Copies the output queues to files in the form of the file transport, for comparing them as files. Nothing is taken away."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import BufferedWriter
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from proton import Message
from proton.handlers import MessagingHandler

from guardian.ports import Channel, TransportRefused, TransportUnavailable
from notification_service.connectors.jms.messages import read_record
from notification_service.connectors.jms.settings import JmsSinkSettings, XmsSinkSettings
from notification_service.connectors.line_format import Line, encode_line
from notification_service.connectors.optional_clients import connect_jms
from notification_service.connectors.region_port import Repeats
from resequencer.record import Origin, Partition

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import Io, JmsConnection

_SILENCE_SECONDS = 1.0
_LONGEST_SECONDS = 3_600


class _Copy:
    """The copy of a queue. `last` is the id of the last message that was looked at. What `repeats` has had is passed over."""

    def __init__(self, queue: str, file: BufferedWriter, repeats: Repeats | None) -> None:
        self.queue = queue
        self.file = file
        self.repeats = repeats
        self.count = 0
        self.last: object = None


class QueueExport:
    """Browses the queues from their beginnings, and appends to `<channel>.jsonl` what was not there the last time.

    It needs the whole queue: a message that another program takes away before it was copied is missing in the copy. Of a queue to
    which messages are sent at least once, `repeats` knows those that came before: they are not copied again.
    """

    def __init__(self, settings: JmsSinkSettings | XmsSinkSettings, directory: Path, repeats: Repeats | None = None) -> None:
        self._settings = settings
        queues = {Channel.NOTIFICATIONS: settings.notifications, Channel.DEAD_LETTERS: settings.dead_letters}
        self._copies = [_Copy(queue, (directory / f"{channel}.jsonl").open("ab"), repeats) for channel, queue in queues.items()]
        self._connection: JmsConnection | None = None

    def catch_up(self) -> None:
        """Copy the messages that are there now.

        Raises:
            TransportUnavailable: The broker does not answer.
            TransportRefused: A queue cannot be browsed, or messages that were copied are gone.
        """
        if self._connection is None or self._connection.is_lost:
            self._connection = connect_jms(self._settings)
        for copy in self._copies:
            self._connection.call(partial(_browse, copy), _LONGEST_SECONDS)
            copy.file.flush()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        for copy in self._copies:
            copy.file.close()


def _browse(copy: _Copy, io: "Io") -> None:
    """Copy, in the thread of the connection, what comes behind the messages that were copied before."""

    browser = Browser(partial(_take, copy))
    link = io.open_browser(copy.queue, browser)
    browser.attach(link)
    _read_to_the_end(io, browser, copy.queue)
    link.close()
    if browser.count < copy.count or browser.problem is not None:
        problem = browser.problem or f"it has {browser.count} messages, and {copy.count} were read before"
        raise TransportRefused(f"queue {copy.queue}", f"{problem}: another program takes messages away. Stop it, and begin again")


def _read_to_the_end(io: "Io", browser: "Browser", queue: str) -> None:
    """No broker tells the end of a queue, and Artemis gives credit back before it has sent all (AMQP 1.0, section 2.6.7).

    So the end is a silence that is longer than the broker takes to answer: afterwards a new link is opened within less, and
    nothing has come by the old one.

    Raises:
        TransportUnavailable: The broker does not answer.
    """
    silence = _SILENCE_SECONDS
    while browser.problem is None:
        count = browser.count
        with suppress(TransportUnavailable):
            io.wait(partial(browser.has_come_further_than, count), queue, silence)
            continue
        asked_at = monotonic()
        io.open_browser(queue, Browser(lambda *_: None)).close()
        took = monotonic() - asked_at
        if browser.count == count and took < silence:
            return
        silence = max(silence, 2 * took)


def _take(copy: _Copy, at: int, message: Any) -> str | None:
    """Copy the message at this place of the queue, from 1; return why the queue cannot be compared."""
    if at < copy.count:
        return None
    if at == copy.count:
        return None if message.id == copy.last else "its first messages are others than before"
    record = read_record(Origin(Partition(copy.queue, 0), at), message, b"", 1 << 30, needs_id=False)
    line = Line(record.value, record.key, record.headers)
    if copy.repeats is None or copy.repeats.take(line):
        copy.file.write(encode_line(line))
    copy.count, copy.last = at, message.id
    return None


_CREDIT = 1_000


class Browser(MessagingHandler):  # type: ignore[misc]
    """Gives each message to `take` with its place in the queue, from 1, in the thread of the connection.

    `problem` is what `take` has returned; then what follows is passed over.
    """

    def __init__(self, take: Callable[[int, Any], str | None]) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self._take = take
        self._link: Any = None
        self.count = 0
        self.problem: str | None = None

    def has_come_further_than(self, count: int) -> bool:
        return self.problem is not None or self.count > count

    def attach(self, link: Any) -> None:
        self._link = link
        link.flow(_CREDIT)

    def on_link_error(self, event: Any) -> None:
        """Close the link alone: by default the client closes the connection."""
        event.link.close()

    def on_link_closing(self, event: Any) -> None:
        event.link.close()

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if not delivery.readable or delivery.partial:
            return
        raw = delivery.link.recv(delivery.pending)
        delivery.link.advance()
        delivery.settle()
        self.count += 1
        if self.problem is None:
            message = Message()
            message.decode(raw)
            self.problem = self._take(self.count, message)
        if self.count % (_CREDIT // 2) == 0:
            self._link.flow(_CREDIT // 2)
        event.container.yield_()
