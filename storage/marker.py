"""The marker of a partition's last commit, by which a view tells what was committed since."""

from resequencer.storage_port import Header

NOTHING_COMMITTED = ""


def marker_of(header: Header | None) -> str:
    """Return the marker of the last commit, under this token or an older one. None: the partition was never opened.

    Only one attempt is ever stored under a token and a number, so a marker names one content. Tokens are drawn at random at each
    takeover, so a marker also names the storage: no other one has this commit, unless it is a copy that contains it. A new owner
    changes no unit, so its takeover leaves the marker as it was. The history keeps the last token with commits however many
    takeovers followed.
    """
    if header is None:
        return NOTHING_COMMITTED
    for token, commit in ((header.token, header.commit), *reversed(header.history)):
        if commit > 0:
            return f"{token}/{commit}"
    return NOTHING_COMMITTED


def count_commits_since(header: Header, marker: str | None) -> int | None:
    """Return how many commits followed the marked one.

    Returns None if the storage does not know the marked commit: it is of another storage or of long ago, or the storage has lost
    it, even if it has later ones under a newer token.
    """
    marked, _, number = (marker or "").partition("/")
    if not (number.isascii() and number.isdecimal()) or int(number) == 0:
        return None
    since = 0
    for token, commit in ((header.token, header.commit), *reversed(header.history)):
        if token == marked:
            return since + commit - int(number) if int(number) <= commit else None
        since += commit
    return None
