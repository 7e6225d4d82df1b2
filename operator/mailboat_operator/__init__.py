"""Mailboat's operator: custom resources become topics, agents and distributions on Kubernetes.

`api` holds the kinds; `plan` decides what an object needs, `manifests` renders its children (both without any I/O);
`observation` reads the state around an object, and `reconciliation` acts, through `cluster`, `brokers` and
`agents`, the only callers of the outside. Of the engine it knows `mailboat.config`, `mailboat.model` and
`mailboat.errors`, so that operator and agents read one and the same configuration.
"""
