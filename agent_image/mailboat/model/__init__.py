"""Frozen records and identifiers of the domain. Standard library only; imports nothing of Mailboat but `errors`."""
