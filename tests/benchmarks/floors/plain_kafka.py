"""The floor of a package in pieces: the same bytes, produced to a topic and consumed into a file, and nothing else."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

RECORD_BYTES = 800 * 1024

servers, topic, source, copy = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": servers})
for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
    made.result()

started = time.perf_counter()
producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": "zstd"})
with Path(source).open("rb") as stream:
    while content := stream.read(RECORD_BYTES):
        producer.produce(topic, content)
        while len(producer) > 4:
            producer.poll(0.01)
producer.flush()
produced = time.perf_counter()
consumer = Consumer({"bootstrap.servers": servers, "group.id": "floor", "auto.offset.reset": "error"})
consumer.assign([TopicPartition(topic, 0, 0)])
left = Path(source).stat().st_size
with Path(copy).open("wb") as file:
    while left:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        file.write(message.value())
        left -= len(message.value())
consumed = time.perf_counter()
print(json.dumps({"produce_seconds": produced - started, "consume_seconds": consumed - produced}))
