"""Floor: read a batch of 100, parse message and package, upsert every node, store the position, commit.

Usage: import_tree.py RECORDS.db TARGET.db COUNT. RECORDS.db has `record (offset INTEGER PRIMARY KEY, value BLOB)`.
Bodies are taken as bytes, and nothing is checked: this is the least that an import can do.
"""

import json
import sqlite3
import sys
import time

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
file = descriptor_pb2.FileDescriptorProto(name="floor.proto", package="floor", syntax="proto2")
for name, fields in {
    "Message": [("payload", 6, FIELD.TYPE_BYTES, FIELD.LABEL_OPTIONAL, None)],
    "Node": [
        ("path", 1, FIELD.TYPE_STRING, FIELD.LABEL_OPTIONAL, None),
        ("body", 2, FIELD.TYPE_BYTES, FIELD.LABEL_OPTIONAL, None),
    ],
    "Package": [("node", 2, FIELD.TYPE_MESSAGE, FIELD.LABEL_REPEATED, ".floor.Node")],
}.items():
    message = file.message_type.add(name=name)
    for field, number, kind, label, type_name in fields:
        message.field.add(name=field, number=number, type=kind, label=label, type_name=type_name)
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Message = message_factory.GetMessageClass(pool.FindMessageTypeByName("floor.Message"))
Package = message_factory.GetMessageClass(pool.FindMessageTypeByName("floor.Package"))

records = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
target = sqlite3.connect(sys.argv[2], isolation_level=None)
target.execute("PRAGMA journal_mode = WAL")
target.execute("PRAGMA synchronous = FULL")
target.execute("CREATE TABLE node (path TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")
target.execute("CREATE TABLE position (id INTEGER PRIMARY KEY, next_offset INTEGER)")

begin, marks = time.process_time(), []
position, count = 0, int(sys.argv[3])
while position < count:
    batch = records.execute("SELECT offset, value FROM record WHERE offset >= ? LIMIT 100", (position,)).fetchall()
    rows = []
    for _offset, value in batch:
        rows += [(node.path, node.body) for node in Package.FromString(Message.FromString(value).payload).node]
    position = batch[-1][0] + 1
    target.execute("BEGIN IMMEDIATE")
    target.executemany("INSERT INTO node VALUES (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body", rows)
    target.execute(
        "INSERT INTO position VALUES (1, ?) ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset", (position,)
    )
    target.execute("COMMIT")
    marks.append((position, time.process_time()))
print(json.dumps({"cpu_seconds": time.process_time() - begin, "count": count, "marks": marks}))
