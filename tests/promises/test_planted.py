"""Each planted fault fits the code and names tests that there are; the slow test plants it, and they notice it."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from harness.packages import CODE, ROOT
from promises.planted import PLANTED, PlantedFault
from promises.run import Verdict, run_planted

each_fault = pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)


def headings(page: str) -> set[str]:
    return set(re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))


def classes_and_functions(file: Path) -> tuple[dict[str, ast.ClassDef], set[str]]:
    """Return the classes of a module by their names, with those that it imports from other tests, and its functions."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    classes = {each.name: each for each in body if isinstance(each, ast.ClassDef)}
    for each in body:
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("tests."):
            theirs, _ = classes_and_functions(ROOT / f"{str(each.module).replace('.', '/')}.py")
            classes |= {name.name: theirs[name.name] for name in each.names if name.name in theirs}
    return classes, {each.name for each in body if isinstance(each, ast.FunctionDef)}


def is_there(test: str) -> bool:
    """Whether the module has this function, or a class with this method, its own or that of a class which it derives from."""
    path, *names = test.partition("[")[0].split("::")
    if not (ROOT / path).is_file():
        return False
    classes, functions = classes_and_functions(ROOT / path)
    *of_class, function = names
    wanted = [classes[name] for name in of_class if name in classes]
    for each in wanted:
        wanted += [classes[base.id] for base in each.bases if isinstance(base, ast.Name) and base.id in classes]
    methods = {each.name for found in wanted for each in found.body if isinstance(each, ast.FunctionDef)}
    return function in (methods if of_class else functions)


def test_there_are_thirty_and_each_has_a_name_of_its_own() -> None:
    assert len(PLANTED) >= 30
    assert [name for name, count in Counter(each.name for each in PLANTED).items() if count > 1] == []


@each_fault
def test_its_text_stands_once_in_a_module_of_the_service_and_what_stands_instead_is_code(fault: PlantedFault) -> None:
    code = (ROOT / fault.file).read_text(encoding="utf-8")
    assert Path(fault.file).parts[0] in CODE
    assert fault.text != fault.instead
    ast.parse(fault.planted_in(code))


@each_fault
def test_its_promise_is_a_sentence_of_a_section_that_there_is(fault: PlantedFault) -> None:
    page, _, section = fault.where.partition(", ")
    assert section in headings(page)
    assert fault.promise.endswith(".")


@each_fault
def test_its_tests_are_there(fault: PlantedFault) -> None:
    assert 1 <= len(fault.tests) <= 2
    assert [each for each in fault.tests if not is_there(each)] == []


@pytest.mark.nightly("promises")
@each_fault
def test_it_is_noticed(fault: PlantedFault) -> None:
    trial = run_planted(fault)
    assert trial.verdict is Verdict.NOTICED, trial.printed
