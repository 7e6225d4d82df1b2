"""The control API, shared by server, command line and operator: records, port, problem documents, client, dashboard."""
