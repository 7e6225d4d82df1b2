"""The custom resources `mailboat.dev/v1alpha1`: Journal, Topic, Publisher, SubscriberPool and Distribution.

One module a kind holds its records: every field with its explanation, default, bounds and rules, written down once.
The schema that the API server checks by (`crds.py`), the decoder that trusts nobody (`decoding.py`), the encoder and
`docs/custom-resources.md` (`page.py`) all come from them; `kinds.py` lists them. Pure: no framework, no client, no
clock.

Words that agents' configuration has (`tree`, `reference`, `durable`) are spelled as there; what Kubernetes has words
for (`Retain`, `Delete`) is spelled as Kubernetes does. Secrets are named, never held, and only of the same namespace.
"""

GROUP = "mailboat.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "mailboat"
