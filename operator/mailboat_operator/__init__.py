"""Mailboat's operator: custom resources become topics, agents and distributions on Kubernetes.

`kinds` has one folder for each kind of custom resource. What several kinds share lies next to it: `definition` (fields,
schema, decoder), `plan` (actions, conditions, children) and `workload` (pods of agents). `reconciliation` observes,
plans and acts, through `cluster`, `brokers` and `agent_client`, the only callers of the outside. Of the engine it uses
configuration and model, so that operator and agents read the same, and records and client of the API (`mailboat.api`).
"""
