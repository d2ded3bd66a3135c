"""A user's own lookup as its recipe says: built by the job, shown, and read by the user's handler and target type."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.recipes import ROOT, Recipe
from harness.spark.configured_build import build_as_configured
from harness.spark.options import FAST

from notification_service.jobs.errors import JobRefused
from resequencer.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LONGEST_WAIT_SECONDS = 600
SOURCES = f"{NOTIFICATION}.lookups.sources=conf/quick.conf"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OperatedService]:
    """A service in a directory with the files of the recipes for a lookup and a handler; its Spark is fast for a few rows."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    for name in ("a lookup", "a handler"):
        Recipe(name).write(tmp_path)
    options = "\n".join(f'"{name}" = "{value}"' for name, value in FAST.items())
    desks = f'sources.desks = [{{ format = csv, path = "{tmp_path}/desks.csv" }}]'  # The tests' Spark runs elsewhere.
    quick = f'include "desks.conf"\nsources.institutions = []\n{desks}\nspark.options {{\n{options}\n}}\n'
    (tmp_path / "conf" / "quick.conf").write_text(quick)
    made = OperatedService(tmp_path, SOURCES)
    yield made
    made.clear_away()


def test_it_is_built_with_the_others_and_its_values_are_in_what_leaves(
    spark: SparkSession, own: OperatedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(own.directory)
    monkeypatch.syspath_prepend(own.directory)
    build_as_configured(spark, own.directory / "conf" / "application.conf", SOURCES)
    assert "desks 2" in own.verb("lookups").stdout
    assert "Payments desk" in own.verb("lookups", "show", "desks", "PaymentInitiationFlow").stdout
    assert own.verb("lookups", "show", "desks", "NoFlow").returncode == 1

    own.tell("uow-1", 1, 2, 3, 4, 5)
    own.start_and_wait(Recipe("a handler").setting.replace(" = ", "="))
    own.wait_for_report(lambda report: report.counts.get("handled", 0) == 5, "all of it is handled")
    assert own.stop() == 0
    (notification,) = own.notifications()
    assert notification["value"] == {"payment": "uow-1", "desk": "Payments desk", "known": []}
    assert notification["headers"]["lookups-version"] in own.verb("lookups").stdout

    own.tell("uow-2", 1)
    own.start_and_wait(f'{NOTIFICATION}.target-type="payments.desk_message:desk_message"')
    own.wait_for("uow-2", 1)
    assert own.stop() == 0
    assert own.notifications()[-1]["value"] == {"status": "RCVD", "call": "+431234567"}


@pytest.mark.nightly("jobs")
def test_a_row_that_its_rule_refuses_is_not_published_and_named(own: OperatedService) -> None:
    desks = own.directory / "desks.csv"
    desks.write_text(desks.read_text().replace("+431234567", "soon"))
    built = own.verb("lookups", "build", seconds=LONGEST_WAIT_SECONDS)
    assert built.returncode == 1
    assert "desks.csv: 1 of 2 rows of desks were refused" in built.stderr
    (refused,) = (own.run_directory / "lookups" / "quarantine").glob("*/desks/part-*")
    assert "phone 'soon' is no number" in refused.read_text()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write the recipe's module with this code added, where it can be imported."""
    Recipe("a lookup").write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(more: str) -> None:
        for name in [each for each in sys.modules if each.partition(".")[0] == "payments"]:
            monkeypatch.delitem(sys.modules, name)
        place = tmp_path / "payments" / "desks.py"
        place.write_text(f"{place.read_text()}\n{more}\n")

    return write


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("raise OSError('away')", "specs.desks: 'payments.desks:DESKS' cannot be imported (OSError: away)"),
        ("DESKS = 5", "specs.desks: 'payments.desks:DESKS' is a int; name a LookupSpec"),
        ("DESKS = DESKS._replace(name='offices')", "is the lookup 'offices'; write specs.offices, or call it 'desks'"),
    ],
)
def test_one_that_cannot_be_found_is_refused_with_its_name(module: Callable[[str], None], more: str, text: str) -> None:
    from notification_service.jobs.lookups.specs import find_specs

    module(more)
    with pytest.raises(ConfigurationError) as refused:
        find_specs({"desks": "payments.desks:DESKS"})
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("keyed", "text"),
    [
        (lambda _rows, _: 1 / 0, "desks: its columns cannot be made: ZeroDivisionError"),
        (lambda rows, _: rows, "desks: its `keyed` returned rows without the column keys, value, valid_from; return finished"),
        (lambda _rows, _: None, "without the column keys, value, valid_from, flaw"),
    ],
)
def test_one_whose_columns_cannot_be_made_is_refused(
    module: Callable[[str], None], rows_of: Callable[..., DataFrame], keyed: Callable[..., Any], text: str
) -> None:
    from notification_service.jobs.lookups.specs import find_specs, keyed_rows

    module("")
    *_, desks = find_specs({"desks": "payments.desks:DESKS"})
    rows = rows_of(desks, {"process_flow": "F", "desk": "D"})
    assert [row["value"] for row in keyed_rows(desks, rows, None).collect()] == ['["D",null]']
    with pytest.raises(JobRefused) as refused:
        keyed_rows(desks._replace(keyed=keyed), rows, None)
    assert text in str(refused.value)
