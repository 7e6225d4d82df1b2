"""The kinds of custom resources, one folder each: `spec` (fields), `plan` (decides), `controller` (I/O), `manifests`.

Shared pieces lie next to this folder: `definition`, `plan` and `workload`. `registry` lists all kinds.
"""
