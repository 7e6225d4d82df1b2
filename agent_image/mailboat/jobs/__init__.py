"""Durable jobs over the journal: the state of all jobs is a fold of one topic."""
