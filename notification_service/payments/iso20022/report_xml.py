"""A status report as an XML document."""

from collections.abc import Mapping
from typing import Any

from notification_service.payments.iso20022.pain002_schema import NAMESPACE

_VALUE = "value"


def render_report_xml(report: Mapping[str, Any]) -> str:
    """Render a decoded ISO-tag JSON report as an XML document with its declaration. Its texts must be valid in XML."""
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n<Document xmlns="', NAMESPACE, '">']
    _render_children(report, parts)
    parts.append("</Document>\n")
    return "".join(parts)


def _render_children(children: Mapping[str, Any], parts: list[str]) -> None:
    for name, value in children.items():
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, str):
                parts.append(f"<{name}>{_escaped(each)}</{name}>")
            elif _VALUE in each:
                attributes = "".join(f' {key}="{_escaped(text)}"' for key, text in each.items() if key != _VALUE)
                parts.append(f"<{name}{attributes}>{_escaped(each[_VALUE])}</{name}>")
            else:
                parts.append(f"<{name}>")
                _render_children(each, parts)
                parts.append(f"</{name}>")


def _escaped(text: str) -> str:
    """Escape a text or attribute. A bare carriage return would be read back as a line feed (XML 1.0, section 2.11)."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace('"', "&quot;").replace("\r", "&#13;")
