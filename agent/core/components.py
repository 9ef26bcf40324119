# SPDX-License-Identifier: MIT
"""Components that are billed, as the configuration names them. Apart from `model` and `usage`, which who reads only the
configuration need not import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class UsageSource(StrEnum):
    """What a job is charged for: what it asked for, or what it was given (as the limits of SLURM and sreport count)."""

    REQUESTED = "requested"
    ALLOCATED = "allocated"


class AccountingType(StrEnum):
    """How Waldur bills a component. `ONE` is prepaid: the limit counts once per month bought."""

    USAGE = "usage"
    LIMIT = "limit"
    ONE = "one"
    FIXED = "fixed"
    FEW = "few"


@dataclass(frozen=True, slots=True)
class Component:
    """A billed component: `backend value = Waldur value * factor`."""

    name: str
    measured_unit: str
    accounting_type: AccountingType
    label: str
    # Of the TRES that has the component's own name, where no targets are named.
    unit_factor: float = 1.0
    unit_factor_reporting: float | None = None
    limit: float | None = None
    # TRES names of the cluster and their factors.
    targets: Mapping[str, float] = field(default_factory=dict)
    waldur_fields: Mapping[str, Any] = field(default_factory=dict)
    # Keys that only a plugin may know.
    extras: Mapping[str, Any] = field(default_factory=dict)
