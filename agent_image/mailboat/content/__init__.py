"""Content: sources, targets, digest and differences."""
