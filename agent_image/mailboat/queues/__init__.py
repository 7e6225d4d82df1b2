"""Queues as views: the packages after a subscriber's position in one shared picture of the log; never a copy."""
