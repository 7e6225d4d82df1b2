"""The API's description as one page for people.

No script, no external resource, readable in a terminal too.

Made once of the OpenAPI document, so it can't say anything else, and when a client first asks for one of them. Served
at `/api/docs`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final, NamedTuple

PAGE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h2 { margin-top: 3rem; border-bottom: 1px solid #ccc } h3 { margin-top: 2rem; font-family: monospace; font-size: 1rem }
h3 b { display: inline-block; min-width: 4.5rem } code, pre { font-size: .875rem; background: #f4f4f4 }
pre { padding: .75rem; overflow: auto } table { border-collapse: collapse } td, th { text-align: left; padding: .2rem
.75rem .2rem 0; vertical-align: top; border-bottom: 1px solid #eee } summary { cursor: pointer }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } code, pre { background: #2a2a2a } }
"""


class _Texts(NamedTuple):
    """The description as JSON and as a page, as they are sent: answers that clients do not read share the bytes."""

    document: bytes
    page: bytes


class Description:
    """The texts of an API's description, made on demand: they take half a CPU second."""

    def __init__(self, describe: Callable[[], Mapping[str, Any]]) -> None:
        """`describe` makes the OpenAPI document; called once, in the thread of the first request."""
        self._describe = describe
        self._lock = threading.Lock()
        self._texts: _Texts | None = None

    @property
    def is_made(self) -> bool:
        """Whether a client has asked for it."""
        return self._texts is not None

    def texts(self) -> _Texts:
        """Both texts; from any thread."""
        with self._lock:  # clients without a token that ask at the same time cost one description
            if self._texts is None:
                document = self._describe()
                text = json.dumps(document, ensure_ascii=False)
                self._texts = _Texts(text.encode(), reference_page(document).encode())
            return self._texts


def link_page(links: Iterable[tuple[str, str]]) -> str:
    """The page at `/`: what an agent serves, as paths with their meaning."""
    rows = "".join(
        f'<tr><td><a href="{escape(path)}">{escape(path)}</a><td>{_inline(text)}</tr>' for path, text in links
    )
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Mailboat agent</title>'
    return f"{head}<style>{_STYLE}</style><h1>Mailboat agent</h1><table>{rows}</table></html>"


def reference_page(document: Mapping[str, Any]) -> str:
    """The page of an OpenAPI document."""
    return "\n".join(_page(document))


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    info = document["info"]
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])} API</title>'
    yield f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
    yield f"<h1>{escape(info['title'])} API {escape(info['version'])}</h1><p>{escape(info['summary'])}</p>"
    yield from map(_paragraph, info["description"].split("\n\n"))
    yield '<p>The same for programs: <a href="/api/openapi.json">openapi.json</a> (OpenAPI 3.1).</p>'
    for tag in document["tags"]:
        yield f'<h2 id="{escape(tag["name"])}">{escape(tag["name"].capitalize())}</h2>{_paragraph(tag["description"])}'
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation.get("tags", ()):
                    answers = {status: _resolved(document, one) for status, one in operation["responses"].items()}
                    yield from _operation(method, path, {**operation, "responses": answers})
    yield '<h2 id="records">Records</h2>'
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from _record(name, schema)
    yield "</html>"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3><b>{method.upper()}</b> {escape(path)}</h3><p><strong>{escape(operation['summary'])}.</strong></p>"
    yield from map(_paragraph, operation.get("description", "").split("\n\n"))
    rows = [_parameter(parameter) for parameter in operation.get("parameters", ())]
    if rows:
        yield f"<table><tr><th>parameter<th>in<th>type<th>meaning</tr>{''.join(rows)}</table>"
    for media, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body ({escape(media)}): {_type_of(body['schema'])}</p>"
    yield "<details><summary>Answers</summary><table>"
    for status, answer in operation["responses"].items():
        yield f"<tr><th>{status}<td>{_inline(answer['description'])}<td>{_types_of(answer)}</tr>"
    yield "</table>"
    for answer in operation["responses"].values():
        example = answer.get("content", {}).get("application/json", {}).get("example")
        if example is not None:
            yield f"<pre>{escape(json.dumps(example, indent=2, ensure_ascii=False))}</pre>"
    yield "</details>"


def _resolved(document: Mapping[str, Any], answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer, also where it is written down once for all."""
    name = answer.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = document["components"]["responses"][name] if name else answer
    return found


def _parameter(one: Mapping[str, Any]) -> str:
    name = f"<code>{escape(one['name'])}</code>" + ("" if one.get("required") else " (optional)")
    return f"<tr><td>{name}<td>{one['in']}<td>{_type_of(one['schema'])}<td>{_inline(one.get('description', ''))}</tr>"


def _record(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<h3 id="record-{escape(name)}">{escape(name)}</h3>{_paragraph(schema.get("description", ""))}<table>'
    for member, inner in schema.get("properties", {}).items():
        text = _inline(inner.get("description", ""))
        yield f"<tr><td><code>{escape(member)}</code><td>{_type_of(inner)}<td>{text}</tr>"
    yield "</table>"


def _types_of(answer: Mapping[str, Any]) -> str:
    return ", ".join(_type_of(body.get("schema", {})) for body in answer.get("content", {}).values())


def _type_of(schema: Mapping[str, Any]) -> str:
    """A type in a few words, with a link where it is a record."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#record-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_type_of, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type_of(schema['items'])}" if "items" in schema else "list"
    return escape(str(schema.get("type", "any")))


def _paragraph(text: str) -> str:
    return f"<p>{_inline(text)}</p>" if text.strip() else ""


def _inline(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
