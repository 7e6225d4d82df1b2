"""The state around one object: read, decoded, and handed to its plan. One module a kind.

Each module's `look_at_<kind>` reads everything that its plan decides by and gives the plan. Nothing is remembered from
one look to the next. Called by `reconciliation`, which acts.
"""
