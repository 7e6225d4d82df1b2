"""Targets of imports: `sqlite`, `files` and `generations`. Each holds content and position as one."""
