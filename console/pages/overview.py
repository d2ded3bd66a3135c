"""The first page: whether all is well, and if not, what is unavailable since when."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.access.roles import route
from console.context import Console
from console.history_chart import history_chart

_HOURS_MS = 6 * 3_600_000


def overview_routes(console: Console) -> list[Route]:
    def overview(request: Request) -> Response:
        service, now = console.sources.find_report(), console.sources.clock.now()
        lag = sum(each.lag or 0 for each in service.whole.partitions) if service else 0
        minutes = console.history.minutes(now - _HOURS_MS)
        charts = [
            history_chart(title, minutes, column, now - _HOURS_MS, now)
            for title, column in (("Records read per second", "records"), ("Notifications sent per second", "notifications"))
        ]
        return console.page(
            request,
            "overview.html",
            service=service,
            peers=console.peers.look(),
            facts=console.sources.facts,
            charts=charts,
            lag=lag,
            pace=console.history.pace(lag),
            new_dead_letters=console.sampler.new_dead_letters,
        )

    return [route("/", overview, name="overview")]
