"""All operations of the API, and its description."""

from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.console.api.dead_letters import dead_letter_operations
from notification_service.console.api.delivery import delivery_operations
from notification_service.console.api.groups import group_operations
from notification_service.console.api.operation import JSON, Operation, route_of
from notification_service.console.api.orders import order_operations
from notification_service.console.api.partitions import partition_operations
from notification_service.console.api.regions import region_operations
from notification_service.console.api.service import service_operations
from notification_service.console.api.topic_delivery import topic_delivery_operations
from notification_service.console.api.units import unit_operations
from notification_service.console.context import Console

DESCRIPTION = Path(__file__).parent / "openapi.json"


def operations_of(console: Console) -> list[Operation]:
    def description(request: Request, query: msgspec.Struct) -> Response:
        del request, query
        return Response(DESCRIPTION.read_bytes(), media_type=JSON)

    return [
        *service_operations(console),
        *unit_operations(console),
        *dead_letter_operations(console),
        *partition_operations(console),
        *region_operations(console),
        *order_operations(console),
        *delivery_operations(console),
        *topic_delivery_operations(console),
        *group_operations(console),
        Operation("/openapi.json", "description", description, JSON, "This description of the API (OpenAPI 3.1)"),
    ]


def api_routes(console: Console) -> list[Route]:
    return [route_of(console, each) for each in operations_of(console)]
