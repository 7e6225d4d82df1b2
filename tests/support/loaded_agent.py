"""Loads the API of an agent into a process that agents are forked from, and describes it.

Without it each agent with a publisher would do so at its start, which takes it a CPU second.
"""

from mailboat.http import agent_application, application

LOADED = (agent_application, application._described_api())
