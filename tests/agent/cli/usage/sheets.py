# SPDX-License-Identifier: MIT
"""Usage of made-up accounts, for tables and pages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

from agent.core.model import Resource, ResourceState
from agent.core.periods import Month, last_months
from agent.core.usage import UsageSource
from agent.plan.usage.figures import AccountFigures, Measure, Sheet
from agent.run.usage.view import UsageView

PRESENT = Month(2026, 11)
CPU = Measure("cpu", "CPU", "core-hours")
GPU = Measure("gres/gpu", "GPU", "GPU-hours")
NAMES = (
    "Protein folding", "Sturmfluten an der Nordsee", "Élan vital", "Kristallwachstum", "大気循環モデル",
    "Теория плазмы", "Soil moisture", "A name that somebody made much longer than any column of a table has room for",
)  # fmt: skip
PEOPLE = ("ada", "boris", "chloe", "dmitri", "eva", "farid", "greta", "hugo", "ines", "jonas")


def account(name: str, *, title: str = "", project: str = "", **values: Any) -> AccountFigures:
    resources = (
        (Resource("0" * 32, title, "slug", ResourceState.OK, name, project_name=project),) if title else ()
    )
    return AccountFigures(name, resources, **values)


def figures(amounts: Mapping[str, Mapping[Month, str]]) -> dict[tuple[str, Month], Decimal]:
    """By component, then by month."""
    return {(name, month): Decimal(a) for name, months in amounts.items() for month, a in months.items()}


def view(sheet: Sheet, **values: Any) -> UsageView:
    return UsageView(
        name="Larch HPC",
        uuid="a" * 32,
        cluster="larch",
        sheet=sheet,
        zone="Europe/Tallinn",
        taken=datetime(2026, 11, 21, 17, 40, tzinfo=UTC),
        **{"source": UsageSource.REQUESTED, **values},
    )


def many(count: int, months: int = 3, *, measures: tuple[Measure, ...] = (CPU, GPU)) -> Sheet:
    """`count` accounts with users, the same ones each time."""
    chance, shown = Random(count), last_months(PRESENT, months)
    return Sheet(measures, shown, tuple(_made(chance, n, shown) for n in range(count)))


def _made(chance: Random, number: int, months: tuple[Month, ...]) -> AccountFigures:
    scale = chance.paretovariate(1.1)
    people = chance.sample(PEOPLE, chance.randint(1, 4))
    users = {
        f"{person}{chance.randint(1, 30):02}": figures({
            "cpu": {m: f"{400 * scale * chance.random():.2f}" for m in months},
            "gres/gpu": {m: f"{9 * scale * chance.random():.2f}" for m in months},
        })
        for person in people
    }  # fmt: skip
    whole = {key: sum((f[key] for f in users.values()), Decimal(0)) for key in next(iter(users.values()))}
    most = {n: max(amount for (name, _), amount in whole.items() if name == n) for n in ("cpu", "gres/gpu")}
    limits = {n: Decimal(round(float(amount) * chance.uniform(0.7, 4)) + 1) for n, amount in most.items()}
    return account(
        f"hpc_project_{number:03}",
        title=NAMES[number % len(NAMES)] + (f" {number}" if number >= len(NAMES) else ""),
        project=f"Project {number // 3} of {NAMES[number // 3 % 3]}",
        figures=whole,
        users=users,
        limits=limits,
    )
