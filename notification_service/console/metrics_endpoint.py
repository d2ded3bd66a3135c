"""`/metrics`, without a login, at an address of its own."""

from collections.abc import Callable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.console.groups.index import GroupTotals
from notification_service.console.groups.watch import Groups
from notification_service.console.prometheus import ServiceCollector
from notification_service.console.sources import ArchiveDistance
from notification_service.status.aggregation import AggregationStatus, BridgeStatus
from notification_service.status.delivery import DeliveryStatus
from notification_service.status.service_report import ServiceReport
from resequencer.record import Partition


def make_metrics_application(
    find_report: Callable[[], ServiceReport | None],
    find_new_dead_letters: Callable[[], Mapping[str, int] | None] = lambda: None,
    find_archive_distances: Callable[[], Mapping[Partition, ArchiveDistance] | None] = lambda: None,
    find_delivery: Callable[[], DeliveryStatus] = DeliveryStatus,
    groups: Groups | None = None,
    find_bridge: Callable[[], BridgeStatus] = BridgeStatus,
) -> Starlette:
    """Make the application; it reads the reports at each scrape, in a thread beside the console's requests."""
    registry = CollectorRegistry(auto_describe=False)

    def find_aggregation() -> tuple[AggregationStatus, GroupTotals | None]:
        return (AggregationStatus(), None) if groups is None else (groups.source.find_status(), groups.watch.glance())

    collector = ServiceCollector(
        find_report, find_new_dead_letters, find_archive_distances, find_delivery, find_aggregation, find_bridge
    )
    registry.register(collector)

    def metrics(request: Request) -> Response:
        del request
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/metrics", metrics)])
