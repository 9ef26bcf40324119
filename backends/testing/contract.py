# SPDX-License-Identifier: MIT
"""What every backend keeps: read whole, write once, report each action truly, harm nothing unknown.

A suite for pytest, with the plugin `backends.testing.plugin`. It needs an empty cluster. One batch makes the accounts
of all tests, for a write may cost half a second; each test uses its own. What others rest on is tested first, and a
test is skipped where one that it needs has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from agent.core.actions import (
    Action,
    AddMember,
    AllowSubmission,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
)
from agent.core.associations import Association
from agent.core.errors import BackendError, BackendUnavailable, NotEmpty, PlanRefused, SiteAgentError
from agent.core.model import AccountSpec, AllocationSpec, MemberQos, Part, RequestedState, Snapshot
from agent.core.periods import Month
from agent.core.plans import Outcome
from agent.core.printable import printable
from agent.core.usage import UsageQuery, require_counts, require_whole
from agent.plan import accounts
from backends.base import BULK_PARTS, Backend, KeyPower, Reread, Scope, UsageCounter, UsageReader

CUSTOMER, PROJECT = "c_cust", "p_proj"
MANY = ("a_many0", "a_many1", "a_many2")
BELOW = {"p_go": ("a_go1", "a_go2"), "p_full": ("a_below",)}
ACCOUNTS = (
    "a_limits", "a_in", "a_out", "a_part", "a_block1", "a_block2", "a_move", "a_pause", "a_stay", "a_go", *BELOW, *MANY,
    "a_mix", "a_few", "a_other", "a_held",
)  # fmt: skip
TREE = Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
Limits = Mapping[str, int]


def new(name: str, parent: str = PROJECT) -> CreateAccount:
    return CreateAccount(account=name, parent=parent, description="d", organization="o")


def join(name: str, user: str, *, partitions: tuple[str, ...] = ()) -> AddMember:
    return AddMember(account=name, user=user, partitions=partitions)


def leave(name: str, user: str, *, default: bool = False) -> RemoveMember:
    return RemoveMember(account=name, user=user, is_default=default)


WORK: Mapping[str, Sequence[ClusterAction | str]] = {
    "nothing": [],
    "the same new limits of many accounts": MANY,
    "many members of one account": [join("a_many0", f"m{n}") for n in range(20)],
    "the same members of many accounts": [join(name, f"m{m}") for name in MANY for m in range(5)],
    "the same leavers of many accounts": [leave(name, f"m{m}") for name in MANY[1:] for m in range(5)],
    "names that cannot be": [join("a_many0", "a,b"), new("a|b")],
}
# What stands already, whichever of these tests ran before.
BEFORE = {
    "the same members of many accounts": [join("a_many0", f"m{n}") for n in range(5)],
    "the same leavers of many accounts": [join(name, f"m{m}") for name in MANY[1:] for m in range(5)],
}
MISSING: Sequence[ClusterAction] = (
    SetLimits(account="a_none", after=(("cpu", 5),)),
    SetQos(account="a_none", after=("normal",), default="normal"),
    BlockSubmission(account="a_none"),
    AllowSubmission(account="a_none"),
    CancelJobs(account="a_none"),
    leave("a_none", "nobody"),
    leave(PROJECT, "nobody"),
    DeleteAccount(account="a_none", parent=PROJECT),
    DeleteQos(account="a_none"),
    MoveDefaultAccount(account=PROJECT, user="nobody", before="a_none"),
)


# What a cluster needs the power for.
BY_POWER: Mapping[str, Sequence[ClusterAction]] = {
    "partitions": [join("a_part", "gil", partitions=("gpu", "main"))],
    "moves": [MoveAccount(account="a_move", before=PROJECT, after=CUSTOMER)],
    "qos": [CreateQos(account="a_mix"), SetQos(account="a_mix", after=("normal",), default="normal")],
}
BAD_NAMES = ("a,b", "a|b", "a=b", "-x", "a\nb")


@dataclass(frozen=True)
class Writes:
    """Writes (`executed["write"]`) that changes cost."""

    # At most, of an allocation with the accounts above it, limits and two members.
    tree: int
    # Of four members of one account, twice.
    joins: int
    # Of blocking two accounts and allowing them.
    alike: int
    # Of three accounts.
    deletions: int
    # Of each kind in `WORK`.
    many: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A backend under contract."""

    # Makes a backend of the same cluster each time, with these `backend_settings`.
    connect: Callable[..., Backend]
    # Makes one whose cluster does not answer.
    away: Callable[[], Backend]
    # The name of a limit that it keeps.
    limit: str = "cpu"
    # Makes one whose `check` finds problems.
    unhealthy: Callable[[], Backend] | None = None
    cluster: str = "test"
    # This word is in its errors about powers that it has not.
    product: str = ""
    # Of all limits that it keeps.
    limit_names: frozenset[str] = frozenset()
    # What `observe()` reads whole.
    parts: frozenset[Part] = BULK_PARTS
    # Users by account of the empty cluster.
    members: Mapping[str, set[str]] = field(default_factory=lambda: {"root": set()})
    # Accounts that the allocation `a_tree` in `p_tree` of `c_tree` brings, with those above them.
    parents: Mapping[str, str] = field(
        default_factory=lambda: {"c_tree": "root", "p_tree": "c_tree", "a_tree": "p_tree"}
    )
    # Of that allocation.
    new_limits: Limits = field(default_factory=dict)
    # Of another allocation, one after the other.
    limit_changes: Sequence[Limits] = ()
    # `canonical` is tried with each.
    settings: Sequence[Mapping[str, object]] = ({},)
    # It leaves so many on a wrong limit and a wrong member, where given.
    notes: int | None = None
    # Actions on the account `a_mix` (member `kim`, 5 of the limit).
    good: Sequence[ClusterAction] = ()
    # Actions on what is not there.
    bad: Sequence[ClusterAction] = ()
    # Bad actions fail with them.
    errors: frozenset[type[SiteAgentError]] = frozenset({NotEmpty})
    # What it has of `partitions`, `moves`, `qos`, `keys`, `usage`.
    powers: frozenset[str] = frozenset()
    # Lets a user use as much of `limit` in an account each time, now: where it is missing, the suite knows of no use.
    use: Callable[[str, str], None] | None = None
    # Of a whole `observe`, where known, like the writes.
    reads: int | None = None
    writes: Writes | None = None

    def good_actions(self) -> Sequence[ClusterAction]:
        return self.good or (join("a_mix", "kim"), SetLimits(account="a_mix", after=((self.limit, 5),)))

    def bad_actions(self) -> Sequence[ClusterAction]:
        return self.bad or (DeleteAccount(account=PROJECT, parent=CUSTOMER),)

    def changes_of_limits(self) -> Sequence[Limits]:
        return self.limit_changes or [{self.limit: amount} for amount in (100, 50, 2_000_000, 0)]


def needs(*tests: Callable[..., None]) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped where one of these has failed: one mistake is one failure."""
    return pytest.mark.needs(*(test.__name__ for test in tests))


def done(outcomes: Sequence[Outcome]) -> None:
    failed = [o for o in outcomes if o.error]
    assert not failed, listed(failed)


def errors(outcomes: Sequence[Outcome]) -> dict[Action, type[SiteAgentError] | None]:
    return {o.action: type(o.error) if o.error else None for o in outcomes}


def listed(outcomes: Sequence[Outcome]) -> str:
    """Return what became of each action, for a failure to show."""
    lines = [
        printable(f"{o.action.render()}: {f'{type(o.error).__name__}: {o.error}' if o.error else 'done'}")
        for o in outcomes
    ]
    return "\n".join(["what became of the actions:", *lines])


def users(snapshot: Snapshot, *names: str) -> list[set[str]]:
    return [set(snapshot.users_of(name)) for name in names]


def limits(snapshot: Snapshot, *names: str) -> list[dict[str, int]]:
    return [dict(snapshot.accounts[name].limits) for name in names]


def spec_of(name: str, *members: str, **wanted: int) -> AllocationSpec:
    return AllocationSpec(
        account=AccountSpec(name, "p_tree", f"Allocation {name}", "p_tree"),
        ancestors=(
            AccountSpec("c_tree", "", "Customer", "c"),
            AccountSpec("p_tree", "c_tree", "Project", "p"),
        ),
        limits=wanted,
        members=members,
    )


def new_accounts() -> list[CreateAccount]:
    """Return what makes the accounts of all tests."""
    above = [new(CUSTOMER, "root"), new(PROJECT, CUSTOMER), *map(new, ACCOUNTS)]
    return [*above, *(new(name, parent) for parent, names in BELOW.items() for name in names)]


def prepared(subject: Subject) -> Backend:
    """Return a backend on a cluster with the accounts of all tests, and ann in each of them."""
    backend = subject.connect()
    backend.observe()
    done(backend.apply([*new_accounts(), *(join(name, "ann") for name in ACCOUNTS if name not in BELOW)]))
    return backend


@needs()  # each test with the fixture `backend`: that the accounts of all tests are read back
class BackendContract:
    """All of the contract: `class TestContract(BackendContract)` and a fixture `subject` that returns a Subject."""

    # Reading ------------------------------------------------------------------------------------

    def test_unknown_is_never_absent(self, subject: Subject) -> None:
        """Assert that a cluster which does not answer is no empty one: reads raise, no action counts as done."""
        away = subject.away()
        for scope in (Scope(), TREE, Scope(BULK_PARTS, frozenset({"a_in"}))):
            with pytest.raises(BackendUnavailable):
                away.observe(scope)
        if isinstance(away, UsageReader):
            with pytest.raises(BackendUnavailable):
                require_whole(away.usage(UsageQuery(Month.of(datetime.now(UTC)))))
        try:
            outcomes = away.apply(
                [new("a_away"), leave("a_in", "ann"), DeleteAccount(account="a_in", parent=PROJECT)]
            )
        except BackendUnavailable:
            return
        assert set(errors(outcomes).values()) == {BackendUnavailable}, listed(outcomes)

    @needs(test_unknown_is_never_absent)
    def test_a_backend_is_healthy_or_says_what_is_wrong(self, subject: Subject) -> None:
        health = subject.connect().check()
        assert health.version[0].isdigit()
        assert (health.cluster, health.problems, health.warnings) == (subject.cluster, (), ())
        if subject.unhealthy:
            assert subject.unhealthy().check().problems

    def test_what_is_spelled_for_the_cluster_once_is_final(self, subject: Subject) -> None:
        known = subject.connect().observe(Scope(frozenset({Part.TRES})))
        wanted = replace(
            spec_of("A_New", "Ann", "b,c", **{subject.limit: 5, "bogus": 7}),
            requested=RequestedState(qos="fast", partition="main"),
        )
        for settings in subject.settings:
            configured = subject.connect(**settings)
            once = configured.canonical(wanted, known)
            assert configured.canonical(once, known) == once
            assert (once.account.name, once.members, once.limits) == ("a_new", ("ann",), {subject.limit: 5})
            assert once.notes
            assert subject.notes in (None, len(once.notes))

    def test_an_empty_cluster_is_read_whole(self, subject: Subject) -> None:
        empty = subject.connect()
        snapshot = empty.observe()
        if subject.reads is not None:
            assert empty.executed == {"read": subject.reads}
        assert set(snapshot.accounts) == set(subject.members)
        for name, people in subject.members.items():
            assert snapshot.accounts[name].parent is None
            assert snapshot.users_of(name) == people
        assert snapshot.default_accounts == {
            user: name for name, people in subject.members.items() for user in people
        }
        assert snapshot.tres >= subject.limit_names | {subject.limit}
        assert snapshot.complete == subject.parts
        assert snapshot.cluster == empty.cluster == subject.cluster

    def test_a_grown_cluster_is_read_at_the_same_cost(self, subject: Subject, backend: Backend) -> None:
        fresh = subject.connect()
        snapshot = fresh.observe()
        made = {action.account: action.parent for action in new_accounts()}
        assert set(snapshot.accounts) == {*subject.members, *made}
        parents = subject.parents  # some clusters keep no level for customers
        wanted = {name: parent for name, parent in made.items() if name != PROJECT or "c_tree" in parents}
        assert {name: snapshot.accounts[name].parent for name in wanted} == wanted
        assert snapshot.accounts_of("ann") == set(ACCOUNTS) - set(BELOW)
        assert snapshot.default_accounts["ann"] in ACCOUNTS
        if subject.reads is not None:
            assert fresh.executed == {"read": subject.reads}
        # Few reads, however many accounts there are: a read per account is what the agent exists to avoid. Three, and
        # three more where a program does not know the faster ones.
        assert fresh.executed["read"] <= 6
        assert not fresh.executed["write"]

    # The truth about each action ----------------------------------------------------------------

    def test_one_bad_action_is_found_among_many_and_the_others_are_done(self, backend: Backend) -> None:
        """Three accounts of one batch, one of which is refused: on SLURM the parent of `a_orphan` is made in no
        batch.
        """
        wanted = [new("a_child1"), new("a_child2")]
        orphan = new("a_orphan", "nosuch")
        outcomes = backend.apply([*wanted, orphan])
        became = {action: error is None for action, error in errors(outcomes).items()}
        assert became == {**dict.fromkeys(wanted, True), orphan: False}, listed(outcomes)
        assert {"a_child1", "a_child2"} <= backend.observe(TREE).accounts.keys()

    @needs(test_one_bad_action_is_found_among_many_and_the_others_are_done)
    def test_a_name_that_is_none_to_the_cluster_is_refused(self, backend: Backend) -> None:
        """Assert that no name reaches a command as two names, as an option, or as another line."""
        before = backend.observe(TREE)
        bad = [each for name in BAD_NAMES for each in (new(name), join("a_mix", name))]
        outcomes = backend.apply(bad)
        assert errors(outcomes) == dict.fromkeys(bad, PlanRefused), listed(outcomes)
        assert backend.observe(TREE) == before

    @needs(test_one_bad_action_is_found_among_many_and_the_others_are_done)
    def test_what_is_below_an_account_never_goes_along_with_it(self, backend: Backend) -> None:
        before = backend.observe(TREE)
        # The project last: all else of this suite is below it.
        for names in ({"p_full": PROJECT, "a_held": PROJECT}, {PROJECT: CUSTOMER}):
            deletions = [DeleteAccount(account=name, parent=parent) for name, parent in names.items()]
            outcomes = backend.apply(deletions)
            assert errors(outcomes) == dict.fromkeys(deletions, NotEmpty), listed(outcomes)
            assert backend.observe(TREE) == before

    @needs(test_one_bad_action_is_found_among_many_and_the_others_are_done)
    def test_what_the_cluster_cannot_keep_is_refused_and_no_account_is_at_fault(
        self, subject: Subject, backend: Backend
    ) -> None:
        lacking = {power: each for power, each in BY_POWER.items() if power not in subject.powers}
        actions = [action for several in lacking.values() for action in several]
        before = backend.observe()
        outcomes = backend.apply(actions)
        refused = {o.action: isinstance(o.error, BackendError) and o.error.of_host for o in outcomes}
        assert refused == dict.fromkeys(actions, True), listed(outcomes)
        assert all(subject.product in str(o.error) for o in outcomes), listed(outcomes)
        assert backend.observe() == before

    @needs(test_one_bad_action_is_found_among_many_and_the_others_are_done)
    def test_what_is_not_there_is_nothing_to_change(self, backend: Backend) -> None:
        before = backend.observe()
        outcomes = backend.apply(MISSING)
        assert errors(outcomes).keys() == set(MISSING), listed(outcomes)
        assert backend.observe() == before

    # Building -----------------------------------------------------------------------------------

    def test_limits_are_set_raised_lowered_and_made_zero_each_for_itself(
        self, subject: Subject, backend: Backend
    ) -> None:
        wanted: dict[str, int] = {}
        for change in subject.changes_of_limits():
            wanted |= change
            done(backend.apply([SetLimits(account="a_limits", after=tuple(change.items()))]))
            assert limits(backend.observe(TREE), "a_limits") == [wanted]

    def test_members_come_twice_and_go_twice_and_only_they(self, subject: Subject, backend: Backend) -> None:
        for name in ("a_out", "a_in"):
            done(backend.apply([join(name, "eli")]))
        joins = [join("a_in", user) for user in ("ann", "carl", "dora", "x.y@z-0_1")]
        writes = backend.executed["write"]
        done(backend.apply(joins))
        done(backend.apply(joins))
        if subject.writes:
            assert backend.executed["write"] == writes + subject.writes.joins
        observed = backend.observe(TREE)
        assert users(observed, "a_in", "a_out") == [
            {"ann", "carl", "dora", "eli", "x.y@z-0_1"},
            {"ann", "eli"},
        ]
        leaves = [
            leave("a_in", "carl", default=True),
            leave("a_in", "x.y@z-0_1", default=True),
            leave("a_in", "eli"),
        ]
        done(backend.apply(leaves))
        done(backend.apply(leaves))
        left = backend.observe()
        assert users(left, "a_in", "a_out") == [{"ann", "dora"}, {"ann", "eli"}]
        assert not left.default_accounts.keys() & {"carl", "x.y@z-0_1"}

    @needs(
        test_limits_are_set_raised_lowered_and_made_zero_each_for_itself,
        test_members_come_twice_and_go_twice_and_only_they,
    )
    def test_an_allocation_is_made_as_desired_and_making_it_again_is_harmless(
        self, subject: Subject, backend: Backend
    ) -> None:
        fresh = subject.connect()
        before = fresh.observe()
        new_limits = subject.new_limits or {subject.limit: 600}
        spec = fresh.canonical(spec_of("a_tree", "eve", "fox", **new_limits), before)
        actions = accounts.building(spec, before, "test")
        done(fresh.apply(actions))
        if subject.writes:
            assert fresh.executed["write"] <= subject.writes.tree
        observed = fresh.observe()
        made = {name: account.parent for name, account in observed.accounts.items() if name.endswith("_tree")}
        assert made == subject.parents
        assert limits(observed, "a_tree") == [new_limits]
        assert users(observed, "a_tree") == [{"eve", "fox"}]
        assert (observed.default_accounts["eve"], observed.default_accounts["fox"]) == ("a_tree", "a_tree")
        assert accounts.building(spec, observed, "test") == []

        done(fresh.apply(actions))
        assert fresh.observe() == observed

    @needs(
        test_one_bad_action_is_found_among_many_and_the_others_are_done,
        test_a_name_that_is_none_to_the_cluster_is_refused,
        test_what_is_below_an_account_never_goes_along_with_it,
        test_limits_are_set_raised_lowered_and_made_zero_each_for_itself,
        test_members_come_twice_and_go_twice_and_only_they,
    )
    def test_each_action_has_one_outcome_in_any_mix(self, subject: Subject, backend: Backend) -> None:
        """Good ones are done, the bad ones fail and change nothing."""
        good, bad = subject.good_actions(), subject.bad_actions()
        before = backend.observe()
        outcomes = backend.apply([*bad, *good])
        wanted = {**dict.fromkeys(good, True), **dict.fromkeys(bad, False)}
        assert {o.action: o.done for o in outcomes} == wanted, listed(outcomes)
        assert len(outcomes) == len(wanted)
        assert {type(o.error) for o in outcomes if o.error} == subject.errors
        observed = backend.observe()
        assert (users(observed, "a_mix"), limits(observed, "a_mix")) == (
            [{"ann", "kim"}],
            [{subject.limit: 5}],
        )
        assert set(observed.accounts) == set(before.accounts)
        assert observed.default_accounts.keys() - before.default_accounts.keys() == {"kim"}

    @needs(test_members_come_twice_and_go_twice_and_only_they)
    def test_a_member_may_be_on_some_partitions_only(self, subject: Subject, backend: Backend) -> None:
        if "partitions" not in subject.powers:
            return
        done(backend.apply(BY_POWER["partitions"]))
        observed = backend.observe(TREE)
        assert {a.partition for a in observed.associations if a.user == "gil"} == {"gpu", "main"}
        done(backend.apply([leave("a_part", "gil", default=True)]))
        assert users(backend.observe(TREE), "a_part") == [{"ann"}]

    def test_submission_is_blocked_and_allowed_for_several_accounts_at_once(
        self, subject: Subject, backend: Backend
    ) -> None:
        names = ("a_block1", "a_block2")
        writes = backend.executed["write"]
        for kind, limit in ((BlockSubmission, 0), (AllowSubmission, None)):
            done(backend.apply([kind(account=name) for name in names]))
            observed = backend.observe(TREE)
            assert [observed.accounts[name].submit_limit for name in names] == [limit, limit]
        if subject.writes:
            assert backend.executed["write"] == writes + subject.writes.alike

    def test_an_account_moves_with_its_members(self, subject: Subject, backend: Backend) -> None:
        if "moves" not in subject.powers:
            return
        done(backend.apply(BY_POWER["moves"]))
        observed = backend.observe(TREE)
        assert (observed.accounts["a_move"].parent, users(observed, "a_move")) == (CUSTOMER, [{"ann"}])

    def test_an_account_may_have_a_qos_of_its_own_that_goes_with_it(
        self, subject: Subject, backend: Backend
    ) -> None:
        if "qos" not in subject.powers:
            return
        owning = subject.connect(qos_management={"enabled": True, "flags": "NoDecay", "max_jobs": 5})
        before = owning.observe()
        spec = owning.canonical(replace(spec_of("a_qos"), ancestors=()), before)
        spec = replace(spec, account=replace(spec.account, parent=PROJECT))
        done(owning.apply(accounts.building(spec, before, "test")))
        observed = owning.observe()
        account = observed.accounts["a_qos"]
        assert "a_qos" in observed.qos
        assert (account.default_qos, account.qos >= {"a_qos", "normal"}) == ("a_qos", True)
        assert accounts.building(spec, observed, "test") == []
        done(owning.apply(accounts.removal("a_qos", observed, default_account="root", reason="test")))
        left = owning.observe(Scope(frozenset({Part.ACCOUNTS, Part.QOS})))
        assert "a_qos" not in left.accounts
        assert left.qos == observed.qos - {"a_qos"}

    @needs(test_an_account_may_have_a_qos_of_its_own_that_goes_with_it)
    def test_a_new_default_qos_reaches_an_account_with_a_member_whose_own_qos_lack_it(
        self, subject: Subject, backend: Backend
    ) -> None:
        if "qos" not in subject.powers:
            return
        own = ("normal", "q_usual")
        for name in ("q_usual", "q_pause"):
            done(backend.apply([CreateQos(account=name)]))
        done(backend.apply([join("a_pause", "nel"), AddMember(account="a_pause", user="own", qos=own)]))
        change = SetQos(account="a_pause", after=("q_pause",), default="q_pause")
        done(backend.apply([change]))
        seen = backend.observe(TREE)
        assert seen.accounts["a_pause"].default_qos == "q_pause"
        assert seen.accounts["a_pause"].qos == {"q_pause"}
        mine = seen.member_qos[Association("a_pause", "own")]
        assert mine.names >= set(own)
        assert mine.default in ("", "q_pause")
        # An emulator shows what a member inherits as well.
        assert seen.member_qos.get(Association("a_pause", "nel"), MemberQos()).names <= {"q_pause"}

    # Keys of resources --------------------------------------------------------------------------

    def test_a_key_has_one_secret_at_a_time_which_is_in_no_text(
        self, subject: Subject, backend: Backend
    ) -> None:
        assert isinstance(backend, KeyPower) == ("keys" in subject.powers)
        if not isinstance(backend, KeyPower):
            return
        first, second = backend.keys.issue("a_mix", "key-1"), backend.keys.issue("a_mix", "key-1")
        other = backend.keys.issue("a_stay", "key-1")
        assert len({first.secret, second.secret, other.secret}) == 3
        for made in (first, second, other):
            assert made.client_id
            assert len(made.secret.reveal()) >= 16
            assert made.secret.reveal() not in f"{made!r} {backend!r} {backend.executed!r}"
        with pytest.raises(BackendError) as error:
            backend.keys.issue("a_none", "key-1")
        assert not error.value.retryable

    def test_a_key_is_paused_resumed_and_ended_again_and_again(self, backend: Backend) -> None:
        if not isinstance(backend, KeyPower):
            return
        name = backend.keys.issue("a_in", "key-2").client_id
        for paused in (True, True, False, False):
            backend.keys.set_paused("a_in", name, paused)
        backend.keys.end("a_in", name)
        backend.keys.end("a_in", name)
        backend.keys.end("a_none", name)
        with pytest.raises(BackendError):
            backend.keys.set_paused("a_in", name, True)

    # Usage --------------------------------------------------------------------------------------

    def test_a_month_is_counted_in_whole_numbers_by_account_and_user(
        self, subject: Subject, backend: Backend
    ) -> None:
        assert isinstance(backend, UsageReader) == ("usage" in subject.powers)
        if not isinstance(backend, UsageReader):
            return
        for account, user in (("a_in", "ann"), ("a_in", "ann"), ("a_in", "mia"), ("a_out", "ann")):
            done(backend.apply([join(account, user)]))
            if subject.use is not None:
                subject.use(account, user)
        query = UsageQuery(Month.of(datetime.now(UTC)))
        found = require_whole(backend.usage(query))
        assert found.query == query
        assert "a_in" in backend.usage_command(query, "a_in")
        for used in found.accounts.values():
            names = frozenset[str]().union(*used.users.values())
            assert dict(used.total) == {n: sum(of.get(n, 0) for of in used.users.values()) for n in names}
        if subject.use is not None:
            shares = {
                (account, user): found.accounts[account].users[user][subject.limit]
                for account, user in (("a_in", "ann"), ("a_in", "mia"), ("a_out", "ann"))
            }
            once = shares["a_out", "ann"]
            assert once > 0
            assert shares == {("a_in", "ann"): 2 * once, ("a_in", "mia"): once, ("a_out", "ann"): once}
            assert "a_stay" not in found.accounts
            assert found.records > 0
        before = require_whole(backend.usage(replace(query, month=query.month.previous)))
        assert before.accounts == {}, "a month is counted by itself"

    @needs(test_a_month_is_counted_in_whole_numbers_by_account_and_user)
    def test_a_count_of_a_part_is_the_count_of_the_whole(self, backend: Backend) -> None:
        if not isinstance(backend, UsageCounter):
            return
        query, now = UsageQuery(Month.of(datetime.now(UTC))), datetime.now(UTC)
        first = backend.count(None, now, may_be_large=True)
        whole = require_whole(first.usage(query))
        assert whole.accounts == backend.usage(query).accounts
        assert backend.count(first.finalised, now, may_be_large=True).usage(query).accounts == whole.accounts

    def test_what_keys_have_used_is_whole(self, backend: Backend) -> None:
        if not isinstance(backend, KeyPower):
            return
        month = Month.of(datetime.now(UTC))
        for account, keys in backend.keys.usage(UsageQuery(month)).items():
            for key, counts in keys.items():
                require_counts(counts, f"key {key} of account {account}", month)

    # Removing -----------------------------------------------------------------------------------

    @needs(test_members_come_twice_and_go_twice_and_only_they)
    def test_a_removal_leaves_every_member_a_valid_default_account(self, backend: Backend) -> None:
        """hal is in two accounts and defaults to the one that goes; ida is in no other; jo defaults to the other."""
        done(backend.apply([join("a_go", "hal"), join("a_go", "ida")]))
        done(backend.apply([join("a_stay", "hal"), join("a_stay", "jo")]))
        done(backend.apply([join("a_go", "jo")]))
        observed = backend.observe(Scope(BULK_PARTS, frozenset({"a_go"})))
        assert [observed.default_accounts[user] for user in ("hal", "ida", "jo")] == [
            "a_go",
            "a_go",
            "a_stay",
        ]
        done(backend.apply(accounts.removal("a_go", observed, default_account="root", reason="test")))
        left = backend.observe()
        assert set(left.accounts) == set(observed.accounts) - {"a_go"}
        assert left.associations == {a for a in observed.associations if a.account != "a_go"}
        assert [left.default_accounts.get(user) for user in ("hal", "ida", "jo")] == [
            "a_stay",
            None,
            "a_stay",
        ]
        assert left.default_accounts["ann"] in left.accounts_of("ann")

    @needs(
        test_members_come_twice_and_go_twice_and_only_they,
        test_limits_are_set_raised_lowered_and_made_zero_each_for_itself,
    )
    def test_a_look_at_what_was_changed_shows_as_much_as_one_at_everything(
        self, subject: Subject, backend: Backend
    ) -> None:
        joins = [join("a_few", "lou"), join("a_few", "max"), join("a_other", "max")]
        before = backend.observe()

        def changed(*actions: ClusterAction) -> None:
            nonlocal before
            done(backend.apply(actions))
            seen = backend.observe(Scope(BULK_PARTS, reread=Reread.touched(before, actions)))
            assert seen == backend.observe() != before
            before = seen

        changed(*joins, SetLimits(account="a_few", after=((subject.limit, 7),)))
        changed(leave("a_other", "max"))
        now = backend.observe(Scope(BULK_PARTS, frozenset({"a_few"})))
        changed(*accounts.removal("a_few", now, default_account="root", reason="test"))

    @needs(test_a_removal_leaves_every_member_a_valid_default_account)
    def test_a_project_goes_after_its_allocations_in_one_batch(
        self, subject: Subject, backend: Backend
    ) -> None:
        deletions = [
            DeleteAccount(account="p_go", parent=PROJECT),
            DeleteAccount(account="a_go1", parent="p_go"),
            DeleteAccount(account="a_go2", parent="p_go"),
        ]
        writes = backend.executed["write"]
        done(backend.apply(deletions))
        if subject.writes:
            assert backend.executed["write"] == writes + subject.writes.deletions
        assert not backend.observe(TREE).accounts.keys() & {"p_go", "a_go1", "a_go2"}
        done(backend.apply(deletions))

    # Cost ---------------------------------------------------------------------------------------

    @pytest.mark.parametrize("what", WORK)
    @needs(
        test_one_bad_action_is_found_among_many_and_the_others_are_done,
        test_members_come_twice_and_go_twice_and_only_they,
        test_limits_are_set_raised_lowered_and_made_zero_each_for_itself,
    )
    def test_writing_costs_what_is_known_of_the_kind_of_change(
        self, subject: Subject, backend: Backend, what: str
    ) -> None:
        actions = [
            work if isinstance(work, ClusterAction) else SetLimits(account=work, after=((subject.limit, 9),))
            for work in WORK[what]
        ]
        backend.apply(BEFORE.get(what, ()))
        before = backend.executed["write"]
        outcomes = backend.apply(actions)
        if subject.writes:
            assert backend.executed["write"] == before + subject.writes.many[what]
        done([o for o in outcomes if not isinstance(o.error, PlanRefused)])
