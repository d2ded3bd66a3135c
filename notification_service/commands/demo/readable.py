"""Reports as people read them: as XML with one element per line."""

from xml.etree.ElementTree import indent, register_namespace, tostring

import msgspec
from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped] # defusedxml ships no types.

from notification_service.payments.iso20022.report_xml import render_report_xml


def readable(value: bytes, target_type: str) -> str:
    """Return the report as XML, for either target type of the service; the output of a user's own target type is unchanged."""
    if target_type == "report-xml":
        return _indented(value.decode())
    if target_type not in ("report", "produced-report"):
        return value.decode("utf-8", "replace")
    document = msgspec.json.decode(value)
    return _indented(render_report_xml(document["report"] if target_type == "produced-report" else document))


def _indented(xml: str) -> str:
    """Return the document with one element per line. The notification itself has no line breaks."""
    root = fromstring(xml.encode())
    register_namespace("", root.tag.removeprefix("{").partition("}")[0])
    indent(root)
    return tostring(root, encoding="unicode")
