"""Which names are those of the same person, where an order needs two persons."""

from unicodedata import category, normalize


def is_same_person(one: str, other: str) -> bool:
    """Whether two names differ at most in case, in the form of letters, in unseen characters and in space around.

    But for the space this is Unicode's caseless matching of identifiers (toNFKC_Casefold of The Unicode Standard). A
    directory or a proxy may write the name of a person as `anna` today and as `Anna` tomorrow.
    """
    return _folded(one) == _folded(other)


def _folded(name: str) -> str:
    seen = "".join(each for each in normalize("NFKC", name) if category(each) != "Cf")
    return normalize("NFKC", seen.casefold()).strip()
