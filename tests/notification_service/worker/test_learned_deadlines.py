"""Learned deadlines: from the configuration and a release to what the service does and reports."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from harness.published_lookups import NOW, publish, shaped
from harness.waiting import wait_until

from notification_service.configuration.configuration import Configuration
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.shapes import ANY, PROFILES, SETTINGS
from notification_service.payments.settings import HandlerSettings, make_handler
from notification_service.status.report import Identity, State, report
from notification_service.status.service_report import service_report
from notification_service.status.text import status_lines
from notification_service.wiring.composition import load_notification_settings
from notification_service.wiring.handlers import EnrichedHandler, make_enriched_handler
from notification_service.worker.worker import deadline_words
from resequencer.settings import LearnedTimeout

N = "payment-status-notification"
R = f"{N}.resequencer"


def profile(lateness_ms: int) -> list[str]:
    return ["10", str(lateness_ms), "1000", "4", "7"]


def test_learned_is_a_stash_timeout_with_bounds(loaded: Callable[..., Configuration]) -> None:
    settings = loaded(f"{R}.stash-timeout = learned").resequencer
    assert settings.learned == LearnedTimeout(1_000, 600_000)
    assert (settings.shortest_deadline_ms, settings.deadline_ms, settings.longest_deadline_ms) == (1_000, 21_000, 600_000)
    own = loaded(f"{R} {{ stash-timeout = learned, learned-timeout {{ at-least = 5s, at-most = 20s }} }}").resequencer
    assert (own.learned, own.deadline_ms) == (LearnedTimeout(5_000, 20_000), 20_000)


def test_bounds_alone_make_nothing_learned(loaded: Callable[..., Configuration]) -> None:
    settings = loaded(f"{R}.learned-timeout.at-least = 60s").resequencer
    assert (settings.learned, settings.deadline_ms, settings.longest_deadline_ms) == (None, 21_000, 21_000)


def test_attempts_that_take_longer_than_any_deadline_are_allowed_where_it_is_learned(
    loaded: Callable[..., Configuration],
) -> None:
    settings = loaded(f"{R} {{ stash-timeout = learned, max-attempts = 100 }}").resequencer
    assert settings.deadline_ms == 600_000


def test_of_files_nothing_is_learned_which_is_warned_of(loaded: Callable[..., Configuration]) -> None:
    files = f"ipf.processing-data.ingress.transport = file\n{N}.transport = file\n"
    warnings = loaded(
        f"{files}{R} {{ stash-timeout = learned, learned-timeout.at-most = 30s, storage-type = embedded }}"
    ).warnings
    assert ["files have no arrival times" in each for each in warnings] == [True]


def test_what_is_in_force_is_said_in_words(loaded: Callable[..., Configuration]) -> None:
    assert deadline_words(loaded("").resequencer, 12) is None
    settings = loaded(f"{R}.stash-timeout = learned").resequencer
    assert deadline_words(settings, 12) == "learned, 12 completion-profiles, between 1s and 10m; 21s for other flows"
    assert deadline_words(settings, 0) == "learned, but the current lookups have no completion-profiles; 21s for all flows"


def test_check_and_status_say_it(loaded: Callable[..., Configuration]) -> None:
    effective = {each.path: each.value for each in loaded(f"{R}.stash-timeout = learned").effective}
    assert [effective[f"{R}.{key}"] for key in ("stash-timeout", "learned-timeout.at-least", "learned-timeout.at-most")] == [
        "learned", "1s", "10m",
    ]  # fmt: skip
    plain = report(Identity(1, "service.conf", NOW), State.READY, None, NOW)
    stating = msgspec.structs.replace(plain, deadlines="learned, as one may")
    for reports in (
        (stating,),
        (msgspec.structs.replace(stating, worker_count=2), msgspec.structs.replace(stating, slot=1)),
    ):
        assert "deadlines: learned, as one may" in [*status_lines(service_report(reports, NOW, is_running=True), "nothing")]
    assert "deadlines" not in " ".join(status_lines(service_report((plain,), NOW, is_running=True), "nothing"))


@pytest.fixture
def handler(loaded: Callable[..., Configuration], tmp_path: Path) -> Callable[[], EnrichedHandler]:
    """Make the handler as a worker does, with lookups under `tmp_path`."""
    configuration = loaded(f'{N} {{ run-directory = "{tmp_path}", lookups.check-every = 100ms }}')

    def made() -> EnrichedHandler:
        return make_enriched_handler(
            configuration,
            lambda known: make_handler(HandlerSettings(), known),
            lambda: load_notification_settings(configuration),
        )

    return made


@pytest.mark.slow
def test_profiles_are_those_of_the_release_in_use_from_one_cycle_to_the_next(
    handler: Callable[[], EnrichedHandler], tmp_path: Path
) -> None:
    directory = LookupsDirectory(tmp_path / "lookups")
    made = handler()
    made.follow()
    assert (made.find_lateness_ms(None, "A"), made.profile_count) == (None, 0)
    for number, lateness_ms in enumerate((5_000, 7_000)):
        take_up(made, publish(directory, {PROFILES: shaped({(ANY, "A"): profile(lateness_ms)})}, now=NOW + number).version)
        assert (made.find_lateness_ms("BANK_001", "A"), made.profile_count) == (lateness_ms, 1)
    made.close()


def take_up(handler: EnrichedHandler, version: str) -> None:
    def is_taken_up() -> bool:
        handler.take_up()
        return handler.version == version

    wait_until(is_taken_up, f"{version} is taken up")


def test_a_release_without_profiles_leaves_everything_as_if_nothing_was_learned(
    handler: Callable[[], EnrichedHandler], tmp_path: Path
) -> None:
    publish(LookupsDirectory(tmp_path / "lookups"), {SETTINGS: shaped({(ANY, "A", "E"): ["ACCP", None, None, None]})})
    made = handler()
    assert (made.find_lateness_ms(None, "A"), made.profile_count) == (None, 0)
    made.close()
