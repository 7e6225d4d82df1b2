"""Names of other objects of the same namespace; no other namespace can be named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mailboat_operator.definition.fields import Field
from mailboat_operator.definition.forms import NAME


@dataclass(frozen=True)
class Reference:
    """Another custom resource of the same namespace."""

    name: Annotated[str, Field("Its name.", form=NAME)]


@dataclass(frozen=True)
class SecretReference:
    """A Secret of the same namespace."""

    name: Annotated[str, Field("Its name.", form=NAME)]


@dataclass(frozen=True)
class ConfigMapReference:
    """A ConfigMap of the same namespace."""

    name: Annotated[str, Field("Its name.", form=NAME)]
