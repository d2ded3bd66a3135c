"""The segments that were committed after a marker, as long as the window still has them. Pure."""

from collections.abc import Mapping, Sequence

from storage.infinispan.layout.segment import Segment, WindowRow
from storage.marker import count_commits_since

_Position = tuple[int, int]


def find_later_segments(root: Segment, marker: str | None) -> Sequence[WindowRow] | None:
    """Return the window's segments later than the marked commit, the oldest first, without the root itself.

    Returns None if some may be missing: the partition's history does not have the marked commit, or the window begins too late,
    because pages have the changes by now.
    """
    header = root.header
    if count_commits_since(header, marker) is None:
        return None
    owners = {token: age for age, (token, _) in enumerate((*header.history, (header.token, header.commit)))}
    marked = _find_position(owners, *(marker or "").partition("/")[::2])
    rows = [(row, _find_position(owners, *row.name.split(":")[1:])) for row in root.manifest.window]
    if marked is None or any(position is None for _, position in rows):
        return None
    known = [(row, position) for row, position in rows if position is not None]
    oldest = known[0][1] if known else (owners[header.token], header.commit)
    age, commit = marked
    return [row for row, position in known if position > marked] if oldest <= (age, commit + 1) else None


def _find_position(owners: Mapping[str, int], token: str, commit: str) -> _Position | None:
    """Return the place of a commit in the partition's history: the age of its owner, and its number."""
    return (owners[token], int(commit)) if token in owners and commit.isdecimal() else None
