"""The settings of delivery: of the receivers, of the ledger, and of the delivery workers. Durations are in ms."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec

from notification_service.delivery.schedules.settings import Schedule
from resequencer.keys.configuration_key import Key, NamedSections, Section
from resequencer.keys.list_types import Durations, Names, Networks, Statuses
from resequencer.keys.value_types import (
    Choice,
    Duration,
    FilePath,
    Number,
    PerSecond,
    SecretText,
    Size,
    Switch,
    Text,
    TopicName,
    Url,
    Whole,
)

_PATH = Text(r"/[^\s?#]*", "a path that begins with a slash; {unit} stands for the unit of work")
_METHOD = Choice(("PUT", "POST", "GET", "PATCH"))
_BODY = Text(r"[^\x00-\x1f]{0,200}", "a text of at most 200 characters that is part of the answer's body; empty: any body")


class Step(StrEnum):
    """A step of a delivery: one HTTP call."""

    ANNOUNCE = "announce"
    VERIFY = "verify"
    DELIVER = "deliver"


class Steps(StrEnum):
    """The steps that a receiver asks for. The first two are made once per unit, the last for each notification."""

    DELIVER = "deliver"
    ANNOUNCE_DELIVER = "announce-deliver"
    ANNOUNCE_VERIFY_DELIVER = "announce-verify-deliver"

    @property
    def first(self) -> Step:
        """The step that the first notification of a unit begins with."""
        return Step.DELIVER if self is Steps.DELIVER else Step.ANNOUNCE

    @property
    def all(self) -> tuple[Step, ...]:
        return tuple(Step(each) for each in self.value.split("-"))


class Policy(StrEnum):
    """How what could not be delivered is tried again (docs/delivery.md).

    Only `LEDGER` keeps rows in the ledger. The others read a topic as a consumer group. `BLOCKING` tries a record again in its
    place, while its key waits; `RETRY_TOPICS` moves it to a topic from which it is read later.
    """

    LEDGER = "ledger"
    BLOCKING = "blocking"
    RETRY_TOPICS = "retry-topics"
    BLOCKING_THEN_RETRY_TOPICS = "blocking-then-retry-topics"

    @property
    def has_retry_topics(self) -> bool:
        return self in (Policy.RETRY_TOPICS, Policy.BLOCKING_THEN_RETRY_TOPICS)


class OnFailed(StrEnum):
    """What happens to a unit after one of its notifications has failed: the next one follows, or the unit is held."""

    SKIP = "skip"
    HOLD = "hold"


class Announce(msgspec.Struct, frozen=True):
    """The call that announces a unit."""

    method: Annotated[str, Key(_METHOD)]
    path: Annotated[str, Key(_PATH)]


class Verify(msgspec.Struct, frozen=True):
    """The call that asks whether an announced unit is known yet: first after `delay_ms`, at most `attempts` times."""

    method: Annotated[str, Key(_METHOD)]
    path: Annotated[str, Key(_PATH)]
    delay_ms: Annotated[int, Key(Duration("0s", "1h"))]
    attempts: Annotated[int, Key(Whole(1, 10_000))]


class Deliver(msgspec.Struct, frozen=True):
    """The call that delivers one notification: its value is the body."""

    method: Annotated[str, Key(_METHOD)]
    path: Annotated[str, Key(_PATH)]


class _Condition(msgspec.Struct, frozen=True):
    """Holds for answers with one of the statuses, and `body` as part of their body. Without both it never holds."""

    status: Annotated[tuple[int, ...], Key(Statuses(), "when.status")]
    body: Annotated[str, Key(_BODY, "when.body")]

    def holds(self, status: int, text: str) -> bool:
        """Return whether an answer with this status and body meets the condition."""
        return bool(self.status or self.body) and (not self.status or status in self.status) and self.body in text


class DoneCondition(_Condition, frozen=True):
    """Answers that say that a step is done, besides 2xx and 409."""


class RejectCondition(_Condition, frozen=True):
    """Answers that say that the receiver does not want the notification: `rejected`, which is not `failed`."""


class LimitCondition(_Condition, frozen=True):
    """Answers that say that too many calls are made at once, besides 429."""


class Suspension(_Condition, frozen=True):
    """Answers that say that the receiver sleeps, besides 503 with Retry-After; and how often it is probed then."""

    probe_ms: Annotated[int, Key(Duration("10ms", "1h"))]
    max_ms: Annotated[int, Key(Duration("10ms", "1d"), "most")]


class Select(msgspec.Struct, frozen=True):
    """The notifications that a receiver gets: empty lists select all."""

    statuses: Annotated[tuple[str, ...], Key(Names("a list of ISO 20022 status codes, such as [ACSC, RJCT]; empty: all"))]
    entities: Annotated[tuple[str, ...], Key(Names("a list of processing entities, such as [BANK_001]; empty: all"))]

    def selects(self, status: str | None, entity: str | None) -> bool:
        """Return whether a notification with these headers is delivered."""
        return (not self.statuses or status in self.statuses) and (not self.entities or entity in self.entities)


class Retry(msgspec.Struct, frozen=True):
    """The back-off of a call: `first_ms`, then `factor` times as long, up to `max_ms`, each longer by up to `jitter`.

    With `intervals_ms` the waits are these instead, the last one again and again. `attempts` None: it is tried for ever.
    """

    first_ms: Annotated[int, Key(Duration("1ms", "1h"))]
    factor: Annotated[float, Key(Number(1, 100))]
    max_ms: Annotated[int, Key(Duration("1ms", "1d"), "most")]
    jitter: Annotated[float, Key(Number(0, 1))]
    attempts: Annotated[int | None, Key(Whole(1, 10_000, "for ever"))]
    intervals_ms: Annotated[tuple[int, ...], Key(Durations("1ms", "1d", "as first, factor, most and jitter say"))]

    def is_last(self, attempts: int) -> bool:
        """Return whether no attempt follows after so many failed ones."""
        return self.attempts is not None and attempts >= self.attempts

    def back_off_ms(self, attempts: int, chance: float) -> int:
        """Return the wait after so many failed attempts (1 or more); `chance` is from 0 to 1."""
        if self.intervals_ms:
            return self.intervals_ms[min(attempts, len(self.intervals_ms)) - 1]
        base = min(float(self.max_ms), self.first_ms * self.factor ** min(attempts - 1, 64))
        return round(base * (1 + self.jitter * chance))


class Login(msgspec.Struct, frozen=True):
    """How the service proves who it is: a name and a password, or a bearer token; empty: without."""

    user: Annotated[str, Key(Text(r"[^\x00-\x1f:]*", "a user name; empty: none"))]
    password: Annotated[str, Key(SecretText())]
    token: Annotated[str, Key(SecretText())]


class Tls(msgspec.Struct, frozen=True):
    """Files (PEM) of TLS."""

    authority: Annotated[Path | None, Key(FilePath("the authorities of the operating system"), "authority-file")]
    certificate: Annotated[Path | None, Key(FilePath("no client certificate"), "certificate-file")]
    key: Annotated[Path | None, Key(FilePath("the key is in the certificate's file"), "key-file")]


class Receiver(msgspec.Struct, frozen=True):
    """One receiver. `rate` is calls per second, None: as many as `concurrency` allows."""

    url: Annotated[str | None, Key(Url(("http", "https"), "none; each receiver needs one", hides_path=True))]
    policy: Annotated[Policy, Key(Choice(tuple(Policy)))]
    is_live: Annotated[bool, Key(Switch(), "live")]
    steps: Annotated[Steps, Key(Choice(tuple(Steps)))]
    timeout_ms: Annotated[int, Key(Duration("10ms", "10m"))]
    login: Annotated[Login, Section("auth")]
    tls: Annotated[Tls, Section("tls")]
    announce: Annotated[Announce, Section("announce")]
    verify: Annotated[Verify, Section("verify")]
    deliver: Annotated[Deliver, Section("deliver")]
    done: Annotated[DoneCondition, Section("done")]
    reject: Annotated[RejectCondition, Section("reject")]
    limit: Annotated[LimitCondition, Section("limit")]
    suspension: Annotated[Suspension, Section("suspension")]
    select: Annotated[Select, Section("select")]
    concurrency: Annotated[int, Key(Whole(1, 1_000))]
    rate: Annotated[float | None, Key(PerSecond("as many as concurrency allows"))]
    retry: Annotated[Retry, Section("retry")]
    on_failed: Annotated[OnFailed, Key(Choice(tuple(OnFailed)))]
    topic: Annotated[str, Key(TopicName("that of the notifications"))]
    group: Annotated[str, Key(Text(r"[A-Za-z0-9._-]{0,200}", "a consumer group; empty: <storage.namespace>-<receiver>"))]
    blocked_bytes: Annotated[int, Key(Size("64K", "1G"))]
    retry_topics_ms: Annotated[tuple[int, ...], Key(Durations("1ms", "30d", "no retry topics"), "retry-topics.intervals")]


class LedgerSettings(msgspec.Struct, frozen=True):
    """Where the ledger is; a `url` of None means SQLite in `file`."""

    url: Annotated[str | None, Key(Url(("postgresql",), "SQLite, in ledger.file"))]
    file: Annotated[Path, Key(FilePath("<run-directory>/delivery.db"))]
    retention_ms: Annotated[int, Key(Duration("1s", "3650d"))]


class WorkerSettings(msgspec.Struct, frozen=True):
    """The delivery workers; `count` of them run beside a service.

    A scheduler looks for work every `poll_ms`, less often while it finds none, up to `max_poll_ms`.
    """

    count: Annotated[int, Key(Whole(0, 64))]
    chunk: Annotated[int, Key(Whole(1, 1_000))]
    poll_ms: Annotated[int, Key(Duration("10ms", "1m"))]
    max_poll_ms: Annotated[int, Key(Duration("10ms", "10m"), "most-poll")]
    stalled_after_ms: Annotated[int, Key(Duration("1s", "1d"))]


class DeliverySettings(msgspec.Struct, frozen=True):
    """All settings of delivery. The two defaults have what a receiver or a schedule does not say itself."""

    worker: Annotated[WorkerSettings, Section("worker")]
    ledger: Annotated[LedgerSettings, Section("ledger")]
    events_topic: Annotated[str, Key(TopicName(), "events.topic")]
    forbidden_addresses: Annotated[tuple[str, ...], Key(Networks())]
    receiver_defaults: Annotated[Receiver, Section("receiver-defaults")]
    receivers: Annotated[tuple[tuple[str, Receiver], ...], NamedSections("receivers", "receiver-defaults")]
    schedule_defaults: Annotated[Schedule, Section("schedule-defaults")]
    schedules: Annotated[tuple[tuple[str, Schedule], ...], NamedSections("schedules", "schedule-defaults")]

    @property
    def of_ledger(self) -> tuple[tuple[str, Receiver], ...]:
        """The receivers whose notifications are rows of the ledger."""
        return tuple((name, each) for name, each in self.receivers if each.policy is Policy.LEDGER)

    @property
    def of_topics(self) -> tuple[tuple[str, Receiver], ...]:
        """The receivers that are delivered to straight from topics."""
        return tuple((name, each) for name, each in self.receivers if each.policy is not Policy.LEDGER)

    @property
    def worker_count(self) -> int:
        """How many delivery workers run beside a service: none without a receiver and a schedule."""
        return self.worker.count if self.receivers or self.schedules else 0
