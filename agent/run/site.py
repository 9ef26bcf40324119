# SPDX-License-Identifier: MIT
"""Connect a site: one offering with its Waldur client and the backend of one mode."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import isfinite, nan
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from agent import __version__
from agent.config.model import FINAL_REPORT_DAYS, Mode, Offering, Problem, Settings, Severity
from agent.core.account_names import fold
from agent.core.errors import ConfigError
from agent.core.model import AccountingType, Component, OfferingFacts, WaldurComponent
from agent.core.policy import LimitsSource
from agent.core.said import Said
from agent.core.units import targets_of
from agent.core.waldur_actions import ReportLimits
from agent.plan.allocations import OfferingRules
from agent.state import hierarchy_names, ledger
from agent.state.hints import COMMAND_COSTS, TREE_COLUMNS
from agent.state.marked_accounts import MarkedAccounts
from agent.waldur.client import WaldurClient
from agent.waldur.offerings import facts as read_facts
from agent.waldur.teams import KnownTeams
from backends import registry
from backends.base import Backend, BackendContext

UTC = ZoneInfo("UTC")
# How long the options and the provider of the offering are not read again.
OFFERING_VALID_S = 600.0


@dataclass(slots=True, eq=False)
class ProcessCache:
    """Kept between the passes of one process. Losing it costs a few requests and repeated log lines."""

    # What Waldur said of it, at a monotonic time.
    offering: OfferingFacts | None = None
    offering_read_s: float = 0.0
    # None until it is asked for.
    provider_uuid: str | None = None
    # Those that the listing of all does not have whole, by project.
    teams: KnownTeams = field(default_factory=KnownTeams)
    # The notes that were logged last, by resource, order or mode.
    said: Said = field(default_factory=Said)
    # Orders on which the site's hook gave no decision.
    unanswered: set[str] = field(default_factory=set)
    # Amounts that were reported last, by key and month.
    reported_key_usage: dict[tuple[str, str], tuple[tuple[str, str | None], ...]] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True)
class Site:
    """All that the passes over one offering need."""

    offering: Offering
    client: WaldurClient
    backend: Backend
    state_dir: Path
    # Other offerings of the configuration with members on the same cluster, name by uuid.
    neighbours: Mapping[str, str] = field(default_factory=dict)
    # Uuids of those that are known to be on another cluster.
    elsewhere: frozenset[str] = frozenset()
    # Others whose reports count something on the same cluster that this one counts as well.
    counting_alike: Mapping[str, str] = field(default_factory=dict)
    # Where billing months begin and end.
    zone: ZoneInfo = UTC
    reporting_periods: int = 2
    key_final_report_days: int = FINAL_REPORT_DAYS
    # Waldur may show how commands were called that failed.
    exposes_details: bool = True
    # What counts usage for an order that ends an allocation; None where this offering's usage is not reported; why it
    # cannot be used.
    usage_backend: Backend | ConfigError | None = None
    cache: ProcessCache = field(default_factory=ProcessCache)


def offering_facts(site: Site, *, valid_s: float = OFFERING_VALID_S) -> OfferingFacts:
    """Return the facts of the offering, read at most so many seconds ago: with 0 they are read now, for this mode of a
    pass and those after it. Raises WaldurError.
    """
    cache = site.cache
    if cache.offering is None or time.monotonic() - cache.offering_read_s > valid_s:
        cache.offering, cache.offering_read_s = read_facts(site.client), time.monotonic()
        cache.provider_uuid = None
    return cache.offering


@dataclass(slots=True)
class Effort:
    """The cost of a pass: requests and cluster processes by kind, and seconds."""

    requests: Counter[str]
    commands: Counter[str]
    seconds: float = 0.0


def connect(settings: Settings, offering: Offering, mode: Mode) -> Site:
    """Return the site of an offering. Raises ConfigError where the mode is stopped or its backend cannot be used."""
    refuse_stopped(offering, mode)
    configured = registry.configure(offering, mode)
    is_named = all(map(_cluster_name, settings.offerings))
    clusters = Clusters(settings.offerings, {} if is_named else ledger.clusters(settings.state_dir))
    context = BackendContext(
        offering.uuid,
        settings.state_dir,
        settings.timezone.key,
        settings.lock_dir,
        is_urgent=mode is Mode.ORDER_PROCESS,
        marks=partial(MarkedAccounts, settings.state_dir),
        costs=partial(COMMAND_COSTS.of, settings.state_dir),
        tree_columns=TREE_COLUMNS.of(settings.state_dir, offering.backend_of(mode)),
        seen_cluster=clusters.name(offering, mode),
    )
    backend = configured.connect(context)
    neighbours, counting_alike = {}, {}
    for other in settings.offerings:
        if other.uuid == offering.uuid:
            continue
        has_members = other.backend_of(Mode.MEMBERSHIP_SYNC) and Mode.MEMBERSHIP_SYNC not in other.stopped
        if has_members and clusters.are_same(other, offering, Mode.MEMBERSHIP_SYNC):
            neighbours[other.uuid] = other.name
        counts_same = not _counted(other).isdisjoint(_counted(offering))
        if other.backend_of(Mode.REPORT) and counts_same and clusters.are_same(other, offering, Mode.REPORT):
            counting_alike[other.uuid] = other.name
    return Site(
        registry.with_known_components(offering, mode),
        client(offering, mode),
        backend,
        settings.state_dir,
        neighbours=neighbours,
        elsewhere=frozenset(o.uuid for o in settings.offerings if clusters.are_apart(o, offering)),
        counting_alike=counting_alike,
        zone=settings.timezone,
        reporting_periods=settings.reporting_periods,
        key_final_report_days=settings.api_key_final_report_days,
        exposes_details=settings.expose_backend_error_details,
        usage_backend=_usage_backend(offering, backend, context) if mode is Mode.ORDER_PROCESS else None,
    )


def _usage_backend(
    offering: Offering, backend: Backend, context: BackendContext
) -> Backend | ConfigError | None:
    """Return what counts usage, where it is reported: the `backend` of orders if it is the same; or why it cannot."""
    name = offering.backend_of(Mode.REPORT)
    if not name:
        return None
    try:
        refuse_stopped(offering, Mode.REPORT)
        if name == offering.backend_of(Mode.ORDER_PROCESS):
            return backend
        return registry.configure(offering, Mode.REPORT).connect(context)
    except ConfigError as error:
        return error  # orders that end nothing go on


def _counted(offering: Offering) -> frozenset[str]:
    return frozenset(name for component in offering.components.values() for name in targets_of(component))


@dataclass(frozen=True, slots=True)
class Clusters:
    """Which offerings are on one cluster.

    Two spellings of a name are one. Where an offering has none, its cluster is the one that was seen; before that, the
    one that the other offerings of its kind of backend name, if they agree.
    """

    offerings: Sequence[Offering]
    # By offering, the name under which its cluster was seen last.
    seen: Mapping[str, str]

    def name(self, offering: Offering, mode: Mode) -> str:
        """Return the name of an offering's cluster, empty where it is not known yet."""
        if known := _cluster_name(offering) or self.seen.get(offering.uuid, ""):
            return known
        alike = {
            name
            for other in self.offerings
            if other.backend_of(mode) == offering.backend_of(mode) and (name := _cluster_name(other))
        }
        return alike.pop() if len(alike) == 1 else ""

    def are_same(self, other: Offering, offering: Offering, mode: Mode) -> bool:
        """Return whether both are on one cluster; where neither has a name, whether they have one kind of backend."""
        name = self.name(offering, mode)
        is_one_kind = bool(name) or other.backend_of(mode) == offering.backend_of(mode)
        return self.name(other, mode) == name and is_one_kind

    def are_apart(self, other: Offering, offering: Offering) -> bool:
        """Return whether both are known to be on different clusters; where one has no name, whether their backends
        differ in kind.
        """
        mode = Mode.MEMBERSHIP_SYNC
        names = {self.name(other, mode), self.name(offering, mode)}
        unlike = {other.backend_of(mode), offering.backend_of(mode)} if "" in names else names
        return len(unlike) == 2 and "" not in unlike


def _cluster_name(offering: Offering) -> str:
    return fold(str(offering.backend_settings.get("cluster_name") or ""))


def refuse_stopped(offering: Offering, mode: Mode) -> None:
    """Raise ConfigError when a value of the offering makes this mode unusable."""
    if mode in offering.stopped:
        raise ConfigError(f"{mode} is off for {offering.name}: {offering.stopped[mode]}")


def client(offering: Offering, mode: str) -> WaldurClient:
    """Return a client with the User-Agent by which Waldur shows the integration as active."""
    return WaldurClient(
        offering.access, user_agent=f"waldur-site-agent-{mode}/{__version__}", offering_uuid=offering.uuid
    )


@contextmanager
def effort_of(site: Site) -> Iterator[Effort]:
    """Count the requests and commands of the body, and its seconds."""
    requests, commands = site.client.sent.copy(), site.backend.executed.copy()
    spent = Effort(Counter(), Counter())
    started_s = time.monotonic()
    try:
        yield spent
    finally:
        spent.requests = site.client.sent - requests
        spent.commands = site.backend.executed - commands
        spent.seconds = time.monotonic() - started_s


def unusable(offerings: Iterable[Offering], mode: Mode) -> list[Problem]:
    """Return why this host cannot serve a mode of these offerings: wrong settings, or missing programs.

    Wrong settings and a backend that is not installed are warnings: they stop modes of one offering only.
    """
    found = []
    for offering in offerings:
        if not offering.backend_of(mode):
            continue
        try:
            refuse_stopped(offering, mode)
            missing = registry.configure(offering, mode).missing()
        except ConfigError as error:
            sentence = f"{error}. {mode} is off for {offering.name}"
            found.append(Problem(Severity.WARNING, offering.path, sentence, stopped_modes=frozenset({mode})))
        else:
            if missing:
                found.append(Problem(Severity.ERROR, offering.path, f"offering {offering.name}: {missing}"))
    return found


def offering_rules(site: Site, facts: OfferingFacts) -> OfferingRules:
    """Return what the site wants of every allocation: its configuration, and components that only Waldur has.

    Skipped are components with a factor that makes no limit, like any unknown component.
    """
    offering = site.offering
    added = []
    for component in facts.components:
        made = _waldur_component(component)
        if component.type not in offering.components and isfinite(made.unit_factor) and made.unit_factor > 0:
            added.append(made)
    return OfferingRules(
        names=offering.names,
        components=(*offering.components.values(), *added),
        soft_delete=offering.soft_delete,
        offering_partitions=facts.partitions,
        offering_qos=facts.qos,
        partition_qos=facts.partition_qos,
        offering_enforces_qos=bool(facts.plugin_options.get("enforce_qos")),
        default_account=site.backend.default_account,
        known_names=hierarchy_names.of_offering(site.state_dir, site.backend.cluster, offering.uuid),
        limits_from_waldur=offering.limits_source is LimitsSource.WALDUR
        and not offering.periodic_limits_enabled,
        can_show_limits=site.client.if_supported(ReportLimits.feature),
    )


def _factor(value: Any) -> float:
    """Return a factor, 1 where there is none; NaN for what is no number."""
    try:
        return float(value or 1.0)
    except (TypeError, ValueError):
        return nan


def _waldur_component(component: WaldurComponent) -> Component:
    """Return a component that only Waldur has. Its billing type may be one that the configuration does not offer."""
    fields = component.fields
    amount, factor = fields.get("limit_amount"), fields.get("unit_factor")
    billing = fields.get("billing_type")
    return Component(
        name=component.type,
        measured_unit=str(fields.get("measured_unit") or ""),
        accounting_type=AccountingType(billing) if billing in list(AccountingType) else AccountingType.FIXED,
        label=str(fields.get("name") or component.type),
        unit_factor=_factor(factor),
        limit=float(amount) if isinstance(amount, int | float) else None,
    )
