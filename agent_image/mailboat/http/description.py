"""The API's description (OpenAPI 3.1): what the framework makes of the routes, with what it can't know.

The records' docstrings say what every member means, so they are taken apart here; access and the problem document are
added once for all operations. Called by `application.py` and by `make docs`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from mailboat.api.problems import MEDIA_TYPE, Problem
from mailboat.http.examples import ORDERS
from mailboat.http.ports import problem_response

_TAGS: Final = {
    "status": "Publishers, subscribers and their positions.",
    "distributions": "Publish requests and their outcome.",
    "builds": "Bulk builds: published packages, and which subscribers have them.",
    "queues": "Pending packages of subscribers, and commands to drop them.",
    "commands": "Outcome of commands.",
    "errors": "Failed packages, and redriving them.",
    "jobs": "Work for any free worker: jobs, their queues, and the workers' own requests.",
    "journal": "Content of the log.",
    "storage": "Blobs, their sweep, and snapshots of targets.",
    "process": "Probes and metrics of this process.",
    "sling": "Resources of Apache Sling Content Distribution, for existing clients.",
}

_DESCRIPTION: Final = """\
Every answer that is not a success is a problem document (RFC 9457, `application/problem+json`); `type` is
`urn:mailboat:error:NAME`, which `mailboat explain NAME` explains.

With tokens in the agent's configuration, send one as `Authorization: Bearer TOKEN`. Each operation says which verb the
token needs; `admin` allows all. Offsets are whole numbers of up to 63 bits, `*_at` are times (RFC 3339, UTC).
"""
_HOME: Final = "https://github.com/mailboat-dev/mailboat"
_INFO: Final = {
    "contact": {"name": "The Mailboat maintainers", "url": f"{_HOME}/issues"},
    "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
}
_SERVERS: Final = [{"url": "/", "description": "The agent that serves this description."}]
_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of the agent's `http.tokens`."},
    "basic": {"type": "http", "scheme": "basic", "description": "The token as password; the user name is ignored."},
}
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): ")


def describe(app: FastAPI) -> dict[str, Any]:
    """The document."""
    tags = [{"name": name, "description": text} for name, text in _TAGS.items()]
    document: dict[str, Any] = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=_DESCRIPTION,
        routes=app.routes,
        tags=tags,
        servers=_SERVERS,
        contact=_INFO["contact"],
        license_info=_INFO["license"],
    )
    components = document.setdefault("components", {})
    components["securitySchemes"] = _SCHEMES
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = TypeAdapter(Problem).json_schema()
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for schema in schemas.values():
        _explain_members(schema)
    for name, example in ORDERS.items():
        schemas[name]["examples"] = [example]
    shared = components.setdefault("responses", {})
    for operation in operations(document):
        _name_verb(operation)
        _trim(operation)
        if "requestBody" in operation:
            operation["responses"]["408"] = problem_response(408)
        _share_problems(operation, shared)
        _lend_examples(operation, schemas)
    return document


def operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every operation of a description."""
    for methods in document["paths"].values():
        yield from methods.values()


def _name_verb(operation: dict[str, Any]) -> None:
    verb = operation.get("x-mailboat-verb")
    if verb is not None:
        operation["description"] = f"{operation.get('description', '').rstrip()}\n\nNeeds the verb `{verb}`."


def _trim(operation: dict[str, Any]) -> None:
    """Take out what the framework makes up of names, and what it says twice."""
    for parameter in operation.get("parameters", ()):
        for said in ("title", "description"):
            parameter["schema"].pop(said, None)
    bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
    for body in bodies:
        for shown in body.get("content", {}).values():
            shown.get("schema", {}).pop("title", None)


def _share_problems(operation: dict[str, Any], shared: dict[str, Any]) -> None:
    """Write problems that look the same everywhere down once."""
    for status, answer in operation["responses"].items():
        if set(answer.get("content", ())) == {MEDIA_TYPE}:
            shared[f"Problem{status}"] = answer
            operation["responses"][status] = {"$ref": f"#/components/responses/Problem{status}"}


def _lend_examples(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> None:
    """Give the records of an answer the examples that the answer has of them."""
    for answer in operation["responses"].values():
        shown = answer.get("content", {}).get("application/json", {})
        _lend_example(shown.get("schema", {}), shown.get("example"), schemas)


def _lend_example(schema: Mapping[str, Any], example: Any, schemas: Mapping[str, Any]) -> None:
    for choice in schema.get("anyOf", ()):
        _lend_example(choice, example, schemas)
    if schema.get("type") == "array" and isinstance(example, list | tuple) and example:
        _lend_example(schema.get("items", {}), example[0], schemas)
    if "$ref" in schema and isinstance(example, dict):
        record = schemas[schema["$ref"].rpartition("/")[2]]
        record.setdefault("examples", [example])
        for name, member in record.get("properties", {}).items():
            _lend_example(member, example.get(name), schemas)


def _explain_members(schema: dict[str, Any]) -> None:
    """Give every member the text that the record's docstring has for it."""
    text, _, attributes = inspect.cleandoc(schema.get("description", "")).partition("\n\nAttributes:\n")
    schema["description"] = text
    for member in schema.get("properties", {}).values():
        member.pop("title", None)
    for name, explanation in _attributes(attributes):
        if name in schema.get("properties", {}):
            schema["properties"][name].setdefault("description", explanation)


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    """The members that the section of a docstring explains: a name at four spaces, more lines deeper in."""
    name, lines = "", list[str]()
    for line in [*text.splitlines(), "    end: "]:
        match = _ATTRIBUTE.match(line)
        if match is None:
            lines.append(line.strip())
            continue
        if name:
            yield name, " ".join(filter(None, lines))
        name, lines = match[1], [line[match.end() :].strip()]
