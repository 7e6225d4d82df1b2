"""How custom resources of `mailboat.dev/v1alpha1` are defined: fields, forms and rules of records.

The records of a kind are in its folder (`kinds/<kind>/spec.py`): every field once, with its explanation, default,
bounds and rules. A setting of agents is declared in `mailboat.config`, and listed there. The schema that the API server
checks (`kinds/crds.py`), the decoder, the encoder and `docs/custom-resources.md` (`tools/resources_page.py`) read
them. Pure: no framework, no client, no clock.

Words that agents' configuration has (`tree`, `reference`, `durable`) are spelled as there; what Kubernetes has words
for (`Retain`, `Delete`) is spelled as Kubernetes does. Secrets are named, never held, and only of the same namespace.
"""

GROUP = "mailboat.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "mailboat"
