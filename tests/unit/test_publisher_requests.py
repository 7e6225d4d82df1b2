"""What a request may be."""

from __future__ import annotations

import pytest
from mailboat.errors import LimitExceededError, UsageError
from mailboat.model.identifiers import RequestId
from mailboat.model.messages import Action
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.requests import DistributionRequest, add_request, check_request
from mailboat.publisher.publisher import check_source
from mailboat.testing.memory_content import MemorySource

A, B = NodePath("/a"), NodePath("/b")


@pytest.mark.parametrize("action", [Action.ADD, Action.DELETE, Action.INVALIDATE])
def test_a_request_without_paths_is_refused(action: Action) -> None:
    with pytest.raises(UsageError, match=f"{action} needs at least one path"):
        check_request(DistributionRequest(action))


def test_a_test_needs_no_path() -> None:
    check_request(DistributionRequest(Action.TEST))


def test_more_paths_than_the_limit_are_refused_with_the_limit() -> None:
    request = add_request(NodePath(f"/p{number}") for number in range(501))
    with pytest.raises(LimitExceededError, match="501 paths, the limit is 500"):
        check_request(request)
    check_request(request, max_paths=501)


def test_a_path_twice_and_a_deep_path_that_is_not_asked_for_are_refused() -> None:
    with pytest.raises(UsageError, match="names /a twice"):
        check_request(DistributionRequest(Action.ADD, (A, B, A)))
    with pytest.raises(UsageError, match="/b is deep but not among"):
        check_request(DistributionRequest(Action.ADD, (A,), frozenset({B})))


def test_the_root_can_be_published_but_not_deleted() -> None:
    check_request(add_request([ROOT]))
    with pytest.raises(UsageError, match="root can't be deleted"):
        check_request(DistributionRequest(Action.DELETE, (ROOT,)))


def test_add_names_each_path_once_and_all_are_deep_or_none() -> None:
    assert add_request([A, B, A]) == DistributionRequest(Action.ADD, (A, B), frozenset({A, B}))
    assert add_request([A], is_deep=False).deep_paths == frozenset()


def test_an_add_has_a_source_and_nothing_else_has() -> None:
    with pytest.raises(UsageError, match="needs a source"):
        check_source(add_request([A]), None)
    with pytest.raises(UsageError, match="takes no source"):
        check_source(DistributionRequest(Action.DELETE, (A,)), MemorySource())


def test_the_fingerprint_is_of_what_is_asked_for_and_of_nothing_else() -> None:
    request = DistributionRequest(Action.ADD, (A, B), frozenset({A}), RequestId("1"), "me")
    assert request.fingerprint == DistributionRequest(Action.ADD, (B, A), frozenset({A}), RequestId("2")).fingerprint
    others = [
        DistributionRequest(Action.DELETE, (A, B)),
        DistributionRequest(Action.ADD, (A, B)),
        DistributionRequest(Action.ADD, (A,), frozenset({A})),
        DistributionRequest(Action.ADD, (NodePath("/a/b"),), frozenset()),
    ]
    assert len({request.fingerprint, *(other.fingerprint for other in others)}) == 5
