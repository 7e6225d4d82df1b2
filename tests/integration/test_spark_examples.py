"""The examples of docs/spark.md run as they stand, one after the other, in one session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.engines import write_site

pytestmark = pytest.mark.timeout(900)  # Java starts, and compiles, on what cores there are

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_the_examples_of_the_page_run(
    spark: SparkSession, boat: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: dict[str, str | bytes] = {f"{letter}/{number}.html": letter * 600 for letter in "ab" for number in range(9)}
    write_site(tmp_path / "site", pages)
    (tmp_path / "web").mkdir()
    places = {"./site": str(tmp_path / "site"), "files:/srv/web": f"files:{tmp_path / 'web'}"}
    places[".mailboat"] = str(boat.home)  # Spark's processes resolve paths in the folder where the session began
    names: dict[str, Any] = {"spark": spark}
    found = examples()
    assert len(found) == 4
    for example in found:
        text = example
        for written, place in places.items():
            text = text.replace(f'"{written}"', f'"{place}"')
        exec(compile(text, str(PAGE), "exec"), names)
    shown = capsys.readouterr().out
    assert "nt:file" in shown
    assert names["bins"].count() > 0
    assert "missing" in shown
