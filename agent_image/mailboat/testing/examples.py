"""How many examples a property test takes: its own count, scaled by the chosen hypothesis profile."""

from typing import Final

from hypothesis import settings

_WHOLE: Final = 50
"""`max_examples` of the profile in which every test takes just its own count."""


def examples(count: int) -> int:
    """The count, as many times as the profile has examples in comparison with the profile `long`; at least one."""
    return max(1, count * settings().max_examples // _WHOLE)
