"""Retention sections for tests."""

from __future__ import annotations

from typing import Any

from mailboat.config.storage import ConsumptionConfig, RetentionConfig


def retention_section(**consumption: Any) -> RetentionConfig:
    """Retention by consumption alone."""
    return RetentionConfig(package_seconds=None, consumption=ConsumptionConfig(**consumption))
