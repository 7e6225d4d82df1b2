"""The CustomResourceDefinitions: `crds/*.yaml`, one file a kind, written by `tools/generate_crds.py`."""

from __future__ import annotations

from typing import Any

import yaml

from mailboat_operator.definition import CATEGORY, GROUP, VERSION
from mailboat_operator.definition.crd_schema import spec_schema, status_schema, validations
from mailboat_operator.definition.kind import MESSAGE, Kind, PrinterColumn
from mailboat_operator.kinds.registry import KINDS

_HEAD = "# Generated from mailboat_operator/kinds by `make generate`; do not edit.\n"


def definition(kind: Kind[Any]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "mailboat"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short_name],
                "categories": [CATEGORY],
            },
            "versions": [_version(kind)],
        },
    }


def files() -> dict[str, str]:
    """Name of each file in `crds/` → its text."""
    return {
        f"{kind.plural}.yaml": _HEAD + yaml.safe_dump(definition(kind), sort_keys=False, width=120, allow_unicode=True)
        for kind in KINDS
    }


def _version(kind: Kind[Any]) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if kind.is_scaled:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": subresources,
        "additionalPrinterColumns": [_column(column) for column in (*kind.columns, MESSAGE)],
        "schema": {"openAPIV3Schema": _whole(kind)},
    }


def _column(column: PrinterColumn) -> dict[str, Any]:
    shown = {"name": column.name, "type": column.type, "jsonPath": column.path, "description": column.text}
    return {**shown, "priority": 1} if column.is_wide else shown


def _whole(kind: Kind[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "description": kind.text,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "The group and version that the object is written in."},
            "kind": {"type": "string", "description": "The kind of the object."},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},  # no other member is allowed
            "spec": spec_schema(kind.spec),
            "status": status_schema(kind.status),
        },
    }
    return {**schema, "x-kubernetes-validations": validations(kind.rules)} if kind.rules else schema
