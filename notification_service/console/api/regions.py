"""The regions of the workers: state, durations and participants, and the reset."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request

from notification_service.console.api.operation import Operation, change_of
from notification_service.console.context import Console
from notification_service.console.pages.regions import order_reset
from notification_service.status.report import RegionStatus


class RegionAnswer(msgspec.Struct, frozen=True):
    """The region of the worker in `slot`; `state` is the worker's. `region` is null until the worker has told it."""

    slot: int
    state: str
    region: RegionStatus | None


class RegionsAnswer(msgspec.Struct, frozen=True):
    """The regions of the workers of this machine by slot; none if no service has reported yet."""

    regions: tuple[RegionAnswer, ...]


class OneRegion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The region of the worker in this slot. With `force` it is reset although it has not failed."""

    slot: Annotated[int, Meta(ge=0, le=999)]
    force: bool = False


class ResetOrdered(msgspec.Struct, frozen=True):
    """The worker in this slot was told to reset its region. What came of it is `answer` of the region."""

    slot: int


def region_operations(console: Console) -> list[Operation]:
    def regions(request: Request, query: msgspec.Struct) -> RegionsAnswer:
        del request, query
        found = console.sources.find_report()
        workers = () if found is None else found.workers
        return RegionsAnswer(tuple(RegionAnswer(report.slot, state, report.region) for state, report in workers))

    def reset(request: Request, one: OneRegion) -> ResetOrdered:
        order_reset(console, request, one.slot, is_forced=one.force)
        return ResetOrdered(one.slot)

    return [
        Operation("/regions", "regions", regions, RegionsAnswer, "The regions of the workers of this machine"),
        change_of(
            "/regions/reset", "reset-region", reset, ResetOrdered, "Let a region go back to its last checkpoint", OneRegion
        ),
    ]
