# SPDX-License-Identifier: MIT
"""Carry out changes of groups, one group after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from agent.core.directory_actions import DirectoryAction
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.plans import Outcome


def group_by_group(
    actions: Iterable[DirectoryAction], change: Callable[[str, Sequence[DirectoryAction]], list[Outcome]]
) -> list[Outcome]:
    """Return one outcome for each action. `change` carries out those of one group, by its name: its error fails these,
    an outage all that follow.
    """
    outcomes: list[Outcome] = []
    outage: BackendUnavailable | None = None
    for name, several in groupby(actions, key=lambda action: action.for_account):
        listed = list(several)
        try:
            if outage is not None:
                raise outage
            outcomes += change(name, listed)
        except BackendUnavailable as error:
            outage = error
            outcomes += [Outcome(action, error) for action in listed]
        except BackendError as error:
            outcomes += [Outcome(action, error) for action in listed]
    return outcomes
