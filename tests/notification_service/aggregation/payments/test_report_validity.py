"""Reports against the XSD, of whatever facts."""

from collections.abc import Callable
from typing import Any

import pytest
from harness.examples import examples
from harness.group_stage import HOUR, GroupStage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notification_service.aggregation.core import Completion
from notification_service.payments.iso20022.codes import TRANSACTION_STATUSES

texts = st.sampled_from(["", " ", "M-1", "x" * 35, "x" * 36, "Größe & <Umfang> ]]>", "\x00\x0b\ufffe", "NOTPROVIDED", "\r\n"])
numbers = st.sampled_from(["0", "1", "2", "3", "03", "-1", "two", "9" * 15, "9" * 16, ""])
sums = st.sampled_from(["0", "1.50", "3", "+3", ".5", "5.", "-1", "9" * 18, "0." + "1" * 17, "1" + "0" * 70, "x", "1e5"])
instants = st.sampled_from(["2026-03-28T10:00:00Z", "2026-02-30T10:00:00", "2026-03-28T10:00:00." + "0" * 99, "", "today"])
identities = st.fixed_dictionaries(
    {},
    optional={"AnyBIC": st.sampled_from(["DEUTDEFF", "x"]), "LEI": texts, "Othr": st.lists(st.builds(dict, Id=texts))},
)
parties = (
    st.none()
    | texts
    | st.fixed_dictionaries(
        {},
        optional={"Nm": texts, "Id": st.fixed_dictionaries({}, optional={"OrgId": identities, "PrvtId": identities}), "X": texts},
    )
)
originals = st.fixed_dictionaries(
    {"OrgnlMsgId": texts, "OrgnlMsgNmId": texts},
    optional={"OrgnlCreDtTm": instants, "OrgnlNbOfTxs": numbers, "OrgnlCtrlSum": sums},
)
instructions = st.none() | st.fixed_dictionaries(
    {"OrgnlPmtInfId": texts}, optional={"OrgnlNbOfTxs": numbers, "OrgnlCtrlSum": sums}
)
facts = st.fixed_dictionaries(
    {
        "unit": st.sampled_from("abc"),
        "status": st.sampled_from(sorted(TRANSACTION_STATUSES)) | st.sampled_from(["ACCC", "RJCT"]),
        "amount": st.none() | sums,
        "instruction": instructions,
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("target_type", ["report", "report-xml"])
@given(originals, parties, st.lists(facts, min_size=1, max_size=8))
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_report_of_any_facts_is_valid(
    assert_valid: Callable[[Completion], None], target_type: str, original: Any, party: Any, given_facts: list[Any]
) -> None:
    stage = GroupStage(target_type=target_type)
    stage.fields = {"original": original, "initiatingParty": party}
    reports = [report for fact in given_facts for report in stage.say(**fact)]
    reports += stage.wait(72 * HOUR)
    assert reports
    for report in reports:
        assert_valid(report)
