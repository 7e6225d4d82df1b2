"""Floor: serialise prepared records with protobuf, nothing else.

Usage: build_tree.py PACKAGE COUNT. PACKAGE is one package that the project wrote; it is parsed once with a schema of
this file's own, with every field of a node, and serialised COUNT times from fresh messages.
"""

import json
import sys
import time
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

DESCRIPTORS = Path(sys.argv[3]).read_bytes()  # proto/mailboat/v1/tree.proto as protoc compiles it
pool = descriptor_pool.DescriptorPool()
pool.Add(descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS).file[0])
Package = message_factory.GetMessageClass(pool.FindMessageTypeByName("mailboat.v1.TreePackage"))
package = Package.FromString(Path(sys.argv[1]).read_bytes())
nodes = [
    (
        one.path,
        one.body.primary_type,
        list(one.body.property),
        list(one.body.value),
        list(one.body.binary),
        list(one.body.binary_value),
    )
    for one in package.node
]
count = int(sys.argv[2])
begin = time.process_time()
for _ in range(count):
    made = Package()
    made.header.CopyFrom(package.header)
    for path, primary_type, names, values, binaries, data in nodes:
        node = made.node.add(path=path)
        body = node.body
        body.primary_type = primary_type
        body.property.extend(names)
        body.value.extend(values)
        body.binary.extend(binaries)
        body.binary_value.extend(data)
    made.trailer.CopyFrom(package.trailer)
    made.SerializeToString()
print(json.dumps({"cpu_seconds": time.process_time() - begin, "count": count}))
