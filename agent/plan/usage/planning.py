# SPDX-License-Identifier: MIT
"""What is to be reported to Waldur of usage: what the cluster counted against what Waldur has, for one month.

account            jobs in the month     reported
on the cluster     yes / no              its usage / zero
gone               yes                   its usage: what was used was used
gone or never made no                    nothing: it is unknown
Nothing is reported of any account where the cluster named no job at all: an empty answer is no answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from decimal import Decimal

from agent.core.account_names import fold
from agent.core.actions import Action
from agent.core.model import Component, Resource, ResourceState
from agent.core.units import ZERO, Shares, sharing, targets_of
from agent.core.usage import AccountUsage, Usage, UsageRecord, UserUsageRecord
from agent.core.usage_actions import ReportUsage, ReportUserUsage
from agent.core.waldur_actions import WaldurAction
from agent.plan.shared_limits import shares_of

# Waldur keeps 20 digits, two of them behind the point.
MAX_AMOUNT = Decimal(10) ** 18
TAKING = frozenset({ResourceState.OK, ResourceState.UPDATING, ResourceState.TERMINATING})

UserAmounts = dict[str, Decimal]


@dataclass(frozen=True)
class Ledger:
    """What Waldur holds for one month."""

    records: Mapping[tuple[str, str], Sequence[UsageRecord]] = field(default_factory=dict)
    shares: Mapping[str, Sequence[UserUsageRecord]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[UsageRecord], shares: Iterable[UserUsageRecord] = ()) -> Ledger:
        by_place: dict[tuple[str, str], list[UsageRecord]] = defaultdict(list)
        for record in records:
            by_place[record.resource, record.component].append(record)
        by_record: dict[str, list[UserUsageRecord]] = defaultdict(list)
        for share in shares:
            by_record[share.record].append(share)
        return cls(dict(by_place), dict(by_record))

    def record(self, resource: str, component: str) -> UsageRecord | None:
        found = self.records.get((resource, component), ())
        return found[0] if found else None

    def is_garbled(self, resource: str, component: str) -> bool:
        """Return whether there is a record, or a user's share of it, without an amount."""
        record = self.record(resource, component)
        return record is not None and None in (
            record.amount,
            *(share.amount for share in self.shares.get(record.uuid, ())),
        )

    def is_doubled(self, resource: str, component: str) -> bool:
        return len(self.records.get((resource, component), ())) > 1


@dataclass(frozen=True)
class UsageRules:
    """What holds for the whole offering in this month."""

    # Those that are configured and that Waldur takes usage of.
    components: tuple[Component, ...]
    # Accounts of the cluster.
    known: frozenset[str]
    # How Waldur spells the users, by folded name.
    names: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    # Accounts that are the offering's only once a person says so.
    asked: Set[str] = frozenset()
    with_users: bool = True
    # All components of a resource are reported when one changes (servers of 2024 forget the others).
    in_full: bool = False
    # A zero is reported where Waldur has nothing yet; in a past month nothing means the same, and the resource may not
    # have been there.
    with_zeros: bool = True
    # A component of which Waldur has more is omitted and the others are reported, but not `in_full`.
    omits_lower: bool = False
    # All components, which may share what was used with those that are reported; empty where they are the same.
    configured: tuple[Component, ...] = ()

    def shares(self, resource: Resource) -> Shares:
        """Return how the components of a resource share TRES that several of them name."""
        return shares_of(resource, self.configured or self.components)


@dataclass(frozen=True)
class UsagePlan:
    """One resource in one month: its totals first, then the shares of users."""

    resource: Resource
    account: str
    totals: ReportUsage | None = None
    shares: tuple[ReportUserUsage, ...] = ()
    # Why nothing can be reported.
    skipped: str = ""
    # A person has to look at it, it does not pass by itself.
    needs_person: bool = False
    # Components that are omitted, in words.
    omitted: str = ""

    @property
    def actions(self) -> tuple[WaldurAction, ...]:
        return (*((self.totals,) if self.totals else ()), *self.shares)

    def without(self, refused: Container[Action]) -> UsagePlan:
        """Return the plan without what the policy keeps back."""
        totals = None if self.totals in refused else self.totals
        return replace(self, totals=totals, shares=tuple(s for s in self.shares if s not in refused))


def plan_month(
    resources: Iterable[Resource], usage: Usage, ledger: Ledger, rules: UsageRules
) -> list[UsagePlan]:
    """Return a plan for each resource that has an account, by account. An answer without any job plans nothing."""
    if not usage.records:
        return []
    named = sorted(
        ((fold(r.backend_id), r) for r in resources if r.backend_id), key=lambda n: (n[0], n[1].uuid)
    )
    holders: dict[str, list[Resource]] = defaultdict(list)
    for account, resource in named:
        holders[account].append(resource)
    return [
        _of_resource(
            resource, account, [r for r in holders[account] if r.uuid != resource.uuid], usage, ledger, rules
        )
        for account, resource in named
    ]


def accountable(
    components: Iterable[Component], billing_types: Mapping[str, str]
) -> tuple[tuple[Component, ...], tuple[str, ...]]:
    """Return the components that Waldur takes usage of, and those that its offering does not have at all."""
    listed = list(components)
    taken = tuple(c for c in listed if billing_types.get(c.name) in ("usage", "limit"))
    return taken, tuple(c.name for c in listed if c.name not in billing_types)


def untracked(
    components: Iterable[Component], usages: Iterable[Usage], tracked: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return components that count something of which nobody had any and which is not `tracked` by the cluster, with
    the missing TRES. Usage that is counted by component says of each account what is known.
    """
    found = tracked
    for usage in usages:
        if usage.by_component:
            return {}
        found = found.union(*(account.total for account in usage.accounts.values()))
    return {c.name: ", ".join(lacks) for c in components if (lacks := sorted(targets_of(c).keys() - found))}


def _of_resource(
    resource: Resource,
    account: str,
    others: Sequence[Resource],
    usage: Usage,
    ledger: Ledger,
    rules: UsageRules,
) -> UsagePlan:
    plan = UsagePlan(resource, account)
    if others:
        whose = ", ".join(sorted(f"{r.name} ({r.uuid})" for r in (resource, *others)))
        sentence = f"account {account} is named by several resources: {whose}; its usage is reported for none"
        return replace(plan, skipped=sentence, needs_person=True)
    if account in rules.elsewhere:
        sentence = (
            f"account {account} is named by offering {rules.elsewhere[account]} as well, which counts the same: its "
            "usage is reported for neither, or it would be billed twice"
        )
        return replace(plan, skipped=sentence, needs_person=True)
    if account in rules.asked:
        sentence = (
            f"whose account {account} is has to be approved first (`approve` lists it): "
            "its usage is not reported"
        )
        return replace(plan, skipped=sentence, needs_person=True)
    if resource.state not in TAKING:
        return replace(plan, skipped=f"Waldur takes no usage of a resource that is {resource.state}")
    if account in usage.unknown:
        return replace(plan, skipped=f"usage of account {account} is unknown: {usage.unknown[account]}")
    used = usage.accounts.get(account)
    if used is None and (usage.by_component or account not in rules.known):
        where = "named by the plugin" if usage.by_component else "on the cluster"
        return replace(plan, skipped=f"account {account} is not {where}: nothing is known of its usage")
    doubled = [c.name for c in rules.components if ledger.is_doubled(resource.uuid, c.name)]
    if doubled:
        sentence = f"Waldur holds several records of {', '.join(doubled)} for one month: none is changed"
        return replace(plan, skipped=sentence, needs_person=True)
    if garbled := [c.name for c in rules.components if ledger.is_garbled(resource.uuid, c.name)]:
        sentence = f"what Waldur holds of {', '.join(garbled)} is no number: it is not known whether it would get less"
        return replace(plan, skipped=sentence, needs_person=True)
    return _with_actions(plan, used or AccountUsage(), usage, ledger, rules)


def _with_actions(
    plan: UsagePlan, used: AccountUsage, usage: Usage, ledger: Ledger, rules: UsageRules
) -> UsagePlan:
    parts = {} if usage.by_component else rules.shares(plan.resource)
    amounts = _amounts(plan, used, usage, ledger, rules)
    if beyond := [name for name, amount in amounts.items() if amount >= MAX_AMOUNT]:
        sentence = f"usage of {', '.join(beyond)} is more than Waldur counts: check unit_factor"
        return replace(plan, skipped=sentence, needs_person=True)
    lower = {} if usage.may_fall else _lower(plan, amounts, ledger)
    # What one of them has less the others have more: reported alone, they would be billed for all of it.
    omitted = sharing(lower, parts)
    if rules.omits_lower and not rules.in_full and 0 < len(omitted & amounts.keys()) < len(amounts):
        words = ", ".join(f"{name} from {was:f} to {amounts[name]:f}" for name, was in lower.items())
        others = ", ".join(sorted(omitted & amounts.keys() - lower.keys()))
        plan = replace(
            plan,
            omitted=f"usage of {plan.account} in {usage.query.month} would get less: {words}"
            + (f"; {others} is omitted with it, for it shares what was used" if others else ""),
        )
        amounts = {name: amount for name, amount in amounts.items() if name not in omitted}
    plan = replace(plan, totals=_totals(plan, usage, amounts, ledger, rules))
    if not rules.with_users:
        return plan
    reported = (component for component in rules.components if component.name in amounts)
    shares = (_shares(plan, component, used, usage, ledger, rules) for component in reported)
    return replace(plan, shares=tuple(share for share in shares if share))


def _amounts(
    plan: UsagePlan, used: AccountUsage, usage: Usage, ledger: Ledger, rules: UsageRules
) -> dict[str, Decimal]:
    """Return what is reported of the components. Where all have to be reported together, one that is unknown stays as
    Waldur has it.
    """
    parts = rules.shares(plan.resource)
    amounts = {}
    for component in rules.components:
        amount = usage.amount(component, used.total, parts)
        record = ledger.record(plan.resource.uuid, component.name)
        if amount is None and rules.in_full and record:
            amount = record.amount
        if amount is not None:
            amounts[component.name] = amount
    return amounts


def _lower(plan: UsagePlan, amounts: Mapping[str, Decimal], ledger: Ledger) -> dict[str, Decimal]:
    """Return what Waldur has of the components of which the cluster counts less."""
    records = {name: ledger.record(plan.resource.uuid, name) for name in amounts}
    had = {name: record.amount for name, record in records.items() if record}
    return {name: was for name, was in had.items() if was is not None and amounts[name] < was}


def _totals(
    plan: UsagePlan, usage: Usage, amounts: Mapping[str, Decimal], ledger: Ledger, rules: UsageRules
) -> ReportUsage | None:
    records = {name: ledger.record(plan.resource.uuid, name) for name in amounts}
    before = {name: record.amount if record else None for name, record in records.items()}
    wanted = [name for name, amount in amounts.items() if records[name] or amount or rules.with_zeros]
    changed = [name for name in wanted if before[name] != amounts[name]]
    if not changed:
        return None
    reported = wanted if rules.in_full else changed
    return ReportUsage(
        resource=plan.resource.uuid,
        account=plan.account,
        month=str(usage.query.month),
        may_fall=usage.may_fall,
        before=tuple((name, _text(before[name])) for name in reported),
        after=tuple((name, f"{amounts[name]:f}") for name in reported),
    )


def _shares(
    plan: UsagePlan, component: Component, used: AccountUsage, usage: Usage, ledger: Ledger, rules: UsageRules
) -> ReportUserUsage | None:
    """Return what changes for the users of one component. Who has nothing, and had nothing, is not named."""
    record = ledger.record(plan.resource.uuid, component.name)
    present = {share.username: share.amount for share in ledger.shares.get(record.uuid, ())} if record else {}
    spelled = {**rules.names, **{fold(name): name for name in present}}
    wanted: UserAmounts = {}
    parts = rules.shares(plan.resource)
    for user, counts in used.users.items():
        amount = usage.amount(component, counts, parts)
        name = spelled.get(fold(user), user)
        # Who is nameless has a part in the total only.
        if user and amount is not None and (amount or present.get(name)):
            wanted[name] = wanted.get(name, ZERO) + amount
    if not usage.by_component:
        wanted |= {name: ZERO for name, amount in present.items() if name not in wanted and amount != 0}
    changed = sorted(name for name, amount in wanted.items() if present.get(name) != amount)
    if not changed:
        return None
    return ReportUserUsage(
        resource=plan.resource.uuid,
        account=plan.account,
        month=str(usage.query.month),
        component=component.name,
        may_fall=usage.may_fall,
        before=tuple((name, _text(present.get(name))) for name in changed),
        after=tuple((name, f"{wanted[name]:f}") for name in changed),
    )


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"
