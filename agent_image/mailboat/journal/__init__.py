"""The persisted log: the port (`port.py`) and its adapters. One contract suite runs over every adapter."""
