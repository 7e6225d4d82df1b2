"""The project's side: build packages. Usage: build.py TYPE COUNT [SAMPLE]; SAMPLE is written with one package."""

from __future__ import annotations

import io
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "floors"))
from least import report_least
from workload import codec_for, contents

codec = codec_for(sys.argv[1])
prepared = [contents(number) for number in range(100)]
if len(sys.argv) > 3:
    with Path(sys.argv[3]).open("wb") as file:
        codec.write(prepared[0], file)
report_least(lambda number: codec.write(prepared[number % 100], io.BytesIO()), int(sys.argv[2]))
