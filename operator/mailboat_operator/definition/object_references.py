"""Names of other objects of the same namespace; no other namespace can be named."""

from __future__ import annotations

from typing import Annotated

from mailboat.frozen import Frozen

from mailboat_operator.definition.fields import Field
from mailboat_operator.definition.forms import NAME


class Reference(Frozen):
    """Another custom resource of the same namespace."""

    name: Annotated[str, Field("Its name.", form=NAME)]


class SecretReference(Frozen):
    """A Secret of the same namespace."""

    name: Annotated[str, Field("Its name.", form=NAME)]


class ConfigMapReference(Frozen):
    """A ConfigMap of the same namespace."""

    name: Annotated[str, Field("Its name.", form=NAME)]
