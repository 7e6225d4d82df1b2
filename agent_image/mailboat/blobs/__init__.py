"""The blob store: large binaries and packages by content hash. Port, adapters, and references to blobs."""
