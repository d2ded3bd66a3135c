"""The application: all routes of the console, behind the access layer."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from notification_service.console.access.identity import Authenticator
from notification_service.console.access.layer import AccessLayer, Limits
from notification_service.console.api.routes import api_routes
from notification_service.console.context import Console
from notification_service.console.events import event_routes
from notification_service.console.pages.dead_letters import dead_letter_routes
from notification_service.console.pages.delivery import delivery_routes
from notification_service.console.pages.errors import error_handlers
from notification_service.console.pages.groups import group_routes
from notification_service.console.pages.orders import order_routes
from notification_service.console.pages.overview import overview_routes
from notification_service.console.pages.partitions import partition_routes
from notification_service.console.pages.regions import region_routes
from notification_service.console.pages.unit import unit_routes
from notification_service.console.pages.waiting import waiting_routes
from notification_service.console.pages.workers import worker_routes

STATIC = Path(__file__).parent / "static"


def routes_of(console: Console) -> list[Route]:
    """Return every route, each with the role that it needs (`notification_service.console.access.roles`)."""
    return [
        *overview_routes(console),
        *waiting_routes(console),
        *unit_routes(console),
        *dead_letter_routes(console),
        *order_routes(console),
        *partition_routes(console),
        *delivery_routes(console),
        *group_routes(console),
        *region_routes(console),
        *worker_routes(console),
        *event_routes(console),
        *api_routes(console),
    ]


def make_application(console: Console, authenticator: Authenticator, limits: Limits | None = None) -> Starlette:
    """Make the application; nothing is read before the first request."""
    return Starlette(
        routes=[*routes_of(console), Mount("/static", StaticFiles(directory=STATIC), name="static")],
        middleware=[
            Middleware(
                AccessLayer,
                authenticator=authenticator,
                passed=console.sources.steady_clock.passed,
                limits=limits or Limits(),
                proxies=console.settings.proxy.addresses,
            )
        ],
        exception_handlers=error_handlers(console),
    )
