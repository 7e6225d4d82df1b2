"""Bytes and messages: the only home of `google.protobuf`.

`messages` encodes and decodes what travels on the topics, `nodes` the nodes that packages carry and targets store,
`tree` the records of the tree package format, `headers` the record headers, `events` the JSON of the event topic.
"""
