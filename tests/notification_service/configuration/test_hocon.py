"""The features of HOCON that pyhocon alone gets wrong or lacks."""

import os
import subprocess
import sys

import pytest
from harness.examples import examples
from hypothesis import HealthCheck, given, settings, strategies

from notification_service.configuration.hocon import MAX_FILE_BYTES, parse_file, parse_text, resolve
from notification_service.configuration.hocon_places import scan
from resequencer.errors import ConfigurationError


def values(*layers):
    return resolved(*layers).values


def resolved(*layers):
    return resolve([parse_text(text, f"layer {number}", where=f"layer {number}") for number, text in enumerate(layers)])


def refusal(call, *arguments):
    with pytest.raises(ConfigurationError) as raised:
        call(*arguments)
    return str(raised.value)


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("PRESENT", "from outside")
    monkeypatch.delenv("ABSENT", raising=False)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (["x.a = 5", "x.a = ${?ABSENT}"], 5),
        (["x.a = 5", "x.a = ${?PRESENT}"], "from outside"),
        (["x.a = 5", "x.a = 6\nx.a = ${?ABSENT}"], 6),
        (["x.a = 5", "x.a = 6\nx.a = ${?PRESENT}"], "from outside"),
        (["x.a = 5", "x.a = 6\nx.a = ${?ABSENT}\nx.a = ${?ABSENT_TOO}"], 6),
        (["x.a = 5", "x.a = 6\nx.a = ${?PRESENT}\nx.a = ${?ABSENT}"], "from outside"),
        (["x.a = 5", "x { a = 6 }\nx { a = 7, a = ${?ABSENT} }"], 7),
        (["x.a = 5", "x.a = ${?PRESENT}", "x.a = 9"], 9),
        (["x.a = null", "x.a = ${?ABSENT}"], None),
        (["x.a = 5", "x = ${?ABSENT}"], 5),
    ],
)
def test_an_optional_substitution_leaves_the_nearest_lower_value_when_there_is_nothing_to_put(layers, expected):
    assert values(*layers)["x.a"] == expected


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (["x { a = 5, b = 3 }", "x.a = ${x.b}"], 3),
        (["x { a = 5, b = 3 }", "x.a = ${x.b}", "x.b = 9"], 9),
        (["x.a = 5", "i = blue\nx.a = p-${i}-q"], "p-blue-q"),
        (["x.a = 5", 'i = blue\nx.a = "p "${i}" q"'], "p blue q"),
        (["x.a = 5", "i = blue\ni = ${?PRESENT}\nx.a = ${i}"], "from outside"),
        (["x.a = 5", "base { a = 6 }\nx = ${base}"], 6),
        (["x { a = 5, b = 3 }", "base { a = 6 }\nx = ${base} { b = 1 }"], 6),
        (["x.a = [A]", "x.a = ${x.a} [B]"], ["A", "B"]),
        (["x.a = [A]", "x.a += [B]"], ["A", "B"]),
        (["x.a = []", "x.a = [A]\nx.a += [B]"], ["A", "B"]),
        (["x.a = 3s", "x.b = ${x.a}\nx.a = ${x.b}0"], None),
        (["x.a = 5", "x.a = [1, ${?ABSENT}, ${?PRESENT}]"], [1, "from outside"]),
        (["x.a = 5", 'x { "a" = 6 }'], 6),
        (["x.y.a = 5", 'x { "y.a" = 6 }', "x.y.a = 7"], 7),
    ],
)
def test_substitutions_see_all_layers(layers, expected):
    if expected is None:
        assert "circle" in refusal(resolved, *layers)
    else:
        found = values(*layers)
        assert found.get("x.a", found.get("x.y.a")) == expected


@pytest.mark.parametrize(
    "text", ["x.a = ${x.b}\nx.b = ${x.a}", "x.a = ${x}", "a = ${b}\nb = ${c}\nc = ${a}", "x { a = ${x.b}1, b = ${x.a}2 }"]
)
def test_a_circle_is_refused_with_a_key_in_it(text):
    assert "runs in a circle" in refusal(resolved, text)


def test_a_substitution_for_which_there_is_nothing_is_refused_by_name():
    assert refusal(resolved, "x.a = 1", "x.b = ${ABSENT}") == "x.b: ${ABSENT} is neither a key nor an environment variable"
    assert refusal(resolved, "x.a = ${x.a}").startswith("x.a: ")


@pytest.mark.parametrize(
    "text", ["x.a = [A]\nx.a += B", "x.a = 3s\nx.b = ${x.a}s", "x.a = [1]\nx.b = ${x.a}s", "y.a = 1\nx.b = ${y}s"]
)
def test_what_cannot_be_joined_is_refused(text):
    assert "cannot be joined" in refusal(resolved, text)


def test_each_value_names_the_layer_that_set_it():
    layers = resolved(
        "x { a = 1, b = 1, c = 1, d = 1, e = 1, f.g = 1 }",
        "i = ${?PRESENT}\nx { a = 2, b = ${?PRESENT}, c = ${?ABSENT}, d = ${i}, f = ${x.h}, h.g = 3 }",
        "x.a = 3",
    ).layers
    assert [layers[f"x.{key}"] for key in ("a", "b", "c", "d", "e", "f.g")] == [
        "layer 2",
        "environment (PRESENT)",
        "layer 0",
        "environment (PRESENT)",
        "layer 0",
        "layer 1",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x.a = 1\nx.a = 2", 2),
        ("x {\n  b = 1\n  a = 2 }\n", 3),
        ("x\n{\n  a =\n    2\n}", 3),
        ("x.a = 1\nx.a = ${?ABSENT}", 1),
        ("d = 1\nx.a = ${?d}", 2),
        ("y { a = 1 }\nx = ${y}", 2),
        ("y { b = 1 }\nx = ${y} {\n  a = 2 }", 3),
        ("x.a = 1\nx = ${?ABSENT}", 1),
        ('x.b = [\n  { a = 1 }\n], "x.a" = 2', 3),
        ('x.b = """x.a = 1\n{"""\nx.a = 2 # a = }\n', 3),
        ("x.b = http://host/a # {\n// x.a = 3\nx.a : 1", 3),
        ('x { include "two.conf"\n a = 2 }', 2),
        ('x.a = 1\nx { include required(file("two.conf")) }', "two.conf:2"),
    ],
)
def test_each_value_of_a_file_names_its_line(write, text, line):
    included = write("\na = 1", "two.conf")
    file = write(text)
    expected = f"{file}:{line}" if isinstance(line, int) else f"{included}:2"
    assert resolve([parse_file(file)]).places["x.a"] == expected


def test_an_include_that_is_no_file_has_no_lines_and_does_no_harm(write):
    included = write("x.a = 1", "two.conf")
    file = write(f'include "file://{included}"\nx.b = 2')
    found = resolve([parse_file(file)])
    assert (found.values["x.a"], found.places) == (1, {"x.b": f"{file}:2"})


@pytest.mark.parametrize("text", ["${" * 9_999, '"' * 9_999, "a {" * 3_000, "}" * 9_999, "\\" * 9_999, "include " * 9_999])
def test_no_text_takes_long_to_be_scanned(text):
    scan(text)


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("a {\n  b = 1\n", "line 1: the brace { of a is not closed: its } is missing"),
        (
            "a {\n  b {\n    c = 1\n\n  d { e = 1 }\n}\n",
            "line 2: the brace { of a.b is not closed: its } is missing (by the indentation)",
        ),
        ("a {\n  b = [1, 2\n}\n", "line 2: the bracket [ of a.b is not closed: its ] is missing"),
        ("a { b = 1 }\n}\n", "line 2: this } closes nothing"),
        ('a = 1\nb = "c\n', "line 2: a double quote is not closed in this line"),
        ("b = hunt{er2 {\n", "line 1: the brace { is not closed: its } is missing"),
    ],
)
def test_a_brace_that_is_missing_is_called_so_with_the_line_of_the_one_that_was_opened(text, flaw):
    assert refusal(_parse, text) == f"a layer: is not HOCON: {flaw}"


def test_a_quoted_key_that_is_given_without_quotes_too_is_refused():
    assert "bootstrap.servers is given twice" in refusal(_parse, '"bootstrap.servers" = a\nbootstrap.servers = b')


def _parse(text):
    return parse_text(text, "a layer", where="a layer")


@pytest.mark.parametrize(
    "text", ["{", "a = {", "a = [1", "}", "= 3", "just words", 'a = "b', '"" = 3', "a = 99999999999999999s", "a = @", "a = b@c"]
)
def test_what_is_no_hocon_is_refused_with_the_place(text):
    assert refusal(_parse, text).startswith("a layer: is not HOCON: ")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"\" \\ \/ \n \r \t"', '" \\ / \n \r \t'),
        (r'"\b\f"', "\b\f"),
        (r'"caf\u00e9 \ud83d\ude00"', "caf\u00e9 \U0001f600"),
        (r'"\\u00e9"', r"\u00e9"),
        (r'"\u0041"${i}', "Ablue"),
        (r'["\u0041"]', ["A"]),
    ],
)
def test_the_escapes_of_json_mean_what_they_mean_in_json(written, meant):
    assert values(f"i = blue\nx.a = {written}")["x.a"] == meant


@pytest.mark.parametrize("written", [r'"\x41"', r'"\u12"', r'"\ud800"', r'"\udc00\ud800"', r'"\u00g1"', r"C:\directory"])
def test_a_backslash_that_begins_no_escape_is_refused_with_the_remedy(written):
    assert refusal(_parse, f"x.a = {written}").endswith(r"\uXXXX; a literal backslash is written \\")


@pytest.mark.parametrize(
    "text",
    [
        'x { password = "hunter2" } more',
        'x = ["hunter2"] more',
        'password = ["hunter2"]\npassword = x\npassword += [hunter2]',
        'x.password = "hunter2" { a = 1 }',
        r'password = "hunter2\q"',
        'password = "hunter2',
        "password = 99999999999999999999s hunter2",
    ],
)
def test_whatever_is_wrong_with_a_text_its_refusal_shows_no_value(text):
    """The refusal shows a line and a column, or a key; pyhocon would print the whole section."""
    assert "hunter2" not in refusal(values, text)


def test_a_section_beside_a_text_is_refused_with_the_place():
    assert refusal(_parse, "a = 1\nx { b = 2 } more").startswith("a layer: is not HOCON: line 2")


def test_a_list_at_the_top_and_endless_nesting_are_refused():
    assert "is a list" in refusal(_parse, "[1, 2]")
    assert "nested too deep" in refusal(_parse, "a = " + "[" * 3_000 + "]" * 3_000)


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path):
    assert refusal(parse_file, tmp_path / "no.conf") == f"{tmp_path / 'no.conf'}: cannot be read: No such file or directory"
    assert refusal(parse_file, tmp_path).startswith(f"{tmp_path}: cannot be read: Is a directory")
    latin = tmp_path / "latin.conf"
    latin.write_bytes("a = ä".encode("latin-1"))
    assert refusal(parse_file, latin) == f"{latin}: is not UTF-8 (byte 4)"
    large = tmp_path / "large.conf"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert "is longer than" in refusal(parse_file, large)


def test_a_byte_order_mark_and_carriage_returns_do_no_harm(tmp_path):
    file = tmp_path / "windows.conf"
    file.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    assert resolve([parse_file(file)]).values == {"a": 1, "b": 2}


def test_includes_are_relative_to_their_file_and_may_be_overridden(write):
    write("x { a = 1, b = 1, b = ${?ABSENT}, c = 1 }", "shared/base.conf")
    write('include "base.conf"\nx.b = 2', "shared/middle.conf")
    file = write('include "shared/middle.conf"\nx { c = 3, c = ${?ABSENT} }')
    assert resolve([parse_file(file)]).values == {"x.a": 1, "x.b": 2, "x.c": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    "include", ['"no.conf"', 'required("no.conf")', 'file("no.conf")', 'url("file:///no/such/no.conf")', '"no*.conf"']
)
def test_an_include_that_does_not_exist_is_refused(write, include):
    file = write(f"a = 1\ninclude {include}")
    text = refusal(parse_file, file)
    assert text.startswith(str(file))
    assert "no.conf" in text or "no*.conf" in text


def test_an_error_in_an_include_names_the_include(write):
    broken = write("a = {", "broken.conf")
    file = write('include "broken.conf"')
    assert refusal(parse_file, file).startswith(f"{broken}: is not HOCON: line 1")


@pytest.mark.slow
def test_files_that_include_each_other_are_refused(write):
    file = write('include "other.conf"')
    write('include "service.conf"', "other.conf")
    assert "includes itself" in refusal(parse_file, file)


@pytest.mark.slow
def test_durations_are_read_alike_where_dateutil_happens_to_be_installed(tmp_path):
    """Spark's libraries install dateutil, and pyhocon then prefers its periods."""
    (tmp_path / "dateutil").mkdir()
    (tmp_path / "dateutil" / "__init__.py").write_text("")
    (tmp_path / "dateutil" / "relativedelta.py").write_text("class relativedelta:\n    def __init__(self, **of): pass\n")
    asked = (
        "from notification_service.configuration.hocon import parse_text, resolve\n"
        "print(resolve([parse_text('a = 3s, b = 1 month', 'x', where='x')]).values)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    output = subprocess.run([sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=False)
    assert output.stdout == "{'a': datetime.timedelta(seconds=3), 'b': '1 month'}\n", output.stderr


SCRAPS = [
    "a",
    "b.c",
    '"d.e"',
    " = ",
    ":",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\n",
    "3s",
    "5M",
    "'x'",
    '"',
    "${a}",
    "${?PRESENT}",
    "+=",
    "null",
    "#",
    "é",
    "1e9",
]


@pytest.mark.slow
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(strategies.lists(strategies.sampled_from(SCRAPS), max_size=14).map("".join))
def test_any_text_is_read_or_refused(text):
    output = ""
    try:
        resolved("a = 1", text)
    except ConfigurationError as error:
        output = str(error)
    assert "\n" not in output
