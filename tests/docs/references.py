"""Finds what a text refers to and is not there: pages, sections, steps, promises, and places outside of the repository."""

import re
from collections.abc import Callable, Iterator, Mapping
from os.path import normpath
from pathlib import PurePosixPath
from typing import NamedTuple

_FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_PAGE = r"(?:\.{1,2}/)*[A-Za-z0-9][A-Za-z0-9_./-]*\.md"
_NUMBERS = r"[0-9]+(?:(?:,| and| to) [0-9]+)*"

_PAGES = re.compile(rf"(?<![\w./<>*$-])({_PAGE})(?![\w(])")
_SECTIONS_OF = re.compile(rf"({_PAGE}),\s+sections?\s+({_NUMBERS})")
_SECTIONS = re.compile(rf"\b[Ss]ections?\s+({_NUMBERS})")
_LINKS = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_LINKED_SECTION = re.compile(r"section ([0-9]+)")
_STEPS_OF = re.compile(rf"\b[Ss]teps?\s+({_NUMBERS})\s+of\b[^.]{{0,60}}?(docs/decisions/[0-9]{{4}}[a-z0-9-]*\.md)")
_PROMISES = re.compile(rf"\b[Pp]romises?\s+({_NUMBERS})\s+of\s+docs/design\.md")
_DECISIONS = re.compile(r"\b[Dd]ecision\s+([0-9]+)")

_ELSEWHERE = {
    "a note that readers do not have": re.compile(r"\bseeds? 0[0-9]+"),
    "a place on one machine": re.compile(r"(?<![\w.:/\\-])/(?:work|home|root|Users)/[a-z]+"),
    "a place beside the repository": re.compile(r"(?:\.\./)+shared\b"),
}
_STANDARD = re.compile(r"(?:RFC [0-9]+|(?:XML|AMQP) 1\.0),\s+$")
"""What stands before a section of a page of others that everybody can read."""


class Page(NamedTuple):
    """What of a page can be referred to: its numbered sections, numbered steps, promises (the rows of its tables), anchors."""

    sections: frozenset[int]
    steps: frozenset[int]
    rows: frozenset[int]
    anchors: frozenset[str]


def page_of(text: str) -> Page:
    prose = _FENCED.sub("", text)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return Page(
        frozenset(int(number) for number in re.findall(r"^## ([0-9]+)\. ", prose, re.MULTILINE)),
        frozenset(int(number) for number in re.findall(r"^([0-9]+)\. ", prose, re.MULTILINE)),
        frozenset(int(number) for number in re.findall(r"^\| ([0-9]+) \|", prose, re.MULTILINE)),
        frozenset(_anchors(headings)),
    )


def find_broken(path: str, text: str, pages: Mapping[str, Page], is_there: Callable[[str], bool]) -> list[str]:
    """What in the text of the file `path` leads nowhere, a line each. `pages` are all of the repository by their paths, and
    `is_there` says whether a path within it exists.
    """
    checks = [_missing_pages, _missing_sections, _missing_parts, _elsewhere]
    if path.endswith(".md"):
        text = _FENCED.sub("", text)
        checks.append(lambda *_: _broken_links(path, text, pages, is_there))
    return [f"{path}: {problem}" for check in checks for problem in check(path, text, pages)]


def _missing_pages(path: str, text: str, pages: Mapping[str, Page]) -> Iterator[str]:
    for found in _PAGES.finditer(text):
        if _find_page(path, found[1], pages) is None:
            yield f"there is no page {found[1]}"


def _missing_sections(path: str, text: str, pages: Mapping[str, Page]) -> Iterator[str]:
    linked = set()
    for found in _SECTIONS_OF.finditer(text):
        linked.add(found.start(2))
        name = _find_page(path, found[1], pages)
        sections = pages[name].sections if name else frozenset()
        yield from (f"{found[1]} has no section {number}" for number in _numbers(found[2]) if number not in sections)
    own = pages[path].sections if path in pages else frozenset()
    for found in _SECTIONS.finditer(text):
        before, behind = text[: found.start()], text[found.end() : found.end() + 2]
        if found.start(1) in linked or _STANDARD.search(before) or behind == "](":
            continue
        yield from (f"whose section {number}?" for number in _numbers(found[1]) if number not in own)


def _missing_parts(path: str, text: str, pages: Mapping[str, Page]) -> Iterator[str]:
    for found in _STEPS_OF.finditer(text):
        steps = pages[found[2]].steps if found[2] in pages else frozenset()
        yield from (f"{found[2]} has no step {number}" for number in _numbers(found[1]) if number not in steps)
    for found in _PROMISES.finditer(text):
        promises = pages["docs/design.md"].rows
        yield from (f"docs/design.md has no promise {number}" for number in _numbers(found[1]) if number not in promises)
    known = {int(PurePosixPath(each).name[:4]) for each in pages if re.match(r"docs/decisions/[0-9]{4}-", each)}
    yield from (f"there is no decision {found[1]}" for found in _DECISIONS.finditer(text) if int(found[1]) not in known)


def _elsewhere(path: str, text: str, pages: Mapping[str, Page]) -> Iterator[str]:
    for what, form in _ELSEWHERE.items():
        yield from (f"{found[0]!r} is {what}" for found in form.finditer(text))


def _broken_links(path: str, text: str, pages: Mapping[str, Page], is_there: Callable[[str], bool]) -> Iterator[str]:
    for words, link in _LINKS.findall(text):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = normpath(PurePosixPath(path).parent / place) if place else path
        if target.startswith(".."):
            yield f"{link} leads out of the repository"
        elif target not in pages:
            if not is_there(target):
                yield f"{link} is not there"
        elif anchor and anchor not in pages[target].anchors:
            yield f"{target} has no heading #{anchor}"
        for number in _LINKED_SECTION.findall(words):
            if not anchor.startswith(f"{number}-"):
                yield f"[{words}] leads to {link}"


def _find_page(path: str, name: str, pages: Mapping[str, Page]) -> str | None:
    """From the root, or beside the file; a bare name in code is that of a page that its path is made of there."""
    beside = normpath(PurePosixPath(path).parent / name)
    places = [name, beside] if path.endswith(".md") else [name, beside, f"docs/{name}"]
    return next((each for each in places if each in pages), None)


def _numbers(text: str) -> list[int]:
    """Of `2`, `2 and 3`, `2, 3 and 5`, `2 to 4`."""
    found: list[int] = []
    for joined, number in re.findall(r"(, | and | to |)([0-9]+)", text):
        found += range(found[-1] + 1, int(number) + 1) if joined == " to " else [int(number)]
    return found


def _anchors(headings: list[str]) -> Iterator[str]:
    """As GitHub makes them."""
    seen: dict[str, int] = {}
    for heading in headings:
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        yield f"{slug}-{count}" if count else slug
