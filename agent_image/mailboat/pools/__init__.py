"""Shared pools: subscribers that import into one target together, each package by one of them."""
