"""Mailboat: content distribution over a persisted log.

Publishers turn changes of a content tree into packages, a journal carries them in one order, and every subscriber
imports each package exactly once. `docs/architecture.md` draws the parts; the layers named there are the folders here.
"""

__version__ = "0.1.0"
