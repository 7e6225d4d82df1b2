"""The names of a build and of its packages: derived, so that a build that is run again says the same."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Sequence
from typing import Final

from mailboat.bulk.build_records import BuildProblem, Recipe
from mailboat.errors import UsageError
from mailboat.model.identifiers import BuildId, FileIdentity, PackageId, RequestId, parse_build_id

MAX_LENGTH: Final = 45
"""Of a build's id: the names of its manifest's parts begin with it."""
_DERIVED: Final = re.compile(r"bulk-[0-9a-f]{24}")
_RESERVED: Final = re.compile(r"\.(rows-|claim-|build|order)")


def checked_build_id(text: str) -> BuildId:
    """A build's id as a person or an operator gives it. Raises: UsageError."""
    if len(text) > MAX_LENGTH:
        raise UsageError(f"the build id {text[:60]!r} has {len(text)} characters, the limit is {MAX_LENGTH}")
    if _RESERVED.search(text):
        raise UsageError(f"the build id {text!r} is reserved: no .rows-, .claim-, .build or .order in it")
    return parse_build_id(text)


def recipe_fingerprint(recipe: Recipe) -> bytes:
    """SHA-256 of what is built and how: builds of one id must agree in it."""
    budget = recipe.budget
    facts = [
        recipe.source,
        list(recipe.roots),
        [budget.max_content_bytes, budget.max_nodes],
        recipe.package_type,
        [recipe.inline_binary_bytes, recipe.inline_package_bytes],
        recipe.are_collisions_refused,
        recipe.log,
        recipe.publisher,
        *([] if recipe.file_identity is FileIdentity.INODE else [recipe.file_identity]),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).digest()


def derived_build_id(recipe: Recipe, revision: bytes, after: str, problems: Sequence[BuildProblem]) -> BuildId:
    """The id of a build that was given none.

    Args:
        recipe: What is built.
        revision: Of its source.
        after: The package that last changed what is published of the source: going back to an earlier revision is
            another build.
        problems: What is left out of it.
    """
    state = json.dumps([after, problems])
    total = hashlib.sha256(recipe_fingerprint(recipe) + revision + state.encode())
    return BuildId(f"bulk-{total.hexdigest()[:24]}")


def is_derived(build_id: BuildId) -> bool:
    """Whether a build was given no id, so that it is not requested by its name."""
    return _DERIVED.fullmatch(build_id) is not None


def request_id_of(build_id: BuildId, created_ms: int, sequence: int) -> RequestId:
    """What a package of a build is asked for by; the time is that of the build's first attempt."""
    # Without the time, a build with the id of a forgotten one would be answered from the receipts of that one.
    return RequestId(f"bulk-{build_id}-{created_ms}-{sequence}")


def package_id_of(build_id: BuildId, sequence: int, package_digest: bytes, created_ms: int) -> PackageId:
    """The id of a package, in Sling's form.

    The time is that of the build's first attempt, the UUID of version 8 (RFC 9562, 5.8) is made of build, sequence and
    content: the package has this id, whichever process builds and publishes it.
    """
    total = hashlib.sha256(f"{build_id}\0{sequence}\0".encode() + package_digest).digest()
    number = int.from_bytes(total[:16]) & ~(0xF << 76) & ~(0x3 << 62) | 0x8 << 76 | 0x2 << 62
    return PackageId(f"dstrpck-{created_ms}-{uuid.UUID(int=number)}")
