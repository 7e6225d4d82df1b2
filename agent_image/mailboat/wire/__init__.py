"""Bytes and messages: the only home of `google.protobuf`.

`messages` encodes and decodes what travels on the topics, `node_bodies` the nodes of packages and targets,
`tree_records` the records of the tree package format, `headers` the record headers, `event_documents` the JSON of the
event topic.
"""
