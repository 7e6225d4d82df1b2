"""Loads the API of an agent into a process that agents are forked from: its routes take half a CPU second."""

from mailboat.http import agent_application, application

LOADED = (agent_application, application._served_api())
