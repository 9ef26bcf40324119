# SPDX-License-Identifier: MIT
"""How much one command carries: batches grow while commands are quick, and shrink when one took long.

What a command takes by itself, and more for each unit of its work, is learnt for each kind of command from what the
commands took, and is remembered for the next process. So is what the next ones will take. The first guess is what was
measured on two processors: where the tree has places (up to 23.02) that of 22.05, whose slurmdbd renumbers its tree for
each association that is added or removed, else that of 24.11, which is slower than 26.05 (docs/slurm.md, section 1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from agent.core.actions import ClusterAction
from backends.base import ClusterHints
from backends.slurm.grouping import NAMES_AT_ONCE

# Of a file that makes accounts, and of one that only adds users.
LOAD, LOAD_USERS = "load", "load users"

# What no command should exceed, on clusters of up to SMALL_ROWS associations, and of LARGE_ROWS and more: no writer
# waits longer for the lock than one command takes. The work of a batch aims at a share of what a command by itself
# leaves of it; a load, which reads everything before it begins, as a whole at another. Where a command by itself takes
# that long, the work is at least a share of that.
LIMITS_S = (5.0, 10.0)
SMALL_ROWS, LARGE_ROWS = 10_000, 50_000
TARGET_SHARE = 0.8
LOAD_SHARE = 0.9
LEAST_SHARE = 0.25
# A batch grows so much at once at most.
GROWTH = 2.0
# From two commands whose work differs by so much, what one takes by itself is computed.
APART = 1.3
# What is learnt is written down when it has changed by so much: by the kind, and with this behind it.
WORTH_WRITING = 1.25
UNIT = ", a unit"
# Actions of one account (`add user`) or parent (`add account`) share a renumbering: so many weigh as one. Each takes
# 8 to 14 ms of processor time by itself, beside 10,000 associations (22.05).
SHARING = 10

COMMAND_S = 0.5
UNIT_S = 0.002
REMOVALS = ("remove user", "remove account")


@dataclass(frozen=True, slots=True)
class Guess:
    """What commands are taken to cost before it is known, by kind: seconds of a command by itself, more for each
    association where it reads them all first; seconds of a unit of its work, more for each association where those
    behind it are renumbered, or looked through.
    """

    reading_row_s: Mapping[str, float]
    unit_s: Mapping[str, float]
    unit_row_s: Mapping[str, float]


PLACED = Guess(
    reading_row_s={LOAD: 8e-4, LOAD_USERS: 2.5e-4, "add account": 1.7e-4},
    unit_s={},
    unit_row_s=dict.fromkeys(
        (LOAD, LOAD_USERS, *REMOVALS, "add account", "add user", "move account"), 7.5e-6
    ),
)
# A load asks twice for each user of the cluster: 18,000 answers of MariaDB beside 10,000 associations. On a busy
# machine it takes ten times as long.
UNPLACED = Guess(
    reading_row_s={LOAD: 3.3e-4, LOAD_USERS: 3.3e-4},
    unit_s={LOAD: 0.005, LOAD_USERS: 0.005, "add user": 0.01},
    unit_row_s=dict.fromkeys(REMOVALS, 7.5e-6),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a command by itself, and of each unit of its work."""

    command_s: float
    unit_s: float


def kind_of(argv: Sequence[str]) -> str:
    """Return by which price a command of sacctmgr goes."""
    if argv[:2] == ("modify", "account") and argv[-1].startswith("parent="):
        return "move account"
    return " ".join(argv[:2])


def leading_actions(actions: Sequence[ClusterAction], at_most: int) -> Sequence[ClusterAction]:
    """Return the first actions of a command that may carry so many. Of a command about users and accounts, which is
    about all pairs of both, that is all of some users, or some of one.
    """
    if len(actions) <= at_most or "user" not in actions[0].ids():
        return actions[:at_most]

    def place(action: ClusterAction) -> tuple[str, str]:
        return action.ids().get("user", ""), action.ids().get("account", "")

    ordered = sorted(actions, key=place)
    users = [place(action)[0] for action in ordered]
    # Not among the actions of a user, unless it is the first.
    size = at_most - next((n for n in range(at_most) if users[at_most - n - 1] != users[at_most]), at_most)
    return ordered[: size or at_most]


class Costs:
    """The costs of one cluster. `rows`: how many associations it had when it was read last, `is_placed`: whether each
    has its place among all others, so that those behind it are renumbered.
    """

    def __init__(
        self,
        rows: Callable[[], int],
        hints: ClusterHints[float],
        is_placed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._rows = rows
        self._hints = hints
        self.is_placed = is_placed
        self._learnt: dict[str, Cost] = {}
        # The units and the seconds of an earlier command of each kind.
        self._reference: dict[str, tuple[float, float]] = {}

    @property
    def limit_s(self) -> float:
        share = (self._rows() - SMALL_ROWS) / (LARGE_ROWS - SMALL_ROWS)
        return LIMITS_S[0] + (LIMITS_S[1] - LIMITS_S[0]) * min(1.0, max(0.0, share))

    @cached_property
    def _remembered(self) -> Mapping[str, float]:
        """What the processes before this one have learnt: read once, and not for every question."""
        return self._hints.read()

    def of(self, kind: str) -> Cost:
        if kind not in self._learnt:
            guess = self._guess(kind)
            command_s, unit_s = self._remembered.get(kind), self._remembered.get(kind + UNIT)
            if command_s is None or unit_s is None or command_s < 0 or unit_s <= 0:
                return guess
            self._learnt[kind] = Cost(command_s, max(unit_s, self._least_unit_s(kind)))
        return self._learnt[kind]

    def _guess(self, kind: str) -> Cost:
        rows, guess = self._rows(), PLACED if self.is_placed() else UNPLACED
        unit_s = guess.unit_s.get(kind, UNIT_S) + rows * guess.unit_row_s.get(kind, 0.0)
        return Cost(COMMAND_S + rows * guess.reading_row_s.get(kind, 0.0), unit_s)

    def _least_unit_s(self, kind: str) -> float:
        """Return what a unit is taken to cost at least. A removal of an association that is older than a day renumbers
        nothing, and its age is unknown: the next one may be younger.
        """
        return self._guess(kind).unit_s / GROWTH if kind in REMOVALS and self.is_placed() else 0.0

    def units_of(self, kind: str, actions: Sequence[ClusterAction]) -> float:
        """Return the work of the command of these actions."""
        is_shared = kind == "add account" or (
            kind == "add user" and len({a.ids()["account"] for a in actions}) == 1
        )
        return 1 + len(actions) / SHARING if is_shared and self.is_placed() else len(actions)

    def seconds(self, kind: str, units: float) -> float:
        """Return what a command will take."""
        cost = self.of(kind)
        return cost.command_s + units * cost.unit_s

    def units_at_once(self, kind: str, target_s: float = 0.0) -> int:
        """Return how much work a command may carry to take about `target_s`, else as long as it should. Where the
        command itself takes that long, so much that its work is at least a part of it. What is only guessed is half
        of that.
        """
        cost = self.of(kind)
        units = self._work_s(cost.command_s, target_s) / cost.unit_s
        return max(1, int(min(NAMES_AT_ONCE, units if target_s or kind in self._learnt else units / GROWTH)))

    def _work_s(self, command_s: float, target_s: float = 0.0) -> float:
        work_s = target_s - command_s if target_s else TARGET_SHARE * (self.limit_s - command_s)
        return max(work_s, LEAST_SHARE * command_s)

    def actions_at_once(self, kind: str, actions: Sequence[ClusterAction]) -> int:
        """Return how many of these actions one command may carry."""
        return ceil(self.units_at_once(kind) * len(actions) / self.units_of(kind, actions))

    def total_s(self, kind: str, actions: Sequence[ClusterAction]) -> float:
        """Return what these actions will take, in as many commands as they need."""
        cost = self.of(kind)
        commands = ceil(len(actions) / self.actions_at_once(kind, actions))
        return commands * cost.command_s + self.units_of(kind, actions) * cost.unit_s

    def note(self, kind: str, units: float, seconds: float) -> None:
        """Learn from a command. The next may carry up to twice as much, or as much less as it was slow."""
        before = self.of(kind)
        command_s = min(before.command_s, seconds)
        other = self._reference.setdefault(kind, (units, seconds))
        (less, less_s), (more, more_s) = sorted([other, (units, seconds)])
        if more >= APART * less:
            command_s = max(0.0, min(less_s, more_s, (less_s * more - more_s * less) / (more - less)))
            self._reference[kind] = units, seconds
        most = GROWTH * max(units, self.units_at_once(kind))
        found_s = max((seconds - command_s) / units, self._work_s(command_s) / most)
        self._learnt[kind] = after = Cost(command_s, max(found_s, self._least_unit_s(kind)))
        changes = ((before.command_s, after.command_s), (before.unit_s, after.unit_s))
        if any(max(change) >= WORTH_WRITING * min(change) for change in changes):
            self._hints.write({kind: after.command_s, kind + UNIT: after.unit_s})
