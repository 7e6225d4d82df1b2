"""Publish requests and bulk builds, and their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Query, Response
from starlette.concurrency import run_in_threadpool

from mailboat.api.orders import LONGEST_NAME, MAX_OFFSET, ChangeOrder, DistributionOrder
from mailboat.api.records import BuildView, DistributionPage, DistributionView, PublicationPlan
from mailboat.config.document import Verb
from mailboat.errors import LimitExceededError, UsageError
from mailboat.http.examples import BUILD, DISTRIBUTION, PLAN
from mailboat.http.long_poll import settled
from mailboat.http.ports import (
    NEXT_PAGE,
    CallerWait,
    CurrentCall,
    Ports,
    PublisherName,
    operation,
    with_headers,
)
from mailboat.model.paths import NodePath, parse_path
from mailboat.model.requests import MAX_PATHS, DistributionRequest, parse_request

router = APIRouter(prefix="/api/v1/publishers/{publisher}/distributions", tags=["distributions"])
changes = APIRouter(prefix="/api/v1/publishers/{publisher}/changes", tags=["distributions"])
plans = APIRouter(prefix="/api/v1/publishers/{publisher}/plan", tags=["distributions"])
builds = APIRouter(prefix="/api/v1/builds", tags=["builds"])


IdempotencyKey = Annotated[str | None, Header(description="Idempotency key; same as `request_id`.", max_length=202)]
Before = Annotated[int | None, Query(description="Only distributions before this offset.", ge=0, le=MAX_OFFSET)]
MaxListed = Annotated[int, Query(description="Maximum number.", ge=1, le=100)]
DistributionId = Annotated[str, Path(description="A package id or a request id.", max_length=200)]


@router.post(
    "",
    **with_headers(
        operation(Verb.DISTRIBUTE, "Publish one request", example=DISTRIBUTION, also=(404, 409), status=202),
        {"Location": "URL of the distribution."},
    ),
)
async def distribute(
    publisher: PublisherName,
    order: DistributionOrder,
    ports: Ports,
    call: CurrentCall,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> DistributionView:
    """Durable when answered. A request that was published before under its id is found, and not published again.

    The package carries the trace context of the header `traceparent` on.
    With tokens, the request's user is the token's name; a token with `admin` may name another. If one path is outside
    the token's paths, nothing is published (403, `PathForbidden`).
    """
    call.concerns({"publisher": publisher, "action": order.action, "paths": len(order.paths)})
    wanted = checked_request(order, call, idempotency_key)
    async with ports.publishing.turn(wanted.user_id, len(wanted.paths)):
        made = await run_in_threadpool(ports.control.distribute, publisher, wanted)
    call.concerns({"package": made.package_id, "offset": made.offset})
    response.headers["Location"] = f"/api/v1/publishers/{publisher}/distributions/{made.package_id}"
    return made


@changes.post(
    "",
    **operation(
        Verb.DISTRIBUTE, "Publish what changed in the source", example=[DISTRIBUTION], also=(404, 409), status=202
    ),
)
async def distribute_changed(
    publisher: PublisherName, order: ChangeOrder, ports: Ports, call: CurrentCall
) -> Sequence[DistributionView]:
    """Compares the publisher's source with what it published last, deletes included; empty when nothing changed.

    Durable when answered. Requests of other callers wait meanwhile. After an error, send it again: what was published
    is not published twice.
    """
    paths, user_id = checked_paths(order.paths, call), checked_user(order.user_id, call)
    call.concerns({"publisher": publisher, "action": "CHANGED", "paths": len(paths)})
    async with ports.publishing.turn(user_id):
        made = await run_in_threadpool(lambda: list(ports.control.publish_changed(publisher, paths, user_id)))
    call.concerns({"packages": len(made)})
    return made


@plans.post("", **operation(Verb.DISTRIBUTE, "Plan a publish", example=PLAN, also=(404,)))
async def plan(publisher: PublisherName, order: DistributionOrder, ports: Ports, call: CurrentCall) -> PublicationPlan:
    """What publishing the request would send: a dry run that reads the source and changes nothing. For an ADD."""
    call.concerns({"publisher": publisher, "action": order.action, "paths": len(order.paths)})
    wanted = checked_request(order, call, None)
    async with ports.publishing.turn(wanted.user_id, len(wanted.paths)):
        return await run_in_threadpool(ports.control.plan, publisher, wanted)


@plans.post("/changes", **operation(Verb.DISTRIBUTE, "Plan a publish of changes", example=PLAN, also=(404, 409)))
async def plan_changed(
    publisher: PublisherName, order: ChangeOrder, ports: Ports, call: CurrentCall
) -> PublicationPlan:
    """What publishing the changes would send: a dry run that reads the source and changes nothing."""
    paths, user_id = checked_paths(order.paths, call), checked_user(order.user_id, call)
    call.concerns({"publisher": publisher, "action": "CHANGED", "paths": len(paths)})
    async with ports.publishing.turn(user_id):
        return await run_in_threadpool(ports.control.plan_changed, publisher, paths)


@router.get(
    "",
    **with_headers(
        operation(
            Verb.VIEW,
            "List distributions of a publisher, newest first",
            example={"items": [DISTRIBUTION], "next_before": 97},
            also=(404,),
        ),
        NEXT_PAGE,
    ),
)
def list_distributions(
    publisher: PublisherName, ports: Ports, response: Response, before: Before = None, max_items: MaxListed = 20
) -> DistributionPage:
    """Each with its outcome. A `Link` header leads to older ones; a page may be shorter than requested."""
    page = ports.control.distributions(publisher, before, max_items)
    if page.next_before is not None:
        where = f"/api/v1/publishers/{quote(publisher, safe='')}/distributions"
        response.headers["Link"] = f'<{where}?before={page.next_before}&max_items={max_items}>; rel="next"'
    return page


@router.get("/{name:path}", **operation(Verb.VIEW, "Get a distribution", example=DISTRIBUTION, also=(404,)))
async def distribution(
    publisher: PublisherName, name: DistributionId, ports: Ports, wait: CallerWait
) -> DistributionView:
    """With `wait`, the response is sent as soon as all subscribers have an outcome."""
    return await settled(ports, lambda: ports.control.distribution(publisher, name), is_settled, wait)


def is_settled(view: DistributionView) -> bool:
    """Whether no subscriber is pending."""
    return view.state != "queued" and not view.waiting


def checked_request(order: DistributionOrder, call: CurrentCall, idempotency_key: str | None) -> DistributionRequest:
    """The request, with its id from the header and its user from the token.

    Raises:
        UsageError: Two different ids, or an invalid request.
        PathRefusedError, PathForbiddenError: A path is invalid, or is not covered by the token.
        LimitExceededError: More paths than a request may have.
    """
    key = None if idempotency_key is None else idempotency_key.strip().strip('"') or None
    if key is not None and order.request_id not in {None, key}:
        raise UsageError("the header Idempotency-Key and request_id name two different requests")
    if call.caller is not None:
        call.caller.check_paths((*order.paths, *order.deep_paths))
    return parse_request(
        order.action,
        order.paths,
        order.deep_paths,
        order.request_id or key,
        checked_user(order.user_id, call),
        order.trace_parent or call.trace_parent,
    )


def checked_user(named: str | None, call: CurrentCall) -> str | None:
    """The user of a request: the token's name; a token with `admin` may name another."""
    caller = call.caller
    is_bound = caller is not None and caller.is_known and not (caller.may(Verb.ADMIN) and named)
    return caller.name if is_bound and caller else named


def checked_paths(texts: Sequence[str], call: CurrentCall) -> tuple[NodePath, ...]:
    """The paths, each once, all covered by the token.

    Raises:
        LimitExceededError: More paths than a request may have.
        PathRefusedError, PathForbiddenError: A path is invalid, or is not covered by the token.
    """
    if not 0 < len(texts) <= MAX_PATHS:
        raise LimitExceededError(f"{len(texts)} paths, expected 1 to {MAX_PATHS}", limit=MAX_PATHS)
    if call.caller is not None:
        call.caller.check_paths(texts)
    return tuple(dict.fromkeys(map(parse_path, texts)))


BuildName = Annotated[str, Path(description="The build's id.", max_length=LONGEST_NAME, examples=["release-2026-11"])]


@builds.get("", **operation(Verb.VIEW, "List bulk builds", example=[BUILD]))
def list_builds(ports: Ports) -> Sequence[BuildView]:
    """The bulk builds whose packages the log holds, the newest first."""
    return ports.control.builds()


@builds.get("/{build_id}", **operation(Verb.VIEW, "Get a bulk build", example=BUILD, also=(404,)))
def show_build(build_id: BuildName, ports: Ports) -> BuildView:
    """How much of a build is published, and how much of it every subscriber has imported."""
    (found,) = ports.control.builds(build_id)
    return found
