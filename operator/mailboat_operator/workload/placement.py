"""Which nodes pods may run on: the scheduling fields of pods, in the shape that Kubernetes gives them.

Label selectors of other pods have no namespace: they match pods of the object's own namespace. Without a selector a
topology spread constraint counts the object's own pods, since they are what it is about.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, ClassVar

from mailboat.frozen import Frozen

from mailboat_operator.definition.fields import Field, Rule
from mailboat_operator.definition.forms import LABEL_KEY, NAME
from mailboat_operator.definition.metadata import Reference

_FEW = 8
"""Entries of each list of terms: enough for people, and within the cost that the API server allows for rules."""
_WEIGHT = 100
_HAS_VALUES = "(has(self.values) && size(self.values) > 0)"


class TolerationOperator(enum.StrEnum):
    """How a taint's value is compared."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class TaintEffect(enum.StrEnum):
    """What a taint does to pods."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(Frozen):
    """A tolerated taint of nodes."""

    key: Annotated[str | None, Field("Key of the taint. Default: every taint.", form=LABEL_KEY)] = None
    operator: Annotated[TolerationOperator, Field("Comparison operator.")] = TolerationOperator.EQUAL
    value: Annotated[str | None, Field("Its value.", max_length=63)] = None
    effect: Annotated[TaintEffect | None, Field("Effect of the taint. Default: every effect.")] = None


class NodeOperator(enum.StrEnum):
    """How a node's label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


class LabelOperator(enum.StrEnum):
    """How a pod's label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class NodeRequirement(Frozen):
    """A requirement on a label of nodes."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.operator in ['Exists', 'DoesNotExist'] ? !{_HAS_VALUES} : {_HAS_VALUES}",
            "values are required with In, NotIn, Gt and Lt, and not allowed with Exists and DoesNotExist",
            ".values",
            lambda one: (one.operator in {NodeOperator.EXISTS, NodeOperator.DOES_NOT_EXIST}) != bool(one.values),
        ),
    )

    key: Annotated[str, Field("Name of the label.", form=LABEL_KEY)]
    operator: Annotated[NodeOperator, Field("Comparison operator.")]
    values: Annotated[tuple[str, ...], Field("Values to compare with.", max_length=63, max_items=_FEW)] = ()


class NodeTerm(Frozen):
    """Requirements that a node must meet together."""

    match_expressions: Annotated[tuple[NodeRequirement, ...], Field("The requirements.", min_items=1, max_items=_FEW)]


class NodeSelector(Frozen):
    """Nodes that meet at least one of several terms."""

    node_selector_terms: Annotated[tuple[NodeTerm, ...], Field("The terms.", min_items=1, max_items=_FEW)]


class NodePreference(Frozen):
    """Nodes that are preferred."""

    weight: Annotated[int, Field("Weight.", minimum=1, maximum=_WEIGHT)]
    preference: Annotated[NodeTerm, Field("The nodes.")]


class NodeAffinity(Frozen):
    """Nodes by their labels."""

    required: Annotated[
        NodeSelector | None, Field("Nodes that are allowed.", name="requiredDuringSchedulingIgnoredDuringExecution")
    ] = None
    preferred: Annotated[
        tuple[NodePreference, ...],
        Field("Nodes that are preferred.", name="preferredDuringSchedulingIgnoredDuringExecution", max_items=_FEW),
    ] = ()


class LabelRequirement(Frozen):
    """A requirement on a label of pods."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.operator in ['Exists', 'DoesNotExist'] ? !{_HAS_VALUES} : {_HAS_VALUES}",
            "values are required with In and NotIn, and not allowed with Exists and DoesNotExist",
            ".values",
            lambda one: (one.operator in {LabelOperator.EXISTS, LabelOperator.DOES_NOT_EXIST}) != bool(one.values),
        ),
    )

    key: Annotated[str, Field("Name of the label.", form=LABEL_KEY)]
    operator: Annotated[LabelOperator, Field("Comparison operator.")]
    values: Annotated[tuple[str, ...], Field("Values to compare with.", max_length=63, max_items=_FEW)] = ()


class LabelSelector(Frozen):
    """Pods of the same namespace by their labels."""

    match_labels: Annotated[
        Mapping[str, str], Field("Labels that pods must have.", form=LABEL_KEY, max_length=63, max_items=_FEW)
    ] = field(default_factory=dict)
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field("Requirements.", max_items=_FEW)] = ()


class PodTerm(Frozen):
    """Places where certain pods run."""

    topology_key: Annotated[
        str, Field("Label of nodes; nodes with the same value are one place, such as a zone.", form=LABEL_KEY)
    ]
    label_selector: Annotated[LabelSelector, Field("The pods.")]


class PodPreference(Frozen):
    """Places that are preferred."""

    weight: Annotated[int, Field("Weight.", minimum=1, maximum=_WEIGHT)]
    pod_affinity_term: Annotated[PodTerm, Field("The places.")]


class PodAffinity(Frozen):
    """Places by the pods that run there."""

    required: Annotated[
        tuple[PodTerm, ...],
        Field("Required rules.", name="requiredDuringSchedulingIgnoredDuringExecution", max_items=_FEW),
    ] = ()
    preferred: Annotated[
        tuple[PodPreference, ...],
        Field("Preferred rules.", name="preferredDuringSchedulingIgnoredDuringExecution", max_items=_FEW),
    ] = ()


class Affinity(Frozen):
    """Affinity to nodes and other pods."""

    node_affinity: Annotated[NodeAffinity | None, Field("Nodes by their labels.")] = None
    pod_affinity: Annotated[PodAffinity | None, Field("Near these pods.")] = None
    pod_anti_affinity: Annotated[PodAffinity | None, Field("Away from these pods.")] = None


class Unsatisfiable(enum.StrEnum):
    """Treatment of a pod for which no node satisfies a constraint."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class SpreadConstraint(Frozen):
    """How pods are spread over places."""

    topology_key: Annotated[
        str, Field("Label of nodes; nodes with the same value are one place, such as a zone.", form=LABEL_KEY)
    ]
    max_skew: Annotated[
        int, Field("Maximum difference in pods between two values of the label.", minimum=1, maximum=1000)
    ] = 1
    when_unsatisfiable: Annotated[
        Unsatisfiable, Field("Treatment of a pod for which no node satisfies the constraint.")
    ] = Unsatisfiable.SCHEDULE_ANYWAY
    label_selector: Annotated[LabelSelector | None, Field("Pods that count. Default: the object's own.")] = None


class PodSecurity(Frozen):
    """Ids under which a pod runs. The rest of the security context is the restricted profile's."""

    run_as_user: Annotated[
        int | None, Field("User id of all containers. Default: the image's.", minimum=1, maximum=2**31 - 1)
    ] = None
    run_as_group: Annotated[int | None, Field("Group id of all containers.", minimum=1, maximum=2**31 - 1)] = None
    fs_group: Annotated[
        int | None, Field("Group that owns the volumes. Default: 65532.", minimum=1, maximum=2**31 - 1)
    ] = None
    supplemental_groups: Annotated[
        tuple[int, ...], Field("Supplementary groups of all containers.", minimum=1, maximum=2**31 - 1, max_items=16)
    ] = ()


class Placement(Frozen):
    """Security context and placement of the pods."""

    image_pull_secrets: Annotated[tuple[Reference, ...], Field("Secrets to pull images with.", max_items=8)] = ()
    node_selector: Annotated[
        Mapping[str, str], Field("Labels that nodes must have.", form=LABEL_KEY, max_length=63, max_items=32)
    ] = field(default_factory=dict)
    tolerations: Annotated[tuple[Toleration, ...], Field("Tolerated taints.", max_items=32)] = ()
    affinity: Annotated[Affinity | None, Field("Affinity to nodes and other pods.")] = None
    topology_spread_constraints: Annotated[
        tuple[SpreadConstraint, ...],
        Field("How pods are spread. Default: members of a pool over nodes as far as possible.", max_items=_FEW),
    ] = ()
    priority_class_name: Annotated[str | None, Field("Their priority class.", form=NAME)] = None
    security_context: Annotated[PodSecurity, Field("Security context of the pods.")] = field(
        default_factory=PodSecurity
    )
