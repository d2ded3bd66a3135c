import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from harness.calling import users_calls
from harness.waiting import async_yield

from notification_service.payments.enrichment import Enrichment, SettingsAlone
from notification_service.payments.notification_settings import NotificationSettings
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.settings import HandlerSettings, make_handler
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import ConfigurationError, OwnershipLost, PermanentError, ResequencerError, TooLarge, TransientError
from resequencer.handler import Handled, Marks, find_call

FLOW = "PaymentInitiationFlow"
CUSTOM = (("BusinessData", b'{"a": 1.50}'), ("Other", b'"x"'))
PDS = (("pdsBusinessData", b'{"value": "PAYMENT"}'), ("unnamed", b"1"))


class Unavailable(TransientError):
    """An error of the user's callable."""


class Rejected(PermanentError):
    """An error as a user may write it, with attributes that the service's own errors have, too."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason  # type: ignore[misc, assignment]

    def __str__(self) -> str:
        return f"rejected: {self.reason}"


class Panic(BaseException):
    """A panic of a Rust extension (pyo3's PanicException) is no Exception either."""


class Wordless(Exception):
    """An error that raises when its text is read."""

    def __str__(self) -> str:
        raise ValueError("no words")


class Text(bytes):
    """A subclass of bytes, such as numpy's `bytes_`."""


def raising(error: BaseException) -> Callable[[Any], Any]:
    def fail(mapping: Any) -> Any:
        raise error

    return fail


def shouting(mapping: dict[str, Any]) -> bytes:
    status = mapping["report"]["CstmrPmtStsRpt"]["OrgnlPmtInfAndSts"][0]["TxInfAndSts"][0]["TxSts"]
    mapping["report"].clear()
    mapping["customData"]["BusinessData"]["a"] = "changed"
    return f"{status}!".encode()


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    module = ModuleType("users_targets")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module  # type: ignore[return-value]


@pytest.fixture
def data(data_of: Callable[..., PaymentData]) -> PaymentData:
    return data_of({"GrpHdr": {"MsgId": "M"}}, {"PmtInfId": "P"}, None, custom=CUSTOM, pds=PDS)


@pytest.fixture
def value_of(handle: Callable[..., Handled], envelope: Callable[..., Any], data: PaymentData) -> Callable[..., bytes]:
    def value_of(target_type: str, payment: PaymentData = data) -> bytes:
        configured = HandlerSettings(
            target_type, custom_data_keys=("BusinessData", "Missing"), pds_data_keys=("pdsBusinessData",)
        )
        (notification,) = handle(envelope(("PaymentAccepted", FLOW, None)), payment, configured=configured).notifications
        return notification.value

    return value_of


def test_a_report_is_iso_tag_json(value_of: Callable[..., bytes]) -> None:
    report = json.loads(value_of("report"))
    assert report["CstmrPmtStsRpt"]["OrgnlGrpInfAndSts"]["OrgnlMsgId"] == "M"


def test_report_xml_is_the_same_report_as_a_document_in_utf_8(value_of: Callable[..., bytes]) -> None:
    text = value_of("report-xml").decode()
    assert text.startswith(
        '<?xml version="1.0" encoding="UTF-8"?>\n<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.002.001.10">'
    )
    assert "<OrgnlMsgId>M</OrgnlMsgId>" in text


def test_a_produced_report_holds_the_report_the_parts_and_the_data_that_is_configured(value_of: Callable[..., bytes]) -> None:
    value = value_of("produced-report")
    produced = json.loads(value)
    assert list(produced) == ["report", "pain001", "customData", "pdsData"]
    assert produced["report"] == json.loads(value_of("report"))
    assert produced["pain001"] == {"PAIN_001": {"GrpHdr": {"MsgId": "M"}}, "PAIN_001_PAYMENT_INSTRUCTION": {"PmtInfId": "P"}}
    assert produced["customData"] == {"BusinessData": {"a": 1.5}}
    assert produced["pdsData"] == {"pdsBusinessData": {"value": "PAYMENT"}}
    assert b'"a": 1.50' in value, "bodies are carried as they came"


def test_a_produced_report_is_never_anything_but_utf_8(value_of: Callable[..., bytes]) -> None:
    with pytest.raises(PermanentError, match="the data BusinessData is not UTF-8"):
        value_of("produced-report", PaymentData(custom=(("BusinessData", b'"\xff"'),)))


def test_a_callable_gets_the_produced_report_as_plain_objects_that_it_may_change(
    value_of: Callable[..., bytes], user_module: ModuleType
) -> None:
    user_module.shouting = shouting  # type: ignore[attr-defined]
    assert value_of("users_targets:shouting") == value_of("users_targets:shouting") == b"ACCP!"


def test_a_callable_may_be_an_attribute_of_an_attribute(value_of: Callable[..., bytes], user_module: ModuleType) -> None:
    user_module.holder = ModuleType("holder")  # type: ignore[attr-defined]
    user_module.holder.render = lambda mapping: b"held"
    assert value_of("users_targets:holder.render") == b"held"


def test_the_transient_error_of_a_callable_passes_as_it_is(value_of: Callable[..., bytes], user_module: ModuleType) -> None:
    user_module.fail = raising(Unavailable("asleep"))  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match="asleep"):
        value_of("users_targets:fail")


def test_the_permanent_error_of_a_callable_passes_as_it_is(value_of: Callable[..., bytes], user_module: ModuleType) -> None:
    error = PermanentError("never")
    user_module.fail = raising(error)  # type: ignore[attr-defined]
    with pytest.raises(PermanentError) as raised:
        value_of("users_targets:fail")
    assert raised.value is error


def test_a_permanent_error_of_the_users_own_says_no_reason_but_its_text(
    value_of: Callable[..., bytes], user_module: ModuleType
) -> None:
    """Only the service sets the reasons of dead letters."""
    user_module.fail = raising(Rejected("no such customer"))  # type: ignore[attr-defined]
    with pytest.raises(PermanentError, match="rejected: no such customer") as raised:
        value_of("users_targets:fail")
    assert raised.value.reason is DeadLetterReason.HANDLER_FAILED


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("by zero"),
        RecursionError("deep"),
        OwnershipLost("no"),
        MemoryError("full"),
        SystemExit(3),
        asyncio.CancelledError("given up"),
        GeneratorExit("closed"),
        Panic("called `Option::unwrap()` on a `None` value"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_other_error_of_a_callable_is_permanent_and_names_both(
    error: BaseException, value_of: Callable[..., bytes], user_module: ModuleType
) -> None:
    user_module.fail = raising(error)  # type: ignore[attr-defined]
    with pytest.raises(PermanentError) as raised:
        value_of("users_targets:fail")
    assert str(raised.value) == f"users_targets:fail raised {type(error).__name__}: {error}"


def test_of_an_error_of_a_callable_only_the_beginning_is_told(value_of: Callable[..., bytes], user_module: ModuleType) -> None:
    user_module.fail = raising(ValueError("x" * 10_000_000))  # type: ignore[attr-defined]
    with pytest.raises(PermanentError) as raised:
        value_of("users_targets:fail")
    assert len(str(raised.value)) < 2_000


def test_an_error_of_a_callable_whose_text_cannot_be_had_is_permanent(
    value_of: Callable[..., bytes], user_module: ModuleType
) -> None:
    user_module.fail = raising(Wordless())  # type: ignore[attr-defined]
    with pytest.raises(PermanentError, match="users_targets:fail raised Wordless"):
        value_of("users_targets:fail")


def test_an_interrupt_is_no_error_of_a_callable(value_of: Callable[..., bytes], user_module: ModuleType) -> None:
    user_module.fail = raising(KeyboardInterrupt())  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        value_of("users_targets:fail")


def test_what_a_callable_returns_is_plain_bytes_for_nothing_else_can_be_stored(
    value_of: Callable[..., bytes], user_module: ModuleType
) -> None:
    user_module.make = lambda mapping: Text(b"a message")  # type: ignore[attr-defined]
    value = value_of("users_targets:make")
    assert (type(value), value) == (bytes, b"a message")


@pytest.mark.parametrize("result", [None, "text", {"a": 1}, bytearray(b"x")])
def test_a_result_that_is_no_bytes_is_a_permanent_error(
    result: Any, value_of: Callable[..., bytes], user_module: ModuleType
) -> None:
    user_module.make = lambda mapping: result  # type: ignore[attr-defined]
    with pytest.raises(PermanentError, match=f"users_targets:make returned {type(result).__name__} instead of bytes"):
        value_of("users_targets:make")


def test_data_that_cannot_be_decoded_for_a_callable_is_a_permanent_error(
    value_of: Callable[..., bytes], user_module: ModuleType
) -> None:
    user_module.shouting = shouting  # type: ignore[attr-defined]
    for body in (b"{", b"[" * 5_000 + b"]" * 5_000):
        with pytest.raises(PermanentError, match="the payment data for users_targets:shouting cannot be read"):
            value_of("users_targets:shouting", PaymentData(custom=(("BusinessData", body),)))


@pytest.mark.parametrize(
    ("target_type", "expected"),
    [
        ("reprot", "'reprot' is none of report, report-xml, produced-report or package.module:callable; did you mean report?"),
        ("", "'' is none of"),
        ("no_such_package.module:render", "'no_such_package.module:render' cannot be imported (ModuleNotFoundError"),
        ("json:no_such_function", "'json:no_such_function' cannot be imported (AttributeError"),
        ("json:", "'json:' cannot be imported"),
        (":dumps", "':dumps' cannot be imported"),
        ("json:__name__", "'json:__name__' is a str; name a function"),
    ],
)
def test_a_target_type_that_cannot_be_had_is_refused_by_its_key(
    target_type: str, expected: str, value_of: Callable[..., bytes]
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        value_of(target_type)
    assert refused.value.path == "payment-status-notification.target-type"
    assert refused.value.problem.startswith(expected)
    assert isinstance(refused.value, ResequencerError)


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "import asyncio; raise asyncio.CancelledError"])
def test_a_target_type_whose_module_ends_the_process_is_refused_by_its_key(
    ending: str, value_of: Callable[..., bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_that_ends.py").write_text(ending)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match="'module_that_ends:render' cannot be imported") as refused:
        value_of("module_that_ends:render")
    assert refused.value.path == "payment-status-notification.target-type"


async def shouting_later(mapping: dict[str, Any]) -> bytes:
    await async_yield()
    return shouting(mapping)


@pytest.fixture
def call_of(
    envelope: Callable[..., Any], data: PaymentData, shipped_settings: NotificationSettings
) -> Callable[..., tuple[Handled, Handled]]:
    """Return what a target type that waits makes of two events, and what one makes that does not."""

    def call_of(
        waiting: str, plain: str = "users_targets:shouting", *, threads: int = 0, **options: Any
    ) -> tuple[Handled, Handled]:
        calls = users_calls(threads)
        keys = {"custom_data_keys": ("BusinessData",), **options}
        given = envelope(("PaymentAccepted", FLOW, None), ("PaymentSettled", FLOW, None)), data, Marks("sequence:3"), 5
        call = find_call(make_handler(HandlerSettings(waiting, **keys), shipped_settings, calls.find_way))
        assert call is not None
        try:
            return asyncio.run(call(*given)), make_handler(HandlerSettings(plain, **keys), shipped_settings).handle(*given)
        finally:
            calls.threads.shutdown()

    return call_of


@pytest.mark.parametrize("makes_facts", [False, True])
def test_a_callable_that_waits_makes_the_same(
    makes_facts: bool, call_of: Callable[..., tuple[Handled, Handled]], user_module: ModuleType
) -> None:
    user_module.shouting, user_module.later = shouting, shouting_later  # type: ignore[attr-defined]
    made, expected = call_of("users_targets:later", makes_facts=makes_facts)
    assert made == expected
    assert (len(made.notifications), len(made.facts)) == (2, 2 if makes_facts else 0)
    made, expected = call_of("users_targets:shouting", threads=1, makes_facts=makes_facts)
    assert made == expected


def test_a_callable_that_waits_gets_the_lookups_of_the_version_that_counts(
    envelope: Callable[..., Any], data: PaymentData, shipped_settings: NotificationSettings, user_module: ModuleType
) -> None:
    class Second(SettingsAlone):
        version = "V2"

    async def version(mapping: dict[str, Any], lookups: Enrichment) -> bytes:
        return str(lookups.version).encode()

    user_module.version = version  # type: ignore[attr-defined]
    first = make_handler(HandlerSettings("users_targets:version"), shipped_settings, users_calls().find_way)
    for handler, expected in ((first, b"None"), (first.with_lookups(Second(shipped_settings)), b"V2")):
        call = find_call(handler)
        assert call is not None
        (made,) = asyncio.run(call(envelope(("PaymentAccepted", FLOW, None)), data, Marks(), 0)).notifications
        assert made.value == expected


@pytest.mark.parametrize("threads", [0, 1])
def test_only_what_a_callable_that_waits_makes_counts_for_the_limit(
    threads: int, call_of: Callable[..., tuple[Handled, Handled]], user_module: ModuleType
) -> None:
    """A report is longer than 100 bytes, and each notification counts 1 024 bytes more than its value."""
    lengths = [0]

    def make(mapping: dict[str, Any]) -> bytes:
        return b"x" * lengths[0]

    async def make_later(mapping: dict[str, Any]) -> bytes:
        return make(mapping)

    user_module.shouting, user_module.later = make, make_later  # type: ignore[attr-defined]
    name, limit = "users_targets:shouting" if threads else "users_targets:later", 2 * (1_024 + 50)
    lengths[0] = 50
    made, expected = call_of(name, threads=threads, max_bytes=limit)
    assert made == expected
    lengths[0] = 51
    with pytest.raises(TooLarge, match=r"of its process objects \(2\) exceed 2148 bytes after the first 1; send fewer"):
        call_of(name, threads=threads, max_bytes=limit)


@pytest.mark.parametrize("threads", [0, 1])
def test_a_result_of_a_callable_that_waits_is_plain_bytes_too(
    threads: int, call_of: Callable[..., tuple[Handled, Handled]], user_module: ModuleType
) -> None:
    answers: list[Any] = []
    user_module.shouting = lambda mapping: answers[0]  # type: ignore[attr-defined]

    async def later(mapping: Any) -> Any:
        return answers[0]

    user_module.later = later  # type: ignore[attr-defined]
    name = "users_targets:shouting" if threads else "users_targets:later"
    answers[:] = [Text(b"a message")]
    made, _ = call_of(name, threads=threads)
    assert {(type(each.value), each.value) for each in made.notifications} == {(bytes, b"a message")}
    answers[:] = ["text"]
    with pytest.raises(PermanentError, match=f"^{name} returned str instead of bytes"):
        call_of(name, threads=threads)


def test_a_synchronous_callable_that_returns_a_coroutine_is_refused_with_the_remedy(
    value_of: Callable[..., bytes], user_module: ModuleType
) -> None:
    user_module.passes = lambda mapping: shouting_later(mapping)  # type: ignore[attr-defined]
    with pytest.raises(PermanentError, match=r"^users_targets:passes returned an object of type coroutine, .* with async def"):
        value_of("users_targets:passes")
