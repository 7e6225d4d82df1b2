"""The kinds of custom resources, one folder each: `spec` (fields), `observe` (reads), `plan` (decides), `manifests`.

Shared pieces lie next to this folder: `definition`, `plan` and `workload`. `registry` lists all kinds.
"""
