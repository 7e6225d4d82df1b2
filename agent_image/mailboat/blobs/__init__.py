"""The blob store: large binaries and packages by content hash.

The port, its adapters, and references to blobs.
"""
