"""Makes the pictures of the console in docs anew: `PYTHONPATH=tests .venv/bin/python -m tests.browser.picture`."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.browser import running_browser
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until
from playwright.sync_api import Page

from servers.receiver import ReceiverServer
from tests.browser.stage import address_of

_DOCS = Path(__file__).parents[2] / "docs"
_SCALE = 0.8
_KEYS = (f"{NOTIFICATION}.http.port=0", f"{NOTIFICATION}.http.metrics.port=0", f"{RESEQUENCER}.stash-timeout=20m")
_PAYMENTS = ("--units", "250", "--rate", "60/s", "--losses", "3%", "--late", "0", "--seed", "1", "--partitions", "4")

_BATCH = ("--units", "5200", "--rate", "400/s", "--losses", "0", "--late", "0", "--garbage", "0", "--seed", "1")
_PAYMENT = """<CdtTrfTxInf><PmtId><EndToEndId>SALARY-{0:05}</EndToEndId></PmtId><Amt><InstdAmt Ccy="EUR">{1}</InstdAmt></Amt>
<Cdtr><Nm>Employee {0}</Nm></Cdtr></CdtTrfTxInf>"""
_MESSAGE = """<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"><CstmrCdtTrfInitn><GrpHdr>
<MsgId>{id}</MsgId><CreDtTm>2026-03-31T05:30:00Z</CreDtTm><NbOfTxs>{count}</NbOfTxs><InitgPty><Nm>{party}</Nm></InitgPty></GrpHdr>
<PmtInf><PmtInfId>{id}-1</PmtInfId><PmtMtd>TRF</PmtMtd><ReqdExctnDt><Dt>2026-03-31</Dt></ReqdExctnDt>
<Dbtr><Nm>{party}</Nm></Dbtr>{payments}</PmtInf></CstmrCdtTrfInitn></Document>"""
_MESSAGES = (
    ("RENTS-04", "Wohnbau eG", 150),
    ("REFUNDS-17", "Versand AG", 50),
    ("SALARIES-2026-03", "Staatskanzlei Musterland", 5_000),
)
"""Message, initiating party and payments; the batch is the last."""


def main() -> None:
    _make_waiting_and_delivery()
    _make_groups()


def _make_groups() -> None:
    """Take the page of groups in the midst of a batch of 5 000 payments."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        files = [directory / f"{id_}.xml" for id_, _, _ in _MESSAGES]
        for file, (id_, party, count) in zip(files, _MESSAGES, strict=True):
            payments = "".join(_PAYMENT.format(number, 2_000 + number % 700) for number in range(count))
            file.write_text(_MESSAGE.format(id=id_, party=party, count=count, payments=payments))
        service = OperatedService(directory, *_KEYS, f"{NOTIFICATION}.aggregation.enabled=true")
        try:
            service.verb("start")
            with ThreadPoolExecutor(1) as threads:
                sending = threads.submit(service.verb, "simulate", *_BATCH, "--pain001", *map(str, files), seconds=600)
                with running_browser() as browser:
                    page = browser.new_page(device_scale_factor=_SCALE, color_scheme="light")
                    _take_groups(page, address_of(service))
                sending.result()
        finally:
            service.verb("stop")


def _take_groups(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1250, "height": 790})
    wait_until(lambda: page.goto(f"{address}/groups") and page.locator("tbody tr").count() >= len(_MESSAGES), "groups", 120)
    # No more loading: the page follows by itself.
    wait_until(lambda: 2_000 < _final_of_batch(page) < 4_500, "the batch is half through", 300)
    page.screenshot(path=_DOCS / "groups.png")


def _final_of_batch(page: Page) -> int:
    (row,) = (each.inner_text() for each in page.locator("tbody tr").all() if _MESSAGES[-1][0] in each.inner_text())
    return int("".join(filter(str.isdigit, row.split(" final")[0].split("\t")[-1])))


def _make_waiting_and_delivery() -> None:
    with tempfile.TemporaryDirectory() as directory:
        receiver = ReceiverServer(Path(directory) / "receiver").start()
        tracker = f'{{ url = "{receiver.url}", live = false, rate = 60/s, suspension.when.body = "currently suspended" }}'
        service = OperatedService(Path(directory), *_KEYS, f"{NOTIFICATION}.delivery.receivers.tracker={tracker}")
        try:
            service.verb("start")
            service.verb("simulate", *_PAYMENTS, seconds=300)
            service.verb("delivery", "start", "monday", "tracker", str(service.out_directory / "notifications.jsonl"))
            with running_browser() as browser:
                page = browser.new_page(device_scale_factor=_SCALE, color_scheme="light")
                _take_waiting(page, address_of(service))
                receiver.behave(asleep=True)
                _take_delivery(page, address_of(service))
        finally:
            service.verb("stop")
            receiver.stop()


def _take_waiting(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1250, "height": 612})
    wait_until(lambda: page.goto(f"{address}/waiting") and page.locator("tbody th.id").count(), "something waits")
    page.screenshot(path=_DOCS / "console.png")


def _take_delivery(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1250, "height": 560})
    wait_until(lambda: page.goto(f"{address}/delivery") and "currently suspended" in page.inner_text("main"), "the gate is shut")
    page.screenshot(path=_DOCS / "delivery.png")


if __name__ == "__main__":
    main()
