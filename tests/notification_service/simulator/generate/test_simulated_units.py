from uuid import UUID

import msgspec
import pytest

from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from notification_service.simulator.generate.pain001 import read_payments
from notification_service.simulator.generate.plan import SAMPLES, Flows, Numbering, Plan, Schema
from notification_service.simulator.generate.units import SimulatedUnit, simulate_unit
from resequencer.notification import notification_id
from resequencer.record import Origin, Partition, Record

PAYMENTS = [payment for sample in SAMPLES for payment in read_payments(sample)]
DECODER = EnvelopeDecoder(DecodingSettings(needs_sequence=True))
SEED = 5
PARTS = ("PAIN_001", "PAIN_001_PAYMENT_INSTRUCTION", "PAIN_001_PAYMENT_TRANSACTION")


def units(count: int = 200, **fields) -> list[SimulatedUnit]:
    plan = Plan(**({"units": count, "seed": SEED, "numbering": Numbering.MIXED} | fields))
    return [simulate_unit(plan, PAYMENTS, number) for number in range(count)]


UNITS = units()


def decode(unit: SimulatedUnit) -> list[DataEnvelope]:
    origin = Origin(Partition("in", 0), 0)
    decoded = [DECODER.decode(Record(origin, each.value, headers=each.headers)) for each in unit.envelopes]
    assert all(isinstance(each, DataEnvelope) for each in decoded), decoded
    return decoded


def test_every_envelope_is_decoded_to_what_is_expected_of_it():
    for unit in UNITS:
        for decoded, simulated in zip(decode(unit), unit.envelopes, strict=True):
            expected = simulated.expected
            assert (decoded.unit, decoded.flow, decoded.sequence) == (unit.expected.unit, expected.flow, expected.sequence)
            assert decoded.envelope_id == expected.envelope_id
            assert tuple(each.event_name for each in decoded.process_objects) == tuple(each.event for each in expected.processes)
            assert tuple(each.object_type for each in decoded.mds_objects) == expected.parts
            assert tuple(each.key for each in decoded.custom_objects) == expected.custom
            assert tuple(each.name for each in decoded.pds_objects) == expected.pds


def test_envelope_ids_are_unique_within_a_unit():
    for unit in UNITS:
        ids = [each.expected.envelope_id for each in unit.envelopes]
        assert len(set(ids)) == len(ids)


def test_unit_ids_contain_the_seed():
    assert {unit.expected.unit.split("-")[1] for unit in units(5, seed=4711)} == {"4711"}


def test_each_part_travels_once_mostly_all_in_the_first_envelope():
    for unit in UNITS:
        assert sorted(part for each in unit.envelopes for part in each.expected.parts) == sorted(PARTS)
    whole = sum(unit.envelopes[0].expected.parts == PARTS for unit in UNITS)
    assert 0.7 * len(UNITS) < whole < len(UNITS)


def test_the_references_are_those_of_the_parts():
    for unit in UNITS:
        bodies = {each.object_type: msgspec.json.decode(each.body) for one in decode(unit) for each in one.mds_objects}
        assert bodies[PARTS[0]]["GrpHdr"]["MsgId"] == unit.expected.message_id
        assert bodies[PARTS[1]]["PmtInfId"] == unit.expected.payment_information_id
        assert bodies[PARTS[2]]["PmtId"]["EndToEndId"] == unit.expected.end_to_end_id


def test_no_two_copies_and_no_two_runs_have_a_reference_in_common():
    first = [unit.expected.end_to_end_id for unit in UNITS]
    assert first[:2] == [f"GEHALT-03-P0001-{SEED}", f"GEHALT-03-P0002-{SEED}"]
    ids = [each for each in first if each != "NOTPROVIDED"]
    assert len(set(ids)) == len(ids)
    assert all(len(each or "") <= 35 for each in ids)
    messages, others = ({each.expected.message_id for each in made} for made in (UNITS, units(len(UNITS), seed=SEED + 1)))
    assert messages.isdisjoint(others)


def test_long_references_that_differ_at_their_ends_still_do():
    named = [msgspec.json.encode({"PmtId": {"EndToEndId": f"{'x' * 34}{end}"}}) for end in "ab"]
    payments = [msgspec.structs.replace(PAYMENTS[0], transaction=each) for each in named]
    ids = {simulate_unit(Plan(units=2, seed=1), payments, number).expected.end_to_end_id for number in range(2)}
    assert len(ids) == 2
    assert all(len(each or "") == 35 for each in ids)


def test_every_uetr_is_a_random_uuid_and_comes_once():
    bodies = [msgspec.json.decode(each.body) for unit in UNITS for one in decode(unit) for each in one.mds_objects]
    uetrs = [body["PmtId"]["UETR"] for body in bodies if "UETR" in body.get("PmtId", {})]
    assert len(uetrs) == len(set(uetrs)) > 100
    assert all(UUID(each).version == 4 for each in uetrs)


def test_a_shared_numbering_counts_over_all_flows_and_a_separate_one_per_flow():
    for unit in UNITS:
        envelopes = [each.expected for each in unit.envelopes]
        if unit.expected.numbering == "shared":
            assert [each.sequence for each in envelopes] == list(range(1, len(envelopes) + 1))
        for flow in {each.flow for each in envelopes} if unit.expected.numbering == "separate" else ():
            own = [each.sequence for each in envelopes if each.flow == flow]
            assert own == list(range(1, len(own) + 1))
    assert {unit.expected.numbering for unit in UNITS} == {"shared", "separate"}


def test_notification_ids_are_those_of_the_contract_and_only_where_there_is_a_status():
    for unit in UNITS:
        for each in unit.envelopes:
            for index, process in enumerate(each.expected.processes):
                identifier = notification_id(unit.expected.unit, each.expected.envelope_id, index)
                assert process.notification_id == (identifier if process.status else None)


def test_a_rejection_is_expected_with_the_reason_of_its_event_or_else_the_settings():
    for unit in UNITS:
        for decoded, simulated in zip(decode(unit), unit.envelopes, strict=True):
            for stated, expected in zip(decoded.process_objects, simulated.expected.processes, strict=True):
                if expected.event == "PaymentRejected":
                    assert expected.reason == (stated.reason_code or "MS03")


def test_both_schema_versions_and_both_spellings_occur():
    values = b"".join(each.value for unit in UNITS for each in unit.envelopes)
    assert b"PAIN_001_CREDIT_TRANSFER_TRANSACTION" in values
    assert b"PAIN_001_PAYMENT_TRANSACTION" in values
    assert b'"KEY_VALUE"' in values
    assert b'"key":"BusinessData"' in values
    assert {unit.envelopes[0].headers for unit in UNITS} == {(), (("schema-version", b"1"),), (("schema-version", b"2"),)}


@pytest.mark.parametrize("schema", [Schema.ONE, Schema.TWO])
def test_one_schema_version_can_be_asked_for(schema: Schema):
    stated = {value for unit in units(50, schema=schema) for each in unit.envelopes for _, value in each.headers}
    assert stated == {schema.value.encode()}


@pytest.mark.parametrize(("flows", "count"), [(Flows.ONE, 1), (Flows.TWO, 2)])
def test_a_number_of_flows_can_be_asked_for(flows: Flows, count: int):
    made = units(50, flows=flows)
    assert {len({each.expected.flow for each in unit.envelopes}) for unit in made} == {count}


def test_a_unit_depends_on_no_rate():
    assert units(20, losses=0.5, duplicates=0.5, window=1) == units(20)


def test_a_reference_that_no_report_could_quote_is_not_expected():
    long = msgspec.json.encode({"PmtId": {"EndToEndId": "x" * 36}})
    payment = msgspec.structs.replace(PAYMENTS[0], transaction=long)
    assert simulate_unit(Plan(units=1, seed=1), [payment], 0).expected.end_to_end_id is None
