"""The control API, shared by server, command line and operator.

Its records, its port, its problem documents and its client.
"""
