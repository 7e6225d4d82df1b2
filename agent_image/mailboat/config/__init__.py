"""The document that configures Mailboat: `mailboat.yaml` of a home, and what the operator renders for a pod.

`document.py` holds the records; they are the only place where a setting, its default, its range and its explanation are
written down. One decoder and one encoder (`decoder.py`), the JSON Schema (`schema.py`), the commented file that
`mailboat init` writes and `docs/configuration.md` (`documentation.py`) all come from them. Called by `agent` and by the
operator; independent of the engine.
"""
