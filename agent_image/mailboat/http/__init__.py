"""The HTTP API of an agent, and its client: the control port for programs, browsers and other machines."""
