"""The marker of a partition's last commit, by which a view tells whether anything changed since."""

from storage.port import Header

NOTHING_COMMITTED = ""


def marker_of(header: Header | None) -> str:
    """Return the marker of the last commit, under this token or an older one. None: the partition was never opened.

    Only one attempt is ever stored under a token and a number, so a marker names one content. A new owner changes no unit, so its
    takeover leaves the marker as it was. The history keeps the last token with commits however many takeovers followed.
    """
    if header is None:
        return NOTHING_COMMITTED
    for token, commit in ((header.token, header.commit), *reversed(header.history)):
        if commit > 0:
            return f"{token}/{commit}"
    return NOTHING_COMMITTED
