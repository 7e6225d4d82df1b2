"""The rules of `jobs.on`: which packages add which jobs."""

from __future__ import annotations

from typing import NamedTuple

from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.document import Config, JobRuleConfig
from mailboat.errors import MailboatError, UsageError
from mailboat.model.job_rules import JobRule


class JobRules(NamedTuple):
    """The rules for packages that subscribers import, and for those that are distributed."""

    imported: tuple[JobRule, ...]
    distributed: tuple[JobRule, ...]


def job_rules(config: Config) -> JobRules:
    """Check the rules of a configuration. Raises: ConfigInvalidError."""
    imported: list[JobRule] = []
    distributed: list[JobRule] = []
    for number, rule in enumerate(config.jobs.on):
        key = f"jobs.on[{number}]"
        try:
            checked = checked_rule(rule)
        except MailboatError as error:
            raise ConfigInvalidError(f"{key}: {error.message}", next_step=error.next_step, key=key) from error
        (distributed if rule.imported is None else imported).append(checked)
    return JobRules(tuple(imported), tuple(distributed))


def checked_rule(rule: JobRuleConfig) -> JobRule:
    """Check one rule. Raises: UsageError, PathRefusedError."""
    if (rule.imported is None) == (rule.distributed is None):
        raise UsageError("needs either imported or distributed")
    return JobRule(rule.imported or rule.distributed or "", rule.add, rule.key)
