# SPDX-License-Identifier: MIT
"""A mode that fails in any of its steps: what becomes of the pass, of the modes after it, and of what it had open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.actions import Action, ClusterAction, CreateAccount
from agent.core.errors import BackendUnavailable, PassUnfinished, SiteAgentError
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.plan.policy.rules import PolicyContext
from agent.run import engine
from agent.run.engine import Portion, Work
from agent.run.gate import Pass
from agent.run.results import PassReport
from agent.state import journal
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.membership.world import World

STEPS = ("observe", "plan", "refine", "announce", "portions", "apply", "read_back", "tell")
BEFORE_APPLY = STEPS[:5]
ACTION = CreateAccount(account="a_new", parent="root")


@dataclass(frozen=True)
class Planned:
    actions: Sequence[Action]
    snapshot: Snapshot
    context: PolicyContext = field(default_factory=PolicyContext)
    is_whole: bool = False


class Broken(engine.Mode[Snapshot, Planned]):
    """Makes an account; raises `error` in its step `at`."""

    key = "broken"
    at = ""
    error: Exception

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self.open.callback(run.leave, Closed())

    def _step(self, name: str) -> None:
        if name == self.at:
            raise self.error

    def observe(self) -> Snapshot:
        self._step("observe")
        return self.site.backend.observe()

    def plan(self, facts: Snapshot) -> Planned:
        self._step("plan")
        return Planned([ACTION] if ACTION.account not in facts.accounts else [], facts)

    def refine(self, facts: Snapshot, plan: Planned) -> Snapshot | None:
        self._step("refine")
        return super().refine(facts, plan)

    def announce(self, work: Work[Planned]) -> Planned | None:
        self._step("announce")
        return super().announce(work)

    def portions(self, work: Work[Planned]) -> Iterator[Portion]:
        self._step("portions")
        yield from super().portions(work)

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        self._step("apply")
        return super().apply(actions)

    def read_back(self, work: Work[Planned], portion: Portion, outcomes: Sequence[Outcome]) -> None:
        self._step("read_back")
        super().read_back(work, portion, outcomes)

    def tell(self, work: Work[Planned]) -> None:
        self._step("tell")


class BrokenBeside(Broken):
    beside = "broken things"


class Closed:
    """What the mode had open is closed."""


class After(engine.Mode[Snapshot, Planned]):
    """Leaves a mark: it was reached."""

    key = "after"

    def observe(self) -> None:
        self.run.leave(Mark())


class Mark:
    pass


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with SimulatedWaldur(scenario=Scenario()) as waldur:
        yield World(waldur, tmp_path)


def walked(
    world: World, kind: type[Broken], at: str, error: Exception, *, applies: bool = True
) -> tuple[PassReport, Pass]:
    broken = type(kind.__name__, (kind,), {"at": at, "error": error})
    with engine.passing(world.site, Mode.MEMBERSHIP_SYNC, is_recorded=False, applies=applies) as run:
        engine.walk(run, [broken, After])
    return run.report, run


def made(world: World) -> bool:
    return ACTION.account in world.cluster.accounts


@pytest.mark.parametrize("at", STEPS)
def test_a_mode_beside_the_others_costs_its_own_part_only(world: World, at: str) -> None:
    report, run = walked(world, BrokenBeside, at, BackendUnavailable("no answer"))
    assert report.error is None
    assert run.result(Mark) is not None, "the modes after it have their turn"
    assert run.result(Closed) is not None
    assert [each for each in report.problems if each.startswith("broken things: ")] != []
    assert str(report.retryable_error) == "no answer"
    assert made(world) == (at not in (*BEFORE_APPLY, "apply"))


@pytest.mark.parametrize("at", STEPS)
def test_the_mode_of_a_pass_ends_it_where_it_cannot_go_on(world: World, at: str) -> None:
    report, run = walked(world, Broken, at, BackendUnavailable("no answer"))
    # What happens to a portion the mode itself reports.
    goes_on = at in ("apply", "read_back")
    assert (report.error is None, run.result(Mark) is not None) == (goes_on, goes_on)
    assert run.result(Closed) is not None
    assert made(world) == (at not in (*BEFORE_APPLY, "apply"))


@pytest.mark.parametrize("at", STEPS)
def test_a_fault_of_the_program_is_not_swallowed(world: World, at: str) -> None:
    with pytest.raises(ZeroDivisionError):
        walked(world, BrokenBeside, at, ZeroDivisionError("a slip"))
    assert made(world) == (at not in (*BEFORE_APPLY, "apply"))


@pytest.mark.parametrize("at", STEPS[3:])
def test_a_pass_that_does_not_apply_ends_each_mode_after_its_decision(world: World, at: str) -> None:
    report, run = walked(world, Broken, at, ZeroDivisionError("never reached"), applies=False)
    assert report.error is None
    assert [each.render() for each in run.works[0].decision.allowed] == [ACTION.render()]
    assert not made(world)
    assert list(journal.read(world.site.state_dir)) == []


@pytest.mark.parametrize("error", [BackendUnavailable("no answer"), PassUnfinished("too late")])
def test_what_cannot_be_planned_is_told_and_the_rest_is_shown(world: World, error: SiteAgentError) -> None:
    report, run = walked(world, BrokenBeside, "observe", error, applies=False)
    assert report.notes == [f"broken things cannot be planned: {error}"]
    assert run.result(Mark) is not None


def test_what_was_done_is_in_the_journal_before_the_next_portion_fails(world: World) -> None:
    """Not only at the end of the pass: a kill must lose nothing of it."""
    walked(world, Broken, "read_back", BackendUnavailable("no answer"))
    assert [each for each in journal.read(world.site.state_dir) if "create account a_new" in str(each)] != []
