"""The children of our objects, rendered: from records to manifests. Pure, so that golden files can hold them.

Secrets are named, never read: a manifest says which Secret a pod mounts, and the agent's configuration says in which
file it finds what. Called by `plan`.
"""
