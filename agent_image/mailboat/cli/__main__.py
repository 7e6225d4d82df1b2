"""`python -m mailboat.cli`: the same as `mailboat`, for children that must run in this very interpreter."""

from mailboat.cli.main import run

run()
