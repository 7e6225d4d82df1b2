"""Floor: consume a batch of 100 from Kafka, parse message and package, upsert every node, store the position, commit.

Usage: import_kafka.py BOOTSTRAP TOPIC TARGET.db COUNT. Bodies are taken as bytes, and nothing is checked: neither which
topic it is nor whether anything is missing. This is the least that an import from Kafka can do.
"""

import json
import sqlite3
import sys
import time

from confluent_kafka import Consumer, TopicPartition
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

servers, topic, file_name, wanted = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
target = sqlite3.connect(file_name, isolation_level=None)
target.execute("PRAGMA journal_mode = WAL")
target.execute("PRAGMA synchronous = FULL")
target.execute("CREATE TABLE node (path TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")
target.execute("CREATE TABLE position (id INTEGER PRIMARY KEY, next_offset INTEGER)")

begin = time.process_time()
consumer = Consumer({"bootstrap.servers": servers, "group.id": "floor", "enable.auto.commit": False})
consumer.assign([TopicPartition(topic, 0, 0)])
position = 0
while position < wanted:
    batch = consumer.consume(100, 1.0)
    if not batch:
        continue
    rows = []
    for record in batch:
        rows += [(node.path, node.body) for node in Package.FromString(Message.FromString(record.value()).payload).node]
    position = batch[-1].offset() + 1
    target.execute("BEGIN IMMEDIATE")
    target.executemany("INSERT INTO node VALUES (?, ?) ON CONFLICT DO UPDATE SET body = excluded.body", rows)
    target.execute(
        "INSERT INTO position VALUES (1, ?) ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset", (position,)
    )
    target.execute("COMMIT")
print(json.dumps({"cpu_seconds": time.process_time() - begin, "count": wanted}))
