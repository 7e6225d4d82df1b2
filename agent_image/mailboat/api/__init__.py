"""The control API, shared by server, command line and operator: its records, port, problem documents and client."""
