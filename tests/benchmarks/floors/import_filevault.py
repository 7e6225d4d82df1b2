"""Floor: the loop of import_tree.py that opens each package with `zipfile` and parses its XML with expat.

Usage: import_filevault.py RECORDS.db TARGET.db COUNT. Each element is stored as one row, its values as they are.
"""

import io
import json
import sqlite3
import sys
import time
import zipfile
from xml.parsers import expat

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

file = descriptor_pb2.FileDescriptorProto(name="floor.proto", package="floor", syntax="proto2")
message = file.message_type.add(name="Message")
message.field.add(name="payload", number=6, type=12, label=1)
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Message = message_factory.GetMessageClass(pool.FindMessageTypeByName("floor.Message"))

records = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
target = sqlite3.connect(sys.argv[2], isolation_level=None)
target.execute("PRAGMA journal_mode = WAL")
target.execute("PRAGMA synchronous = FULL")
target.execute("CREATE TABLE node (path TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")
target.execute("CREATE TABLE position (id INTEGER PRIMARY KEY, next_offset INTEGER)")


def rows_of(package: bytes) -> list[tuple[str, str]]:
    rows = []
    archive = zipfile.ZipFile(io.BytesIO(package))
    for entry in archive.infolist():
        data = archive.read(entry)
        if entry.filename.endswith(".xml"):
            path, parser = [entry.filename.rpartition("/")[0]], expat.ParserCreate()

            def start(name, attributes, path=path):
                path.append(path[-1] + "/" + name)
                rows.append((path[-1], repr(attributes)))

            parser.StartElementHandler = start
            parser.EndElementHandler = lambda _name, path=path: path.pop()
            parser.Parse(data, True)
    return [row for row in rows if row[0].startswith("jcr_root")]


begin, marks = time.process_time(), []
position, count = 0, int(sys.argv[3])
while position < count:
    batch = records.execute("SELECT offset, value FROM record WHERE offset >= ? LIMIT 100", (position,)).fetchall()
    rows = [row for _offset, value in batch for row in rows_of(Message.FromString(value).payload)]
    position = batch[-1][0] + 1
    target.execute("BEGIN IMMEDIATE")
    target.executemany("INSERT INTO node VALUES (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body", rows)
    target.execute(
        "INSERT INTO position VALUES (1, ?) ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset", (position,)
    )
    target.execute("COMMIT")
    marks.append((position, time.process_time()))
print(json.dumps({"cpu_seconds": time.process_time() - begin, "count": count, "marks": marks}))
