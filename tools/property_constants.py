"""Have hypothesis read the constants of our modules once, before the workers of the suite would each do it.

Property tests draw some of their values from the constants of the tested modules. Hypothesis parses these modules in
each process, and keeps what it found below `.hypothesis` by their text: in a new clone 2 CPU seconds a worker.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from hypothesis.configuration import set_hypothesis_home_dir

# it has no public name; what it keeps is only a cache
from hypothesis.internal.constants_ast import constants_from_module

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("agent_image/mailboat", "operator/mailboat_operator", "tools")


def keep_constants(file: Path) -> int:
    """Keep the constants of a module, unless they are kept already; their number."""
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    return len(constants_from_module(module))


def main() -> None:
    """Entry point."""
    set_hypothesis_home_dir(ROOT / ".hypothesis")
    files = sorted(file for folder in SOURCES for file in (ROOT / folder).rglob("*.py"))
    print(f"{sum(map(keep_constants, files))} constants of {len(files)} modules kept")


if __name__ == "__main__":
    main()
