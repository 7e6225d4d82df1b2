"""Schemas of the Kubernetes versions that are supported: what each of them knows of its own kinds.

They come with the module of Kubernetes itself, of which only the schemas are kept, in the cache. A field that a version
does not know is an error here, as for `kubectl apply`; rules in CEL are not part of schemas.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builds import cache_folder, locked, say

VERSIONS = ("v1.30.0", "v1.31.0", "v1.32.0", "v1.33.0", "v1.34.0", "v1.35.0", "v1.36.0")
"""The first release of each minor version that docs/kubernetes.md names: later ones take no field away."""

_MODULE = "k8s.io/kubernetes"
_ANY_OF = {"int-or-string": ["integer", "string"]}
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def schemas_of(version: str) -> Mapping[str, Any]:
    """Kind, as `apps/v1 StatefulSet`, → JSON schema. Raises: CalledProcessError, after Go's own words."""
    definitions = json.loads(_stored(version).read_text())
    return {
        name: {"$ref": f"#/definitions/{key}", "definitions": definitions}
        for key, one in definitions.items()
        for name in one.pop("kinds", ())
    }


def strict(definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Definitions of OpenAPI 2 as JSON schemas that allow no unknown field, each with the kinds that it describes."""
    made = {key: _strict(one) for key, one in definitions.items()}
    made[_QUANTITY] = {"type": ["string", "number"]}
    for key, one in definitions.items():
        kinds = one.get("x-kubernetes-group-version-kind", ())
        made[key]["kinds"] = [
            f"{'/'.join(filter(None, (kind['group'], kind['version'])))} {kind['kind']}" for kind in kinds
        ]
    return made


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: schema[key] for key in ("$ref", "type", "required", "enum") if key in schema}
    if schema.get("format") in _ANY_OF:
        kept["type"] = _ANY_OF[schema["format"]]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            kept[key] = _strict(schema[key])
    if "properties" in schema:
        kept["properties"] = {name: _strict(one) for name, one in schema["properties"].items()}
        kept.setdefault("additionalProperties", False)
    return kept


def _stored(version: str) -> Path:
    file = cache_folder().parent / "kubernetes-schemas" / f"{version}.json"
    with locked(file):
        if not file.exists():
            say(f"downloading the schemas of Kubernetes {version} (once)")
            draft = file.with_name(f"{file.name}.{os.getpid()}")
            draft.write_text(json.dumps(strict(_downloaded(version)["definitions"])))
            draft.replace(file)
    return file


def _downloaded(version: str) -> Any:
    """What the module has; its other 100 MB go again."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GOMODCACHE": folder, "GOFLAGS": "-modcacherw", "GOTOOLCHAIN": "local"}
        command = ["go", "mod", "download", "-json", f"{_MODULE}@{version}"]
        done = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads((Path(json.loads(done.stdout)["Dir"]) / "api/openapi-spec/swagger.json").read_text())


if __name__ == "__main__":
    for one in sys.argv[1:] or VERSIONS[:1]:
        sys.stdout.write(f"{_stored(one)}\n")
