# SPDX-License-Identifier: MIT
"""Diagnose one account: what the cluster has, what Waldur says, and what the next membership pass would change.

What an account should be is what it is after the actions that the pass plans, and the commands that correct it are
those of that plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from agent.config.model import Mode, Offering
from agent.core.account_names import fold
from agent.core.actions import ClusterAction, Where
from agent.core.errors import ConfigError, PlanRefused, SiteAgentError
from agent.core.model import Account, Component, Resource, Snapshot
from agent.core.periodic import LimitType, ObservedSettings
from agent.core.units import backend_limits, targets_of
from agent.plan.policy.gate import HeldPlan, Refused
from agent.run.diagnosis import limits
from agent.run.diagnosis.limits import Expected
from agent.run.preview import previews
from agent.run.preview.previews import Preview
from agent.run.site import Site
from agent.waldur import policies, resources
from agent.waldur.policies import PeriodicPolicy
from backends import registry
from backends.base import BULK_PARTS, Advice, PeriodicPower, Scope

MODE = Mode.MEMBERSHIP_SYNC
# Who an account belongs to is asked of all its states but the end.
STATES = (*resources.HANDLED, *resources.IN_PROGRESS)

Look = Callable[[Snapshot], str | None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field: as it is on the cluster, and as it is when the plan has been carried out; None where it is not set."""

    name: str
    actual: str | None
    expected: str | None
    # Why it differs, and the commands that correct it; both empty where it does not.
    reason: str = ""
    commands: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        return self.actual == self.expected


@dataclass(frozen=True, slots=True)
class Conversion:
    """A limit of Waldur's in the cluster's units."""

    component: str
    waldur_unit: str
    waldur_value: float
    tres: str
    factor: float
    cluster_value: int


@dataclass(frozen=True, slots=True)
class AccountDiagnosis:
    """All that is known of one account. The errors say what could not be read, and are empty otherwise."""

    account: str
    offering: Offering
    # In whose words it is said.
    advice: Advice
    snapshot: Snapshot | None = None
    resource: Resource | None = None
    policy: PeriodicPolicy | None = None
    # Share and limits of its own, where the cluster reports them.
    periodic: ObservedSettings | None = None
    comparisons: tuple[Comparison, ...] = ()
    conversions: tuple[Conversion, ...] = ()
    # What `plan membership_sync --commands` shows for it, and what corrects limits that no pass would set.
    commands: tuple[str, ...] = ()
    # That of the limits which it should have.
    limit_type: LimitType = LimitType.GRP_TRES_MINS
    # Planned, and not let through by the policy; so are those refused.
    held: tuple[HeldPlan, ...] = ()
    refused: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()
    cluster_error: str = ""
    waldur_error: str = ""
    policy_error: str = ""
    errors: tuple[str, ...] = field(default=())

    @property
    def observed(self) -> Account | None:
        return self.snapshot.accounts.get(self.account) if self.snapshot else None

    @property
    def mismatches(self) -> int:
        return sum(not each.agrees for each in self.comparisons)

    @property
    def status(self) -> str:
        """Return the word for scripts: `error` where something could not be read, `missing` where one side has
        nothing, `unknown` where nothing could be compared, `mismatch`, or `ok`.
        """
        if self.cluster_error or self.waldur_error or self.errors:
            return "error"
        if self.observed is None or self.resource is None:
            return "missing"
        if not self.comparisons:
            return "unknown"
        return "mismatch" if self.mismatches or self.held or self.refused else "ok"


def choose(offerings: Sequence[Offering], account: str) -> Offering:
    """Return the offering that an account most likely belongs to: the only one with members on a cluster, else that
    whose prefix is the longest that its name begins with, else the first. Raises ConfigError where there is none.
    """
    able = [offering for offering in offerings if offering.backend_of(MODE)]
    if not able:
        raise ConfigError("no offering here has a `membership_sync_backend`, by which accounts are compared")
    name = fold(account)
    fitting = [o for o in able if name.startswith(fold(o.names.allocation_prefix))]
    return max(fitting or able[:1], key=lambda o: len(o.names.allocation_prefix))


def diagnose(site: Site, account: str) -> AccountDiagnosis:
    """Look at one account of an offering. Changes nothing; what cannot be read is in the result."""
    found = AccountDiagnosis(fold(account), site.offering, registry.advice_of(site.offering, MODE))
    try:
        _, named = named_resources(site, found.account)
        found = replace(found, resource=next(iter(named), None))
    except SiteAgentError as error:
        found = replace(found, waldur_error=str(error))
    try:
        found = replace(found, policy=policies.of_offering(site.client))
    except SiteAgentError as error:
        found = replace(found, policy_error=str(error))
    found = _planned(site, found)
    if found.snapshot is None and not found.cluster_error:
        try:
            found = replace(found, snapshot=site.backend.observe(Scope(BULK_PARTS)))
        except SiteAgentError as error:
            found = replace(found, cluster_error=str(error))
    found = replace(found, conversions=tuple(_conversions(found.resource, site.offering.components.values())))
    if found.observed is None or not isinstance(site.backend, PeriodicPower):
        return found
    try:
        found = replace(found, periodic=site.backend.periodic.state(found.account))
    except SiteAgentError as error:
        return replace(found, notes=(*found.notes, f"its share cannot be read: {error}"))
    return _with_policy(site, found)


def _with_policy(site: Site, found: AccountDiagnosis) -> AccountDiagnosis:
    """Return the diagnosis with what the policy would set now, where its limits are set here."""
    resource, policy, observed = found.resource, found.policy, found.periodic
    if resource is None or policy is None or observed is None or not found.comparisons:
        return found
    if not site.offering.periodic_limits_enabled:
        note = "its policy sets nothing here: backend_settings.periodic_limits.enabled is not true"
        return replace(found, notes=(*found.notes, note))
    if site.offering.periodic_emulator:
        return replace(
            found, notes=(*found.notes, "its policy's settings go to the emulator (emulator_mode)")
        )
    try:
        expected = list(limits.of_policy(site, resource, found.account, policy, observed))
        # Its limits are no limits of Waldur's times a factor.
        found = replace(found, conversions=(), limit_type=limits.type_of(policy))
        return _with(site, found, expected)
    except SiteAgentError as error:
        note = f"what policy {policy.uuid} would set cannot be computed: {error}"
        return replace(found, notes=(*found.notes, note))


def _with(site: Site, found: AccountDiagnosis, expected: Iterable[Expected]) -> AccountDiagnosis:
    """Return the diagnosis with these fields in the place of its own of the same names."""
    made = {
        each.name: Comparison(
            each.name,
            each.actual,
            each.expected if each.action else each.actual,
            each.reason,
            tuple(site.backend.commands([each.action])) if each.action else (),
        )
        for each in expected
    }
    comparisons = [made.pop(each.name, each) for each in found.comparisons]
    comparisons += made.values()
    commands = (c for each in comparisons for c in each.commands if each.name in {e.name for e in expected})
    return replace(
        found,
        comparisons=tuple(comparisons),
        commands=tuple(dict.fromkeys((*found.commands, *commands))),
    )


def named_resources(site: Site, account: str) -> tuple[list[Resource], list[Resource]]:
    """Return the resources of an offering, and those of them that have this account, or whose slug will make its name.
    Raises WaldurError.
    """
    listed = resources.listed(site.client, STATES, fields=resources.SYNC_FIELDS)
    prefix = site.offering.names.allocation_prefix
    named = [each for each in listed if fold(each.backend_id) == account]
    return listed, named or [r for r in listed if not r.backend_id and fold(prefix + r.slug) == account]


def why_unplanned(resource: Resource) -> str:
    """Return why no pass plans anything for a resource now, as half a sentence; empty where one does."""
    if resource.state not in resources.HANDLED:
        return f"an order is at work on it ({resource.state})"
    return (
        ""
        if resource.backend_id
        else "it names no account yet (its backend id is empty): its order is not done"
    )


def _planned(site: Site, found: AccountDiagnosis) -> AccountDiagnosis:
    """Return the diagnosis with what the next pass would do to the account."""
    resource = found.resource
    if resource is None:
        return found
    if why := why_unplanned(resource):
        return replace(found, notes=(f"nothing is compared: {why}",))
    try:
        preview = previews.preview_of_resource(site, resource.uuid)
        compared = tuple(_comparisons(site, found, preview))
        commands = tuple(site.backend.commands(preview.allowed.cluster_actions()))
    except SiteAgentError as error:
        return replace(found, errors=(f"what the next pass would do cannot be planned: {error}",))
    refused = tuple(each for each in preview.refused if isinstance(each.action, ClusterAction))
    unplanned = tuple(each.message for each in preview.unplanned)
    reports = [each for each in preview.allowed if each.where is Where.WALDUR and not each.is_routine]
    notes = (*preview.notes, *(f"would be reported to Waldur: {action.line()}" for action in reports))
    found = replace(
        found,
        snapshot=preview.sync.snapshot if preview.sync else None,
        comparisons=compared,
        commands=commands,
        held=preview.held,
        refused=refused,
        notes=notes,
        errors=unplanned,
    )
    if preview.sync is None or not compared or found.observed is None:
        return found
    rules = preview.sync.facts.rules.limits
    try:
        return _with(
            site, found, list(limits.bought(site, resource, found.account, rules, preview.sync.snapshot))
        )
    except SiteAgentError as error:
        return replace(found, notes=(*found.notes, f"what was bought is unknown: {error}"))


def _comparisons(site: Site, found: AccountDiagnosis, preview: Preview) -> Iterator[Comparison]:
    """Yield each field as it is and as the plan makes it; none where the account is not there or not planned for."""
    plan, account = preview.sync, found.account
    if plan is None or account not in plan.snapshot.accounts:
        return
    if any(each.skipped or each.refusal for each in plan.plans):
        return
    before = plan.snapshot
    actions = [action for action in plan.actions if isinstance(action, ClusterAction)]
    after = before
    for action in actions:
        after = action.applied_to(after)
    allowed = frozenset(preview.allowed.cluster_actions())
    for name, look in _fields(account, before, after, found.advice):
        actual, expected = look(before), look(after)
        if actual == expected:
            yield Comparison(name, actual, expected)
            continue
        causes = [action for action in actions if look(action.applied_to(before)) != actual]
        why = "; ".join(dict.fromkeys(action.render() for action in causes))
        commands = site.backend.commands([action for action in causes if action in allowed])
        yield Comparison(name, actual, expected, why, tuple(commands))


def _fields(account: str, before: Snapshot, after: Snapshot, words: Advice) -> Iterator[tuple[str, Look]]:
    """Yield what of an account is compared, by name."""

    def limit(tres: str) -> Look:
        return lambda seen: _text(_account(seen, account).limits.get(tres))

    def default(user: str) -> Look:
        return lambda seen: seen.default_accounts.get(user)

    def user_limit(user: str, tres: str) -> Look:
        return lambda seen: _text(seen.user_limits.get((account, user), {}).get(tres))

    def partitions(user: str) -> Look:
        return lambda seen: ",".join(sorted(row.partition or "all" for row in seen.rows_of(account, user)))

    yield "parent", lambda seen: _account(seen, account).parent
    yield "qos", lambda seen: ",".join(sorted(seen.qos_of(account))) or None
    yield "default_qos", lambda seen: seen.default_qos_of(account) or None
    yield words.submit_limit, lambda seen: _text(_account(seen, account).submit_limit)
    for tres in sorted({*_account(before, account).limits, *_account(after, account).limits}):
        yield f"{words.limit}[{tres}]", limit(tres)
    yield "users", lambda seen: ",".join(sorted(seen.users_of(account))) or None
    for user in sorted(before.users_of(account) | after.users_of(account)):
        of_user = (account, user)
        if before.default_accounts.get(user) != after.default_accounts.get(user):
            yield f"default_account[{user}]", default(user)
        for tres in sorted({*before.user_limits.get(of_user, {}), *after.user_limits.get(of_user, {})}):
            yield f"MaxTRESMins[{user}][{tres}]", user_limit(user, tres)
        rows, later = before.rows_of(*of_user), after.rows_of(*of_user)
        if rows and later and rows != later:
            yield f"partitions[{user}]", partitions(user)


def _account(seen: Snapshot, name: str) -> Account:
    return seen.accounts.get(name) or Account(name, None)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _conversions(resource: Resource | None, components: Iterable[Component]) -> Iterator[Conversion]:
    """Yield each limit of the resource in the cluster's units; those that cannot be one are skipped."""
    if resource is None:
        return
    limits: Mapping[str, object] = resource.limits
    for component in components:
        value = limits.get(component.name)
        if not isinstance(value, int | float):
            continue
        try:
            values = backend_limits({component.name: value}, [component], with_static=False).values
        except PlanRefused:
            continue
        for tres, factor in targets_of(component).items():
            yield Conversion(
                component.name,
                component.measured_unit or component.label,
                float(Decimal(str(value))),
                tres,
                float(factor),
                values.get(tres, 0),
            )
