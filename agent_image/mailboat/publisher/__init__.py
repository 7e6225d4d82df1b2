"""The publisher's use cases: turn a request and a source into messages on the package topic, each request once."""
