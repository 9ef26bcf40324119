# SPDX-License-Identifier: MIT
"""How long the next command will take on a cluster of this size, and so how much one command may carry.

slurmdbd keeps a tree by numbers: each association that is added or removed renumbers all behind it, and `load` and
`add account` read everything first (docs/slurm.md, section 1). The prices are those of SLURM 22.05 on a machine of two
processors, with the worst place in the tree. What commands really took, against what was expected, is one factor for
each kind; it is remembered for the next process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from agent.core.actions import ClusterAction
from backends.base import CostFactors
from backends.slurm.grouping import NAMES_AT_ONCE

# Of a file that makes accounts, and of one that only adds users.
LOAD, LOAD_USERS = "load", "load users"

# What a command should take, and what none should exceed, on clusters of up to SMALL_ROWS associations, and of
# LARGE_ROWS and more. Nobody waits longer for the lock than one command takes. A load, which reads everything before
# it begins, takes so much of the limit.
AIMS_S = (3.5, 5.0)
LIMITS_S = (5.0, 10.0)
LOAD_SHARE = 0.9
SMALL_ROWS, LARGE_ROWS = 10_000, 50_000
# A removal of an association that is older than a day renumbers nothing. The next one may be younger: what was quick
# makes batches no longer than this allows.
LEAST_FACTOR, MOST_FACTOR = 0.5, 20.0
# Of what a command takes by itself: more commands would only make it longer.
LEAST_SHARE, LEAST_SHARE_BELOW_LIMIT = 0.25, 0.1
# A factor is written down when it has changed by so much.
WORTH_WRITING = 1.25
# Actions of one account (`add user`) or parent (`add account`) share a renumbering: so many weigh as one.
SHARING = 20


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds: of a command; more for each row of the tree; of each unit of its work; more for each row. `square_s`:
    more for each two rows, where slurmdbd compares all users with all associations.
    """

    command_s: float
    row_s: float
    square_s: float
    unit_s: float
    unit_row_s: float

    def seconds(self, units: float, rows: int) -> float:
        base_s = self.command_s + rows * self.row_s + rows**2 * self.square_s
        return base_s + units * (self.unit_s + rows * self.unit_row_s)


RENUMBERING_ROW_S = 7.5e-6
PRICES: Mapping[str, Price] = {
    # A unit is a group of new rows below one parent, with its lines.
    LOAD: Price(1.1, 4e-4, 6e-9, 0.02, RENUMBERING_ROW_S),
    LOAD_USERS: Price(0.8, 1.7e-4, 6e-9, 0.02, RENUMBERING_ROW_S),
    "add account": Price(0.55, 1.7e-4, 0.0, 0.002, RENUMBERING_ROW_S),
    "add user": Price(0.65, 1e-5, 0.0, 0.002, RENUMBERING_ROW_S),
    "remove user": Price(0.45, 5e-6, 0.0, 0.002, RENUMBERING_ROW_S),
    "remove account": Price(0.45, 5e-6, 0.0, 0.002, RENUMBERING_ROW_S),
    "move account": Price(0.4, 5e-6, 0.0, 0.002, 4 * RENUMBERING_ROW_S),
}
OTHER = Price(0.4, 0.0, 0.0, 0.001, 0.0)


def kind_of(argv: Sequence[str]) -> str:
    """Return by which price a command of sacctmgr goes."""
    if argv[:2] == ("modify", "account") and argv[-1].startswith("parent="):
        return "move account"
    return " ".join(argv[:2])


def units_of(kind: str, actions: Sequence[ClusterAction]) -> float:
    """Return the work of the command of these actions."""
    one_parent = kind == "add account" or (
        kind == "add user" and len({a.ids()["account"] for a in actions}) == 1
    )
    return 1 + len(actions) / SHARING if one_parent else len(actions)


def first_of(actions: Sequence[ClusterAction], at_most: int) -> Sequence[ClusterAction]:
    """Return the first actions of a command that may carry so many. Of a command about users and accounts that is a
    whole product of both again, or one user with some accounts.
    """
    if len(actions) <= at_most or "user" not in actions[0].ids():
        return actions[:at_most]
    accounts = len({action.ids().get("account", "") for action in actions})
    size = at_most - at_most % accounts if accounts <= at_most else at_most
    return sorted(
        actions, key=lambda action: (action.ids().get("user", ""), action.ids().get("account", ""))
    )[:size]


class Costs:
    """The costs of one cluster. `rows`: how many associations it had when it was read last."""

    def __init__(self, rows: Callable[[], int], factors: CostFactors) -> None:
        self._rows = rows
        self._memory = factors
        self._factors: dict[str, float] = {}

    @property
    def aim_s(self) -> float:
        return self._by_size(*AIMS_S)

    @property
    def limit_s(self) -> float:
        return self._by_size(*LIMITS_S)

    def _by_size(self, small: float, large: float) -> float:
        share = (self._rows() - SMALL_ROWS) / (LARGE_ROWS - SMALL_ROWS)
        return small + (large - small) * min(1.0, max(0.0, share))

    def seconds(self, kind: str, units: float) -> float:
        """Return what a command will take."""
        return self._factor(kind) * PRICES.get(kind, OTHER).seconds(units, self._rows())

    def units_at_once(self, kind: str, aim_s: float | None = None) -> int:
        """Return how much work a command may carry to take about `aim_s`, else as long as it should. Where the command
        itself takes that long, so much that its work is at least a part of it.
        """
        base_s, unit_s = self.seconds(kind, 0), self.seconds(kind, 1) - self.seconds(kind, 0)
        least_s = base_s * LEAST_SHARE
        if base_s < self.limit_s:
            least_s = min(least_s, max(self.limit_s - base_s, base_s * LEAST_SHARE_BELOW_LIMIT))
        work_s = max((self.aim_s if aim_s is None else aim_s) - base_s, least_s)
        return max(1, min(NAMES_AT_ONCE, int(work_s / unit_s)))

    def actions_at_once(self, kind: str, actions: Sequence[ClusterAction]) -> int:
        """Return how many of these actions one command may carry."""
        return ceil(self.units_at_once(kind) * len(actions) / units_of(kind, actions))

    def total_s(self, kind: str, actions: Sequence[ClusterAction]) -> float:
        """Return what these actions will take, in as many commands as they need."""
        base_s = self.seconds(kind, 0)
        work_s = self.seconds(kind, units_of(kind, actions)) - base_s
        return ceil(len(actions) / self.actions_at_once(kind, actions)) * base_s + work_s

    def note(self, kind: str, units: float, seconds: float) -> None:
        """Learn from a command. One that was slow counts at once, one that was quick by a quarter."""
        before = self._factor(kind)
        found = seconds / PRICES.get(kind, OTHER).seconds(units, self._rows())
        if found < before:
            found = before + (found - before) / 4
        self._factors[kind] = after = min(MOST_FACTOR, max(LEAST_FACTOR, found))
        if max(after / before, before / after) >= WORTH_WRITING:
            self._memory.write(kind, after)

    def _factor(self, kind: str) -> float:
        if kind not in self._factors:
            found = self._memory.read(kind) or 1.0
            self._factors[kind] = min(MOST_FACTOR, max(LEAST_FACTOR, found))
        return self._factors[kind]
