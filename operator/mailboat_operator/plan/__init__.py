"""What plans of all kinds are made of: actions, children, conditions and labels. No I/O, no clock.

A kind's own decisions are in `kinds/<kind>/plan.py`. Whatever the cause of a reconciliation, the same function decides
from the whole observed state, so a missed event, a restart or a manual edit need no path of their own.
"""
