"""The control API: its records, its port, its problem documents and its client, shared by server, CLI and operator."""
