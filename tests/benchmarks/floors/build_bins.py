"""Floor: the same builder over the same bins in a plain loop, without Spark, manifest and publication.

Usage: build_bins.py HOME SOURCE MAX_BYTES MAX_NODES. Run as many at once as Spark has cores: each builds all bins.
"""

import json
import sys
import time
from contextlib import closing
from pathlib import Path

from mailboat.bulk.assembly import recipe_for
from mailboat.bulk.bin_builder import BinBuilder
from mailboat.bulk.build_records import BuildRequest
from mailboat.bulk.cutter import Bin, Budget
from mailboat.bulk.source_branches import cut_whole
from mailboat.composition.home import Home
from mailboat.composition.source_openers import open_source
from mailboat.composition.workspace import Workspace
from mailboat.model.paths import ROOT

home, source, max_bytes, max_nodes = sys.argv[1:5]
with Workspace(Home(Path(home))) as workspace, closing(open_source(source)) as opened:
    recipe = recipe_for(workspace, BuildRequest(source, [ROOT], Budget(int(max_bytes), int(max_nodes))))
    bins = [item for item in cut_whole(opened, recipe.roots, recipe.budget) if isinstance(item, Bin)]
    builder = BinBuilder(recipe, opened, workspace.blobs, workspace.codecs)
    began, began_cpu = time.monotonic(), time.process_time()
    for bin_ in bins:
        builder.build(bin_)
    seconds, cpu = time.monotonic() - began, time.process_time() - began_cpu
print(json.dumps({"count": len(bins), "seconds": seconds, "cpu_seconds": cpu}))
