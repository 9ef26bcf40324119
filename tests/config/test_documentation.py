# SPDX-License-Identifier: MIT
"""docs/configuration.md lists each key and each variable, and none that is not there."""

from __future__ import annotations

import re

import pytest
from marshmallow import Schema

from agent.config import environment, legacy_env, load
from agent.config.schema import (
    BACKEND_SETTINGS,
    COMPONENT,
    LOG_SHIPPING,
    OFFERING,
    ORDER_HOOK,
    PERIODIC_LIMITS,
    POLICY,
    POLICY_KEYS,
    ROOT,
    TARGET,
)
from agent.core.policy import BUDGETS

from .samples import REPOSITORY

TEXT = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
SECTIONS = {
    "Root keys": ROOT,
    "`log_shipping`": LOG_SHIPPING,
    "`policy`": POLICY,
    "Offering keys": OFFERING,
    "`backend_settings`": BACKEND_SETTINGS,
    "`periodic_limits`": PERIODIC_LIMITS,
    "`backend_components`": COMPONENT,
    "`target_components`": TARGET,
    "`order_hook`": ORDER_HOOK,
}
VARIABLES = {
    load.CONFIG_VARIABLE,
    environment.LOG_LEVEL,
    environment.LOG_FORMAT,
    environment.BROKER_URL,
    environment.CELERY_BROKER_URL,
    environment.STATE_DIR,
    environment.SYSTEMD_STATE_DIR,
    environment.LOCK_DIR,
    environment.HEARTBEAT_PATH,
    environment.VERIFY_SSL,
    *environment.WITHOUT_EFFECT,
    environment.SENTRY_DSN,
    environment.SENTRY_ENVIRONMENT,
    *environment.PERIODS.values(),
}
OLD_VARIABLES = {
    *legacy_env.API_VARIABLES,
    legacy_env.CONFIG_FILE,
    legacy_env.DIRECTION,
    legacy_env.MODE,
    legacy_env.USERNAME_SOURCE,
    legacy_env.TRES_FILE,
    *(name for name, _ in legacy_env.SETTINGS.values()),
    "WALDUR_OFFERING_NAME",
    "WALDUR_BACKEND_TYPE",
    "SLURM_DEPLOYMENT_TYPE",
    "SLURM_CONTAINER_NAME",
    "ENABLE_USER_HOMEDIR_ACCOUNT_CREATION",
}


def first_column(heading: str) -> dict[str, str]:
    """The second column of the tables below a heading, by what stands in backticks in the first."""
    _, _, below = TEXT.partition(f" {heading}\n")
    section = re.split(r"\n#+ ", below)[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]*)\|", section, re.MULTILINE)
    return {name: default.strip() for name, default in rows}


@pytest.mark.parametrize(("heading", "schema"), SECTIONS.items(), ids=SECTIONS)
def test_keys(heading: str, schema: Schema) -> None:
    assert set(first_column(heading)) == set(schema.fields)


@pytest.mark.parametrize(("heading", "schema"), SECTIONS.items(), ids=SECTIONS)
def test_required_keys(heading: str, schema: Schema) -> None:
    documented = {name for name, default in first_column(heading).items() if default == "required"}
    assert documented == {name for name, field in schema.fields.items() if field.required}


@pytest.mark.parametrize(("heading", "schema"), SECTIONS.items(), ids=SECTIONS)
def test_defaults_that_are_numbers_or_switches(heading: str, schema: Schema) -> None:
    for name, default in first_column(heading).items():
        value = schema.fields[name].load_default
        if isinstance(value, bool | int | float):
            assert default == str(value).lower(), name


def test_variables() -> None:
    assert set(first_column("Environment variables")) == VARIABLES


def test_variables_of_the_oldest_service() -> None:
    assert set(first_column("One offering by environment variables alone")) == OLD_VARIABLES


@pytest.mark.parametrize("key", sorted(POLICY_KEYS))
def test_keys_of_the_past(key: str) -> None:
    assert f"`{key}`" in TEXT


def test_budgets() -> None:
    written = {name: int(hour) for name, hour in first_column("`budgets`").items()}
    assert written == {cost: budget.hour for cost, budget in BUDGETS.items()}
