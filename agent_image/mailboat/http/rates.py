"""How much one caller may ask: a bucket of requests each, filled at a steady rate. Called by `gate.py`."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from mailboat.clock import Clock

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
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> float:
        """Count a request. Returns 0.0 when it may go on, else the seconds until the next one may."""
        now = self._clock.monotonic()
        level, since = self._buckets.pop(caller, (float(self._burst), now))
        level = min(float(self._burst), level + (now - since) * self._per_second)
        is_allowed = level >= 1.0
        self._buckets[caller] = (level - 1.0 if is_allowed else level, now)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if is_allowed else (1.0 - level) / self._per_second
