"""What each kind needs: pure decisions from what was observed to actions and a status. No I/O, no clock.

One `plan_<kind>` a kind. Whatever the cause of a reconciliation, the same function decides, from all that there is: so
a missed event, a restart or somebody's edit need no road of their own. Called by `reconciliation`, which does the I/O.
"""
