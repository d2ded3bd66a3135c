"""Faults in PREVIOUS, WINDOW and in the first numbers, planted in the code while a simulation runs."""

from __future__ import annotations

import pytest

from resequencer.strategies import previous
from resequencer.strategies.port import Rank
from resequencer.strategies.previous import Previous
from resequencer.strategies.window import Window
from resequencer.turn import release
from resequencer.turn.turn import Turn, TurnContext

Patch = pytest.MonkeyPatch


def links_forgotten_but_the_last(patch: Patch) -> None:
    patch.setattr(previous, "REMEMBERED_LINKS", 1)


def next_lane_not_asked(patch: Patch) -> None:
    """What follows an event that waits is forced at the deadline."""
    patch.setattr(Previous, "next_lane", None)


def what_waits_for_another_one_is_forced_first(patch: Patch) -> None:
    """A release goes by arrival alone."""
    patch.setattr(TurnContext, "_freed_by", lambda self, unit: {})


def a_link_that_was_given_up_is_not_late(patch: Patch) -> None:
    patch.setattr(Previous, "is_late", lambda self, state, envelope: False)


def only_the_lane_that_was_cut_off_continues(patch: Patch) -> None:
    """What it frees in other lanes loses its marks, or waits for the next event."""
    patch.setattr(Turn, "unstash_again", Turn.unstash)


def window_goes_by_arrival(patch: Patch) -> None:
    patch.setattr(Window, "rank", lambda self, envelope: Rank("", 0))


def the_window_of_the_oldest_is_that_of_all(patch: Patch) -> None:
    """What came later leaves with what has waited its time."""
    patch.setattr(release, "deadline_of", lambda entry, settings: 0)


def what_left_the_window_is_forgotten(patch: Patch) -> None:
    right = Window.initial
    patch.setattr(Window, "handled", lambda self, state, envelope: right(self))


def what_left_the_window_in_time_is_marked(patch: Patch) -> None:
    """The end of a window is taken for a deadline: the whole stash leaves, marked."""
    patch.setattr(Window, "releases_by_wait", False)


def first_sequence_ignored(patch: Patch) -> None:
    """The numbers begin with 1, whatever is configured."""
    patch.setattr("resequencer.strategies.sequence._Numbered.__init__", lambda self, first=1: None)
