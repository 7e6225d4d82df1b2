"""The project's side: build packages. Usage: build.py TYPE COUNT [SAMPLE]; SAMPLE is written with one package."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path

from workload import codec_for, contents

codec = codec_for(sys.argv[1])
prepared = [contents(number) for number in range(100)]
if len(sys.argv) > 3:
    with Path(sys.argv[3]).open("wb") as file:
        codec.write(prepared[0], file)
count = int(sys.argv[2])
begin = time.process_time()
for number in range(count):
    codec.write(prepared[number % 100], io.BytesIO())
print(json.dumps({"cpu_seconds": time.process_time() - begin, "count": count}))
