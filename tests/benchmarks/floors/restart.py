"""Floor: start, open journal and target, see that there is nothing to do.

Usage: restart.py JOURNAL.db TARGET.db. The process is measured from outside, as a whole.
"""

import sqlite3
import sys

import google.protobuf.descriptor_pb2  # noqa: F401  what every reader of messages loads

for name in sys.argv[1:]:
    connection = sqlite3.connect(f"file:{name}?mode=ro", uri=True)
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    connection.close()
