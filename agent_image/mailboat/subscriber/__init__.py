"""The subscriber's use case: import the packages of a log into a target, in order and with exactly-once effect."""
