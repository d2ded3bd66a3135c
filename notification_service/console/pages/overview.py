"""The first page: whether all is well, and if not, what is unavailable since when."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.console.access.roles import route
from notification_service.console.context import Console
from notification_service.console.history_chart import history_chart
from notification_service.console.pages.partitions import partition_table
from notification_service.status.service_report import NOT_RUNNING, STALE

_HOURS_MS = 6 * 3_600_000


def overview_routes(console: Console) -> list[Route]:
    def overview(request: Request) -> Response:
        service, now = console.sources.find_report(), console.sources.clock.now()
        is_live = service is not None and service.state not in (NOT_RUNNING, STALE)
        # What a worker reported last tells nothing of the records that came since.
        table = None if is_live else partition_table(console, service)
        lags = [each.lag for each in (table.rows if table else service.whole.partitions if service else ())]
        lag = sum(each for each in lags if each is not None) if lags and None not in lags else None
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
            is_live=is_live,
            table=table,
            lag=lag,
            lag_unit=console.sources.lag_unit,
            facts_unit=console.sources.facts_unit,
            speed=console.history.speed(lag or 0) if is_live else None,
            new_dead_letters=console.sampler.new_dead_letters,
            open_proposals=console.sampler.open_proposals,
            proposed_edits=console.sampler.proposed_edits,
            groups=None if console.groups is None else console.groups.watch.glance(),
            stores=() if console.groups is None else console.groups.source.find_status().stores,
            has_groups=console.groups is not None,
        )

    return [route("/", overview, name="overview")]
