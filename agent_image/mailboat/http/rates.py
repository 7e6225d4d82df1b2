"""The rate limit per caller: a token bucket.

Called by `gate.py`.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from mailboat.clock import Clock
from mailboat.token_bucket import TokenBucket

MAX_CALLERS: Final = 1000
"""Limit of remembered callers; the one silent for longest is evicted and starts with a full bucket."""


_NETWORK_BITS: Final = 64
"""IPv6 prefix of one subscriber line: its holder controls all addresses in it."""


def network_of(address: str) -> str:
    """What counts as one caller without a token: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), _NETWORK_BITS), strict=False))


class RateLimiter:
    """Buckets by caller. Used from the server's thread only."""

    def __init__(self, per_second: float, burst: int, clock: Clock) -> None:
        """Every caller begins with `burst` requests and gets `per_second` more."""
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, caller: str) -> float:
        """Count a request. Returns 0.0 when it may go on, else the seconds until the next one may."""
        now = self._clock.monotonic()
        bucket = self._buckets.get(caller)
        if bucket is None:
            bucket = self._buckets[caller] = TokenBucket(self._per_second, self._burst)
        # the end is the caller seen last: a flood of new callers evicts silent ones, which get a full bucket again
        self._buckets.move_to_end(caller)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        delay = bucket.delay_seconds(now)
        if delay == 0.0:
            bucket.take(now)
        return delay
