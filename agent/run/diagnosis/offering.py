# SPDX-License-Identifier: MIT
"""Checks of one offering: Waldur and the token, the offering and its components, orders, clocks, the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, TypeVar, cast

from agent.config.model import Mode, Offering, Settings, WaldurAccess
from agent.core.checks import Check, ok, problem, unknown, warning
from agent.core.errors import WaldurAnswerError, WaldurError
from agent.core.model import OfferingFacts, Order, Part
from agent.core.units import targets_of
from agent.plan.components import Change, changes
from agent.run import site as sites
from agent.run.diagnosis.probes import Causes, Probe, run
from agent.run.site import Site
from agent.state.store import stamp
from agent.waldur import me, offerings, orders
from agent.waldur.client import WaldurClient
from agent.waldur.me import Account
from backends import registry
from backends.base import Advice, ClusterChecks, Scope

T = TypeVar("T")

# No answer, a token that is refused, and a proxy before a Waldur that is away: other requests would meet the same.
UNAUTHORISED = 401
OF_ALL_REQUESTS = (None, UNAUTHORISED, 502, 503, 504)
# What a mode cannot do without, and what other work of the agent needs: docs/rights.md.
NEEDED = {
    Mode.ORDER_PROCESS: ("ORDER.APPROVE", "RESOURCE.SET_BACKEND_ID"),
    Mode.MEMBERSHIP_SYNC: ("RESOURCE.SET_BACKEND_METADATA",),
    Mode.REPORT: ("RESOURCE.SET_USAGE",),
}
USEFUL = (
    *("OFFERING.UPDATE", "OFFERING.UPDATE_COMPONENTS", "OFFERING.UPDATE_USER", "RESOURCE.SET_STATE"),
    *("PROVIDER.LIST_PERMISSIONS", "OFFERING.MANAGE_BACKEND_RESOURCES"),
)
RIGHTS = (
    "make the token's user an owner of the provider (CUSTOMER.OWNER), or give it a role there with the rights of "
    "docs/rights.md"
)
ENDS_SOON = timedelta(days=14)
# munge refuses credentials that are older than this, so commands fail from here on.
SKEW_MAX = timedelta(minutes=5)
SKEW_NOTED = timedelta(seconds=30)
ACTIVATE = (
    "activate the offering in Waldur (a server of 2024 lets staff alone): nothing can be ordered from it now"
)
NETWORK = "check waldur_api_url, the network, proxies and waldur_api_token; then run this again"
PLUGIN = (
    "look in the log at what the plugin printed; its own service, or its backend_settings, may be at fault"
)


class _InWaldur:
    """What the checks of an offering read in Waldur. Each thing is asked for once, whether it can be read or not.

    `away`: servers, or logins there, that no offering can be read from, each with its error.
    """

    def __init__(
        self, offering: Offering, listed: Sequence[Offering], away: dict[WaldurAccess, WaldurError]
    ) -> None:
        self._client = sites.client(offering, "diagnostics")
        self._access, self._away = offering.access, away
        self._listed = listed
        self._found: dict[Callable[[WaldurClient], Any], Any] = {}

    def ask(self, read: Callable[[WaldurClient], T]) -> T:
        """Return what a function of agent.waldur reads. Raises WaldurError, the same one again instead of sending
        anything where Waldur is away or refuses the token.
        """
        if read not in self._found:
            away = self._away.get(self._access) or self._away.get(_server(self._access))
            self._found[read] = away or self._read(read)
        found = self._found[read]
        if isinstance(found, WaldurError):
            raise found
        return cast(T, found)

    def _read(self, read: Callable[[WaldurClient], T]) -> T | WaldurError:
        try:
            return read(self._client)
        except WaldurError as error:
            if error.status in OF_ALL_REQUESTS and not isinstance(error, WaldurAnswerError):
                return self._away_for_all(error)
            return error

    def _away_for_all(self, error: WaldurError) -> WaldurError:
        """Return the error, with the names of the offerings that it concerns where they are several."""
        part = (lambda access: access) if error.status == UNAUTHORISED else _server
        names = [each.name for each in self._listed if part(each.access) == part(self._access)]
        if len(names) > 1:
            said = f"{error} (concerns {', '.join(names)})"
            error = WaldurError(said, method=error.method, path=error.path, status=error.status)
        self._away[part(self._access)] = error
        return error


def _server(access: WaldurAccess) -> WaldurAccess:
    """Return the way to Waldur without its login."""
    return replace(access, token=None, oidc=None)


def probes(settings: Settings, listed: Sequence[Offering], known: Causes) -> Iterator[Probe]:
    """Yield the checks of each offering. None depends on another. `known`: see `probes.run`."""
    away: dict[WaldurAccess, WaldurError] = {}
    for offering in listed:
        yield from _probes(settings, offering, _InWaldur(offering, listed, away), known)


def _probes(settings: Settings, offering: Offering, waldur: _InWaldur, known: Causes) -> Iterator[Probe]:
    about = offering.name
    yield Probe("Waldur token", lambda: _token(waldur.ask(me.account)), NETWORK, about)
    yield Probe("Waldur rights", lambda: _rights(waldur, offering), NETWORK, about)
    yield Probe("offering", lambda: _offering(waldur.ask(offerings.facts)), NETWORK, about)
    yield Probe("components", lambda: _components(waldur.ask(offerings.facts), offering), NETWORK, about)
    yield Probe("orders", lambda: _orders(waldur.ask(orders.actionable)), NETWORK, about)
    yield Probe("clock of Waldur", lambda: _waldur_clock(waldur.ask(me.server_time)), NETWORK, about)
    # A backend that serves several modes is looked at once.
    modes = {backend: mode for mode in reversed(Mode) if (backend := offering.backend_of(mode))}
    for backend, mode in sorted(modes.items()):
        yield from _of_backend(settings, offering, mode, f"cluster ({backend})", known)


def skew(name: str, whose: str, there: datetime, here: datetime) -> Check:
    """Compare another clock with this host's."""
    off = there - here
    direction = "ahead of" if off > timedelta() else "behind"
    said = f"the clock of {whose} is {abs(off.total_seconds()):.0f} s {direction} this host's"
    if abs(off) > SKEW_MAX:
        return problem(
            name,
            said,
            "set both clocks by NTP (chronyc tracking): munge refuses messages, tokens expire early",
        )
    if abs(off) > SKEW_NOTED:
        return warning(name, said, "set both clocks by NTP (chronyc tracking)")
    return ok(name, f"agrees with this host to {abs(off.total_seconds()):.0f} s")


def _token(user: Account) -> Iterator[Check]:
    name = "Waldur token"
    staff = ", staff" if user.is_staff else ""
    listed = "; ".join(f"{r.role} of {r.scope_type} {r.scope_name or r.scope_uuid}" for r in user.roles)
    yield ok(name, f"{user.username} ({user.full_name}{staff}): {listed or 'no roles'}")
    for role in user.roles:
        if role.expires is not None and role.expires - datetime.now(UTC) < ENDS_SOON:
            end = f"the role {role.role} of {role.scope_type} {role.scope_name} ends at {stamp(role.expires)}"
            yield warning(name, end, "renew the role in Waldur before that")


def _rights(waldur: _InWaldur, offering: Offering) -> Iterator[Check]:
    user = waldur.ask(me.account)
    try:
        facts = waldur.ask(offerings.facts)
    except WaldurError as error:
        if error.status not in (403, 404):
            raise
        said = (
            "may not see the offering: it has no role of it or its provider, or waldur_offering_uuid is wrong"
        )
        yield problem("Waldur rights", f"{user.username} {said}", RIGHTS)
        return
    if user.is_staff:
        yield ok("Waldur rights", f"{user.username} is staff and may do everything")
        return
    try:
        rights = waldur.ask(me.rights_of_roles)
    except WaldurError as error:
        roles = ", ".join(role.role for role in user.roles) or "no roles"
        said = f"what the roles of {user.username} ({roles}) may do cannot be read: {error}"
        yield unknown("Waldur rights", f"{said}. docs/rights.md lists the rights that are needed")
        return
    modes = [mode for mode in Mode if offering.backend_of(mode)]
    needed = [right for mode in modes for right in NEEDED[mode]]
    needed += ["ORDER.REJECT"] if offering.order_hook else []
    yield from _compare_rights(user, facts, rights, needed)


def _compare_rights(
    user: Account, facts: OfferingFacts, rights: Mapping[str, frozenset[str]], needed: Sequence[str]
) -> Iterator[Check]:
    """Yield what the user lacks of the `needed` rights, and of those that other work needs. Orders are approved by who
    has the right at the provider; for other rights newer servers look at roles of the offering, too.
    """
    name = "Waldur rights"
    of_provider, at_provider = _granted(user, facts.customer_uuid, rights)
    of_offering, at_offering = _granted(user, facts.uuid, rights)
    if not of_provider and not of_offering:
        yield problem(name, f"{user.username} has no role of the offering or its provider", RIGHTS)
        return
    orders = {right for right in needed if right.startswith("ORDER.")}
    missing = [right for right in needed if right not in at_provider]
    perhaps = [right for right in missing if right in at_offering - orders]
    lacking = [right for right in missing if right not in perhaps]
    # A right that no role of this server has is one that it does not know.
    known = frozenset[str]().union(*rights.values())
    useful = [right for right in USEFUL if right in known - at_provider - at_offering - set(needed)]
    roles = [f"{role} of the provider" for role in of_provider]
    who = f"{user.username} ({', '.join([*roles, *(f'{role} of the offering' for role in of_offering)])})"
    found = []
    if lacking:
        found.append(problem(name, f"{who} lacks {', '.join(lacking)}", RIGHTS))
    if perhaps:
        said = f"{who} has {', '.join(perhaps)} at the offering only: not every server lets it"
        found.append(warning(name, said, RIGHTS))
    if useful:
        found.append(warning(name, f"{who} lacks {', '.join(useful)}: docs/rights.md says what for", RIGHTS))
    yield from found or [ok(name, f"{who} has all rights that are needed")]


def _granted(
    user: Account, scope_uuid: str, rights: Mapping[str, frozenset[str]]
) -> tuple[list[str], frozenset[str]]:
    """Return the user's roles at a customer or offering, and what these may do."""
    roles = sorted({role.role for role in user.roles if role.scope_uuid == scope_uuid})
    return roles, frozenset[str]().union(*(rights.get(role, frozenset()) for role in roles))


def _offering(found: OfferingFacts) -> Iterator[Check]:
    said = f"{found.name} ({found.uuid}) of {found.customer_name or 'an unknown provider'}, {found.state}"
    if found.state in ("Active", "Paused"):
        yield ok("offering", said)
    else:
        yield warning("offering", said, ACTIVATE)


def _components(facts: OfferingFacts, offering: Offering) -> Iterator[Check]:
    known, present = registry.with_known_components(offering).components, facts.components
    listed = ", ".join(sorted(component.type for component in present)) or "none"
    found = False
    for change in changes(known.values(), present):
        if change.change is Change.CREATE:
            found = True
            said = f"{change.name} is configured and not in Waldur (there: {listed})"
            yield problem("components", said, "`load-components` brings the configured ones into Waldur")
        elif change.change is Change.UPDATE:
            found = True
            differs = ", ".join(
                f"{key} is {there!r} in Waldur, {wanted!r} here"
                for key, (there, wanted) in change.differences.items()
            )
            said = f"{change.name}: {differs}"
            yield warning("components", said, "`load-components` brings the configured ones into Waldur")
    for component in known.values():
        if not isfinite(component.unit_factor) or component.unit_factor <= 0:
            found = True
            said = f"{component.name} has the unit_factor {component.unit_factor}, which makes no limit"
            yield problem("components", said, "give it a unit_factor above 0")
    if not found:
        yield ok("components", f"Waldur has all that are configured: {', '.join(sorted(known)) or 'none'}")


def _orders(found: Sequence[Order]) -> Iterator[Check]:
    kinds = ", ".join(
        f"{order.type} {order.resource_name or order.uuid} ({order.state})" for order in found[:5]
    )
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    yield ok(
        "orders", f"{len(found)} wait for the agent: {kinds}{more}" if found else "none waits for the agent"
    )


def _waldur_clock(there: datetime | None) -> Iterator[Check]:
    name = "clock of Waldur"
    yield (
        skew(name, "Waldur", there, datetime.now(UTC)) if there else unknown(name, "its answers name no time")
    )


def _of_backend(
    settings: Settings, offering: Offering, mode: Mode, name: str, known: Causes
) -> Iterator[Probe]:
    made: list[Site] = []

    def health() -> Iterator[Check]:
        made.append(sites.connect(settings, offering, mode))
        yield from _health(name, made[0])

    about = offering.name
    advice = registry.advice_of(offering, mode)
    remedy = PLUGIN if mode is Mode.REPORT and offering.plugin_venv else advice.away
    yield Probe(name, health, remedy, about)
    # Without a site the check above has reported why.
    yield Probe(advice.limited, lambda: _tres(made[0], advice) if made else (), remedy, about)
    yield Probe(name, lambda: _details(made[0], known, advice) if made else (), remedy, about)


def _details(site: Site, known: Causes, advice: Advice) -> Iterable[Check]:
    """Return what the backend's own checks find, each on its own."""
    if not isinstance(site.backend, ClusterChecks):
        return []
    looks, about = site.backend.checks().items(), site.offering.name
    return run((Probe(name, _of_cluster(name, look), advice.away, about) for name, look in looks), known)


def _of_cluster(name: str, look: Callable[[], Check | datetime]) -> Callable[[], Iterable[Check]]:
    """Return the look of a backend's own check; a moment that it returns is what its clock shows."""

    def looked() -> Iterable[Check]:
        found = look()
        return [found if isinstance(found, Check) else skew(name, "slurmctld", found, datetime.now(UTC))]

    return looked


def _health(name: str, site: Site) -> Iterator[Check]:
    health = site.backend.check()
    for said in health.problems:
        yield problem(name, said, "correct backend_settings, or make on the cluster what is missing")
    for said in health.warnings:
        yield warning(name, said, "write it into backend_settings")
    if not health.problems:
        yield ok(name, f"{health.cluster} answers, version {health.version or 'unknown'}")
    if health.release:
        yield ok("release", health.release)


def _tres(site: Site, advice: Advice) -> Iterator[Check]:
    snapshot = site.backend.observe(Scope(frozenset({Part.TRES})))
    if Part.TRES not in snapshot.complete:
        return
    wanted = {tres: c.name for c in site.offering.components.values() for tres in targets_of(c)}
    missing = sorted(set(wanted) - snapshot.tres)
    for tres in missing:
        known = ", ".join(sorted(snapshot.tres))
        said = f"the component {wanted[tres]} limits {tres}, which the cluster does not have (it has {known})"
        yield problem(advice.limited, said, advice.unknown_limit)
    if not missing:
        yield ok(
            advice.limited,
            f"the cluster has all that components limit: {', '.join(sorted(wanted)) or 'none'}",
        )
