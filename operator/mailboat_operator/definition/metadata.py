"""The metadata of every object, as far as the operator uses it, and how objects name each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Annotated

from mailboat.frozen import Frozen

from mailboat_operator.definition.fields import Field
from mailboat_operator.definition.forms import NAME


class Metadata(Frozen):
    """The metadata of an object.

    Attributes:
        name: Unique among the objects of its kind and namespace.
        namespace: Where it lives.
        uid: Of this very object: one of the same name that was made later has another. Empty before it is stored.
        generation: Counts changes of the spec.
        created_at: When it was made.
        deleted_at: When its deletion was asked for; None as long as it is wanted.
        labels: Its labels.
        annotations: Its annotations.
        finalizers: Controllers that have to act before it is deleted.
        owner_uid: Uid of the object that controls it; empty if none does.
    """

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    created_at: datetime | None = None
    deleted_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_uid: str = ""

    @property
    def is_deleted(self) -> bool:
        """Whether its deletion was asked for."""
        return self.deleted_at is not None


class Reference(Frozen):
    """Another object of the same namespace; no other namespace can be named."""

    name: Annotated[str, Field("Its name.", form=NAME)]
