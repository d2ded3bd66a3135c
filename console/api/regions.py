"""The regions of the workers, and their reset."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request

from console.api.operation import Operation, change_of
from console.context import Console
from console.pages.regions import order_reset
from guardian.region import RegionStatus
from status.report import ParticipantStatus


class RegionAnswer(msgspec.Struct, frozen=True):
    """The region of the worker in a slot, and its participants. `region` is null until the worker has reported one."""

    slot: int
    region: RegionStatus | None
    participants: tuple[ParticipantStatus, ...]


class RegionsAnswer(msgspec.Struct, frozen=True):
    """The regions of this machine's workers by slot, as they last reported; none if no service has reported yet."""

    regions: tuple[RegionAnswer, ...]


class OneRegion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The region of the worker in this slot. With `force` it is also reset while it has not failed."""

    slot: Annotated[int, Meta(ge=0, le=999)]
    force: bool = False


class ResetOrdered(msgspec.Struct, frozen=True):
    """The worker in this slot was ordered to reset its region; `ordered` in its next report says what became of that."""

    slot: int


def region_operations(console: Console) -> list[Operation]:
    def regions(request: Request, query: msgspec.Struct) -> RegionsAnswer:
        del request, query
        service = console.sources.find_report()
        workers = () if service is None else service.workers
        return RegionsAnswer(tuple(RegionAnswer(each.slot, each.region, each.participants) for _, each in workers))

    def reset(request: Request, one: OneRegion) -> ResetOrdered:
        order_reset(console, request, one.slot, is_forced=one.force)
        return ResetOrdered(one.slot)

    return [
        Operation("/regions", "regions", regions, RegionsAnswer, "The regions of the workers"),
        change_of("/regions/reset", "reset-region", reset, ResetOrdered, "Reset a region to its last checkpoint", OneRegion),
    ]
