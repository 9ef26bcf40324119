# SPDX-License-Identifier: MIT
"""The one component that MAM knows: `deposit`, an amount of its currency, in Waldur's unit for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.config.model import Problem, Severity
from agent.core.model import Component
from backends.base import KnownComponents

DEPOSIT = "deposit"


def known(configured: Mapping[str, Component], path: str) -> KnownComponents:
    """`deposit` alone, with a factor of 1: an amount of Waldur is the same amount in MAM."""
    problems = [
        Problem(Severity.WARNING, f"{path}.{name}", f"MOAB knows no component but `{DEPOSIT}`: it is ignored")
        for name in configured
        if name != DEPOSIT
    ]
    component = configured.get(DEPOSIT)
    if component is None:
        missing = (
            f"MOAB needs the component `{DEPOSIT}`: what Waldur sells is an amount in the fund of an account"
        )
        return KnownComponents({}, (*problems, Problem(Severity.ERROR, f"{path}.{DEPOSIT}", missing)))
    plain = replace(component, unit_factor=1.0, unit_factor_reporting=None, targets={})
    if plain != replace(component, targets=dict(component.targets)):
        problems.append(
            Problem(
                Severity.WARNING,
                f"{path}.{DEPOSIT}",
                "MAM counts in the currency itself: factors and `target_components` are ignored",
            )
        )
    return KnownComponents({DEPOSIT: plain}, tuple(problems))
