"""Floor: make the messages of a package from plain values and serialise them with protobuf, and hash the bytes.

Usage: build_tree.py PACKAGE COUNT DESCRIPTORS. PACKAGE is one package that the project wrote; it is taken apart once
into plain values. DESCRIPTORS is proto/mailboat/v1/tree.proto as protoc compiles it.
"""

import hashlib
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from least import report_least

pool = descriptor_pool.DescriptorPool()
pool.Add(descriptor_pb2.FileDescriptorSet.FromString(Path(sys.argv[3]).read_bytes()).file[0])
Package = message_factory.GetMessageClass(pool.FindMessageTypeByName("mailboat.v1.TreePackage"))


def plain(value):
    if hasattr(value, "ListFields"):
        return {field.name: plain(inner) for field, inner in value.ListFields()}
    if hasattr(value, "append"):
        return [plain(item) for item in value]
    return value


values = plain(Package.FromString(Path(sys.argv[1]).read_bytes()))
report_least(
    lambda _number: hashlib.sha256(Package(**values).SerializeToString()).digest(),
    int(sys.argv[2]),
)
