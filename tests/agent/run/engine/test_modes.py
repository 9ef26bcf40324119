# SPDX-License-Identifier: MIT
"""A mode that fails in any of its steps: what becomes of the pass, of the modes after it, and of what it had open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.actions import Action, ClusterAction, CreateAccount, RemoveMember
from agent.core.associations import Association
from agent.core.errors import BackendUnavailable, PassUnfinished, SiteAgentError
from agent.core.model import Account, Snapshot
from agent.core.plans import Outcome
from agent.core.policy import JournalFailures
from agent.plan.policy.rules import PolicyContext, Why
from agent.run import engine
from agent.run.engine import Portion, Work
from agent.run.gate import Pass
from agent.run.results import PassReport
from agent.state import journal, pauses
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.world import World

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


class BrokenOptional(Broken):
    optional_name = "broken things"


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
def test_an_optional_mode_costs_its_own_part_only(world: World, at: str) -> None:
    report, run = walked(world, BrokenOptional, at, BackendUnavailable("no answer"))
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
        walked(world, BrokenOptional, at, ZeroDivisionError("a slip"))
    assert made(world) == (at not in (*BEFORE_APPLY, "apply"))


@pytest.mark.parametrize("at", STEPS[3:])
def test_a_pass_that_does_not_apply_ends_each_mode_after_its_decision(world: World, at: str) -> None:
    report, run = walked(world, Broken, at, ZeroDivisionError("never reached"), applies=False)
    assert report.error is None
    assert [each.render() for each in run.works[0].decision.allowed] == [ACTION.render()]
    assert not made(world)
    assert list(journal.read(world.site.state_dir)) == []


@pytest.mark.parametrize("error", [BackendUnavailable("no answer"), PassUnfinished("too late")])
def test_what_cannot_be_planned_is_named_and_the_rest_is_printed(world: World, error: SiteAgentError) -> None:
    report, run = walked(world, BrokenOptional, "observe", error, applies=False)
    assert report.notes == [f"broken things cannot be planned: {error}"]
    assert run.result(Mark) is not None


def test_what_was_done_is_in_the_journal_before_the_next_portion_fails(world: World) -> None:
    """Not only at the end of the pass: a kill must lose nothing of it."""
    walked(world, Broken, "read_back", BackendUnavailable("no answer"))
    assert [each for each in journal.read(world.site.state_dir) if "create account a_new" in str(each)] != []


# What holds for every mode ----------------------------------------------------------------------------


class Several(Broken):
    """Makes several accounts, one in a portion; `before` is called before each."""

    at_once = 1
    names: tuple[str, ...] = ("a_first", "a_second")
    before: Callable[[str], None] = staticmethod(lambda _: None)

    def plan(self, facts: Snapshot) -> Planned:
        wanted = [CreateAccount(account=name, parent="root") for name in self.names]
        return Planned([each for each in wanted if each.account not in facts.accounts], facts)

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        self.before(actions[0].account)
        return super().apply(actions)


def several(world: World, **changes: Any) -> Pass:
    kind = type("OneOfSeveral", (Several,), changes)
    with engine.passing(world.site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        engine.walk(run, [kind, After])
    return run


def stopping(world: World) -> World:
    """The same world, of whose site nothing may happen that is not written down."""
    rules = replace(world.site.offering.policy, journal_failures=JournalFailures.STOP)
    world.site = replace(world.site, offering=replace(world.site.offering, policy=rules))
    return world


def test_the_pause_is_read_once_in_a_pass(world: World) -> None:
    """Whoever pauses while a pass is at work stops the next one; a pass that began in a pause changes nothing."""
    state_dir, offering = world.site.state_dir, world.site.offering

    class Pausing(Several):
        names = ("a_1",)

        def observe(self) -> Snapshot:
            pauses.pause(state_dir, offering, by="ann")
            return super().observe()

    class Resuming(Several):
        names = ("a_3",)

        def observe(self) -> Snapshot:
            pauses.resume(state_dir, offering)
            return super().observe()

    made: list[set[str]] = []
    for first, second in ((Pausing, "a_2"), (Resuming, "a_4")):
        with engine.passing(world.site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
            engine.walk(run, [first, type("Second", (Several,), {"names": (second,)})])
        made.append({name for name in world.cluster.accounts if name.startswith("a_")})
    assert made == [{"a_1", "a_2"}] * 2
    assert [each.why for each in run.report.refused] == [Why.PAUSED] * 2


def test_each_portion_is_in_the_journal_before_the_next_begins(world: World) -> None:
    seen: dict[str, list[str]] = {}

    def before(account: str) -> None:
        seen[account] = [str(line["action"]["text"]) for line in journal.read(world.site.state_dir)]

    several(world, before=staticmethod(before))
    assert seen["a_first"] == []
    assert [text.split("  ")[0] for text in seen["a_second"]] == ["create account a_first below root"]


def test_a_portion_does_not_begin_where_the_journal_cannot_be_written(world: World) -> None:
    """It could when the pass began, and when the portion before it did."""
    stopping(world)

    def before(account: str) -> None:
        if account == "a_second":
            folder = world.site.state_dir / "journal"
            folder.rename(folder.with_name("full"))
            folder.write_text("no folder")

    run = several(world, names=("a_first", "a_second", "a_third"), before=staticmethod(before))
    assert {"a_first", "a_second"} <= world.cluster.accounts.keys()
    assert "a_third" not in world.cluster.accounts
    assert run.result(Mark) is not None


def test_what_the_backend_says_is_done_and_does_not_show_has_failed(world: World) -> None:
    class Believing(BrokenOptional):
        def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
            return [Outcome(action) for action in actions]

    with engine.passing(world.site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        engine.walk(run, [Believing])
    (problem,) = run.report.problems
    assert problem == (
        "broken things: 1 of 1 actions failed, the first: create account a_new below root: it is not there: create "
        "account a_new below root"
    )


class Mixed(Several):
    """Makes accounts, one of which the site protects, and lets everybody leave another one: too many at once."""

    leavers = frozenset(f"u{number}" for number in range(30))

    def observe(self) -> Snapshot:
        seen = self.site.backend.observe()
        accounts = {**seen.accounts, "a_full": Account("a_full", "root")}
        inside = frozenset(Association("a_full", user) for user in self.leavers)
        return replace(seen, accounts=accounts, associations=seen.associations | inside)

    def plan(self, facts: Snapshot) -> Planned:
        made = [CreateAccount(account=name, parent="root") for name in ("a_first", "kept", "a_second")]
        left = [RemoveMember(account="a_full", user=user) for user in sorted(self.leavers)]
        context = PolicyContext(named=frozenset({"a_full"}), derived={"a_full": True})
        return Planned([*made, *left], facts, context=context)


@pytest.fixture
def mixed(world: World) -> World:
    rules = replace(world.site.offering.policy, protected_accounts=frozenset({"kept"}))
    world.site = replace(world.site, offering=replace(world.site.offering, policy=rules))
    return world


def test_each_action_is_in_exactly_one_of_allowed_held_and_refused(mixed: World) -> None:
    with engine.passing(mixed.site, Mode.MEMBERSHIP_SYNC, applies=False) as run:
        engine.walk(run, [Mixed])
    (work,) = run.works
    parts = (
        set(work.decision.allowed),
        {action for plan in work.decision.held for action in plan.actions},
        {each.action for each in work.decision.refused},
    )
    assert [len(part) for part in parts] == [2, len(Mixed.leavers), 1]
    assert set.union(*parts) == set(work.plan.actions)
    assert sum(map(len, parts)) == len(work.plan.actions)


def test_what_is_held_and_refused_is_reported_once_where_a_plan_is_narrowed(mixed: World) -> None:
    class Narrowed(Mixed):
        times = 0

        def announce(self, work: Work[Planned]) -> Planned | None:
            type(self).times += 1
            return work.plan if self.times < 3 else None

    with engine.passing(mixed.site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        engine.walk(run, [Narrowed])
    assert Narrowed.times == 3
    assert (len(run.report.held), len(run.report.refused)) == (1, 1)


@pytest.mark.parametrize("number", [1, 3], ids=["refused", "held"])
def test_a_mode_that_carries_out_what_is_not_allowed_is_a_fault_of_the_program(
    mixed: World, number: int
) -> None:
    class Bold(Mixed):
        def portions(self, work: Work[Planned]) -> Iterator[Portion]:
            yield Portion((work.plan.actions[0],))
            yield Portion((work.plan.actions[2], work.plan.actions[number]))

    with (
        pytest.raises(AssertionError, match="not allowed by the policy"),
        engine.passing(mixed.site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run,
    ):
        engine.walk(run, [Bold])
    assert "a_first" in mixed.cluster.accounts
    assert mixed.cluster.accounts.keys().isdisjoint({"kept", "a_second"})
