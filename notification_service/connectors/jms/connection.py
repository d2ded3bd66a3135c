"""A connection to a broker, with a thread that does all of its I/O.

The client may be used by one thread only, and sends heartbeats only while it runs. So it runs in a thread of its own, and the
worker gives it jobs: the broker is answered while the worker computes. Objects of the client never leave the thread.
"""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Any, Generic, TypeVar
from uuid import uuid4

from proton import Endpoint, SSLDomain, Timeout, symbol
from proton import Event as ProtonEvent
from proton.reactor import Copy, ReceiverOption, Selector, SenderOption
from proton.utils import BlockingConnection

from guardian.ports import NotPublished, TransportRefused, TransportUnavailable, TransportWithheld
from notification_service.connectors.jms.receiving_link import SESSION_BYTES, ReceivingLink
from notification_service.connectors.jms.settings import BrokerSettings
from notification_service.connectors.jms.transaction import Transaction
from resequencer.errors import ResequencerError
from resequencer.printable import without_secrets


class FromQueue(ReceiverOption):
    """The capability `queue` of a source."""

    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_object(symbol("queue"))


class ToQueue(SenderOption):
    """The capability `queue` of a target: without it a broker may take the address for a topic."""

    def apply(self, sender: Any) -> None:
        sender.target.capabilities.put_object(symbol("queue"))


LOGIN = "Check user and password in the section of this broker"
_REMEDIES = {
    "amqp:not-found": (TransportWithheld, "Create the queue"),
    "amqp:unauthorized-access": (TransportWithheld, "Give the user the rights to consume from it and to send to it"),
    "amqp:invalid-field": (TransportRefused, "Correct the selector: it has the syntax of JMS"),
    "amqp:not-allowed": (TransportRefused, "Let the broker allow it"),
    "amqp:not-implemented": (TransportRefused, "The broker must know AMQP 1.0 with selectors and transactions"),
}
_LOGIN_REFUSED = ("Authentication failed", "amqp:unauthorized-access")

TOO_LARGE = "amqp:link:message-size-exceeded"
"""The condition of a message that is larger than the broker takes."""


def to_transport_error(what: str, condition: Any) -> TransportRefused | TransportUnavailable:
    """Translate the condition with which a broker refused or closed a link, or refused a message; None if it gave none."""
    if condition is None:
        return TransportUnavailable(f"{what}: the broker closed it without a reason")
    name, reason = str(condition.name), _text(f"{condition.name} {condition.description or ''}")
    if name in _REMEDIES:
        kind, remedy = _REMEDIES[name]
        return kind(what, f"{reason}. {remedy}")
    return TransportUnavailable(f"{what}: {reason}")


def lost(url: str, error: BaseException) -> TransportUnavailable | TransportWithheld:
    """Translate what the client raised. Whatever it is, the connection is lost."""
    reason = without_secrets(_text(str(error))) or type(error).__name__
    if any(each in reason for each in _LOGIN_REFUSED):
        return TransportWithheld(url, f"the broker refuses the login ({reason}). {LOGIN}")
    return TransportUnavailable(f"{url}: {reason}")


def _text(text: str) -> str:
    return " ".join(text.split())[:500]


T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
_FAREWELL_SECONDS = 1
_GRACE_SECONDS = 1
"""How much longer than its own time limit a job may take before the thread counts as stuck."""


class _Waker:
    """Ends the wait of the thread for its socket; a file of the client's loop."""

    def __init__(self) -> None:
        self._transport = None  # The client asks each of its files for one.
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._lock = Lock()  # A number of a file that is closed soon belongs to another one.

    def wake(self) -> None:
        with self._lock, suppress(BlockingIOError):  # It is full, so the thread will wake.
            if self._writing >= 0:
                os.write(self._writing, b"!")

    def fileno(self) -> int:
        return self._reading

    def on_selectable_init(self, event: ProtonEvent) -> None:
        event.context.reading = True
        event.context.update()

    def on_selectable_readable(self, _: ProtonEvent) -> None:
        with suppress(BlockingIOError):
            os.read(self._reading, 4_096)

    def close(self) -> None:
        with self._lock:
            reading, self._reading = self._reading, -1
            writing, self._writing = self._writing, -1
        if reading >= 0:
            os.close(reading)
            os.close(writing)


class Io:
    """What a job works with, in the thread. `call_seconds` is the time limit of one answer."""

    def __init__(self, settings: BrokerSettings, waker: _Waker) -> None:
        self.call_seconds = settings.call_timeout_ms / 1000
        self._forgetful: list[Callable[[], None]] = []
        login = {name: value for name, value in (("user", settings.user), ("password", settings.password)) if value}
        domain = SSLDomain(SSLDomain.MODE_CLIENT) if settings.url.startswith("amqps:") else None
        self._blocking = BlockingConnection(
            settings.url, timeout=self.call_seconds, heartbeat=settings.heartbeat_ms / 1000, ssl_domain=domain, **login
        )
        self.container, self.connection = self._blocking.container, self._blocking.conn
        self._selectable: Any = self.container.selectable(handler=waker)

    def wait(self, condition: Callable[[], object], what: str, seconds: float | None = None) -> None:
        """Run the client until the condition holds.

        Raises:
            TransportUnavailable: It does not hold within `seconds`, by default `call_seconds`.
        """
        try:
            self._blocking.wait(condition, timeout=seconds or self.call_seconds)
        except Timeout as error:
            raise TransportUnavailable(f"{what}: the broker does not answer") from error

    def pause(self, seconds: float) -> None:
        """Run the client for so long."""
        with suppress(Timeout):
            self._blocking.wait(lambda: False, timeout=seconds)

    def wait_for_job(self, condition: Callable[[], object]) -> None:
        self._blocking.wait(condition, timeout=None)

    def open_sender(self, queue: str, handler: Any, *, is_queue: bool = False) -> Any:
        """Return a link to a queue, which is open. With `is_queue` it carries the capability `queue`.

        Raises:
            TransportWithheld, TransportRefused: The broker refuses it.
        """
        options = ToQueue() if is_queue else None
        name = f"{queue}-{uuid4().hex}"
        link = self.container.create_sender(self.connection, queue, name=name, handler=handler, options=options)
        self._opened(link, f"queue {queue}", lambda: link.remote_target.address)
        return link

    def open_receiver(
        self, queue: str, selector: str, handler: Any, *, is_queue: bool = False, session_bytes: int | None = None
    ) -> Any:
        """Return a link from a queue, which is open and has no credit. Raises: as `open_sender`.

        With `is_queue` it carries the capability `queue`. With `session_bytes` it has a session of its own, in which the broker
        sends no more than that before it is read: one that is not read must not keep the broker from sending by the others.
        """
        options: list[Any] = [*([Selector(selector)] if selector else []), *([FromQueue()] if is_queue else [])]
        name, session = f"{queue}-{uuid4().hex}", self.connection
        if session_bytes is not None:
            session = self.connection.session()
            session.incoming_capacity = session_bytes
            session.open()
        try:
            link = self.container.create_receiver(session, queue, name=name, handler=handler, options=options)
            self._opened(link, f"queue {queue}" + (f" where {selector}" if selector else ""), lambda: link.remote_source.address)
        except BaseException:
            if session_bytes is not None:
                session.close()
            raise
        return link

    def open_browser(self, queue: str, handler: Any) -> Any:
        """Return a link that looks at a queue and takes nothing, which is open and has no credit. Raises: as `open_sender`."""
        name = f"{queue}-{uuid4().hex}"
        link = self.container.create_receiver(self.connection, queue, name=name, handler=handler, options=Copy())
        self._opened(link, f"queue {queue}", lambda: link.remote_source.address)
        return link

    def transaction(self) -> Transaction:
        """Return a new transaction, which the broker knows."""
        made = Transaction(self.container, self.connection)
        self.wait(lambda: made.is_declared, "a transaction")
        return made

    def on_end(self, forget: Callable[[], None]) -> None:
        """Call `forget` in the thread when the connection ends: it lets go of the client's objects."""
        self._forgetful.append(forget)

    def not_on_end(self, forget: Callable[[], None]) -> None:
        """Take back `on_end`: it has let go already."""
        if forget in self._forgetful:
            self._forgetful.remove(forget)

    def _opened(self, link: Any, what: str, address: Callable[[], str | None]) -> None:
        self.wait(lambda: not link.state & Endpoint.REMOTE_UNINIT, what)
        if not link.state & Endpoint.REMOTE_CLOSED and address() is None:
            # A refusal is an open link without an address, which is closed with the reason at once.
            self.wait(lambda: link.state & Endpoint.REMOTE_CLOSED, what)
        if link.state & Endpoint.REMOTE_CLOSED:
            condition = link.remote_condition
            link.close()
            raise to_transport_error(what, condition)

    def end(self, *, politely: bool) -> None:
        """Close the connection. What the client raises here has no effect any more."""
        with suppress(Exception):
            self._selectable.terminate()
            self._selectable.update()
        for forget in self._forgetful:
            forget()
        self._blocking.timeout = _FAREWELL_SECONDS if politely else 0.001
        with suppress(Exception):
            self._blocking.close()


class _Job(Generic[T]):
    def __init__(self, work: Callable[[Io], T]) -> None:
        self.work = work
        self.answer: Future[T] = Future()


class JmsConnection:
    """An open connection. Once it is lost, it stays lost, and its errors concern nobody else: another one has to be made.

    `arrived` is set when a message has come or the connection was lost.

    Raises of the constructor: as `connect` in notification_service/connectors/jms/settings.py.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._jobs: deque[_Job[Any]] = deque()
        self._is_closing = False
        self._problem: ResequencerError | None = None
        self._waker = _Waker()
        self.arrived = Event()
        opened: Future[None] = Future()
        self._thread = Thread(target=self._run, args=(opened,), name=f"jms {settings.place}", daemon=True)
        self._thread.start()
        try:
            opened.result(settings.call_timeout_ms / 1000 + _GRACE_SECONDS)
        except NoAnswer:
            self._is_closing = True
            raise TransportUnavailable(f"{settings.place}: the broker does not answer") from None

    @property
    def is_lost(self) -> bool:
        return self._problem is not None

    def call(self, work: Callable[[Io], T], seconds: float | None = None) -> T:
        """Let the thread do the work, and return its answer. `seconds` is the time that it may take, by default one answer's.

        What the work raises as refused leaves the connection as it is. Any other error ends it.

        Raises:
            TransportUnavailable: The connection is lost, or the work took too long; then the connection is given up.
        """
        if self._problem is not None:
            raise TransportUnavailable(str(self._problem))
        job = _Job(work)
        self._jobs.append(job)
        self._waker.wake()
        if self.is_lost:  # The thread may have ended before it saw the job.
            job.answer.cancel()
        limit = (seconds or self._settings.call_timeout_ms / 1000) + _GRACE_SECONDS
        try:
            return job.answer.result(limit)
        except NoAnswer:
            self._problem = TransportUnavailable(f"{self._settings.place}: the broker does not answer")
            self.close()
            raise self._problem from None
        except BaseException:
            if job.answer.cancelled():
                raise TransportUnavailable(str(self._problem)) from None
            raise

    def post(self, work: Callable[[], None]) -> None:
        """Let the thread do the work soon; nothing is done if the connection is lost. An error ends the connection."""
        self._jobs.append(_Job(lambda _: work()))
        self._waker.wake()

    def receive(self, queue: str, selector: str, window: int, max_value_bytes: int, *, is_queue: bool = False) -> ReceivingLink:
        """Return a new link from a queue, with credit for `window` messages. Raises: as `call`, and as `Io.open_sender`.

        Of a message with a larger value than `max_value_bytes` only the beginning is kept. With `is_queue` the link carries the
        capability `queue`: some brokers open a topic without it.
        """
        made = ReceivingLink(window, max_value_bytes, self.arrived, self.post)

        def attach(io: Io) -> None:
            io.on_end(made.forget)
            made.attach(io.open_receiver(queue, selector, made, is_queue=is_queue, session_bytes=SESSION_BYTES))

        self.call(attach)
        return made

    def close(self) -> None:
        """Close the connection; a thread that is stuck ends with the process."""
        self._is_closing = True
        self._waker.wake()
        self._thread.join(_FAREWELL_SECONDS + _GRACE_SECONDS)

    def _run(self, opened: "Future[None]") -> None:
        io: Io | None = None
        try:
            io = Io(self._settings, self._waker)
            opened.set_result(None)
            while not self._is_closing:
                io.wait_for_job(lambda: self._jobs or self._is_closing)
                if self._jobs:
                    self._do(self._jobs.popleft(), io)
            self._problem = TransportUnavailable(f"{self._settings.place}: the connection is closed")
        except Exception as error:  # noqa: BLE001 - Whatever the client raises, the connection is lost.
            self._problem = _bare(error if isinstance(error, ResequencerError) else lost(self._settings.place, error))
            if not opened.done():
                opened.set_exception(self._problem)
        finally:
            self._refuse_jobs()
            self.arrived.set()
            if io is not None:
                io.end(politely=self._is_closing)
            self._waker.close()

    def _do(self, job: _Job[Any], io: Io) -> None:
        if not job.answer.set_running_or_notify_cancel():
            return
        try:
            answer = job.work(io)
        except TransportUnavailable as error:
            job.answer.set_exception(_bare(error))
            if not isinstance(error, NotPublished):
                raise
        except ResequencerError as error:
            job.answer.set_exception(_bare(error))
        except BaseException as error:
            job.answer.set_exception(_bare(lost(self._settings.place, error)))
            raise
        else:
            job.answer.set_result(answer)

    def _refuse_jobs(self) -> None:
        self._problem = self._problem or TransportUnavailable(f"{self._settings.place}: the connection is closed")
        while self._jobs:
            self._jobs.popleft().answer.cancel()


def _bare(error: E) -> E:
    """Return the error without its frames: they hold objects of the client, which must not leave the thread."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error
