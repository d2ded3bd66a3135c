"""The first page: whether all is well, and if not, what is unavailable since when."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.access.roles import route
from console.context import Console


def overview_routes(console: Console) -> list[Route]:
    def overview(request: Request) -> Response:
        return console.page(request, "overview.html", service=console.sources.find_report(), facts=console.sources.facts)

    return [route("/", overview, name="overview")]
