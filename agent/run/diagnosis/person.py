# SPDX-License-Identifier: MIT
"""Explain why a person can, or cannot, use an allocation: from the role in Waldur to the limits on the cluster, and the
first link of that chain that is broken.

The facts and the plan are those of the membership pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.config.model import Mode
from agent.core import choice
from agent.core.account_names import fold
from agent.core.actions import ClusterAction
from agent.core.errors import BackendError, SiteAgentError
from agent.core.model import OfferingUser, Resource, Snapshot, TeamMember
from agent.core.printable import shortlist
from agent.plan.membership import ResourceCase
from agent.run.diagnosis.account import named_resources, why_unplanned
from agent.run.preview import previews
from agent.run.preview.previews import Preview
from agent.run.site import Site
from agent.waldur import members, teams
from backends import registry
from backends.base import Advice, Scope


class NothingFound(SiteAgentError):
    """Waldur knows no such resource."""


@dataclass(frozen=True, slots=True)
class AccessStep:
    """One step from Waldur to the cluster."""

    name: str
    found: str
    # What is wrong with it, as a sentence; empty where nothing is.
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a person can or cannot use an allocation, step by step."""

    user: str
    resource: Resource
    links: tuple[AccessStep, ...]
    # The sentence that says what is wrong.
    verdict: str
    # What the next pass would do about the person.
    coming: tuple[str, ...] = ()

    @property
    def is_fine(self) -> bool:
        return not any(link.broken for link in self.links)


def find_resource(site: Site, wanted: str) -> Resource | None:
    """Return the resource of this uuid, account, slug or name, or of which one begins so; None where the offering has
    none. Raises WaldurError, and NothingFound where it could be one of several.
    """
    listed, named = named_resources(site, fold(wanted))
    found = named or choice.meant(
        wanted, listed, lambda r: r.uuid, lambda r: r.backend_id, lambda r: r.slug, lambda r: r.name
    )
    if len(found) > 1:
        names = (f"{r.name} ({r.backend_id or 'no account yet'}, {r.uuid})" for r in found)
        known = shortlist(names, choice.SHOWN)
        raise NothingFound(f"{wanted!r} could be several resources: {known}")
    return found[0] if found else None


def explain(site: Site, person: str, resource: Resource) -> Explanation:
    """Follow the chain for one person and one resource. Changes nothing. Raises SiteAgentError where Waldur or the
    cluster cannot be read.
    """
    if not why_unplanned(resource):
        preview = previews.preview_of_resource(site, resource.uuid)
        assert preview.sync is not None
        team = preview.sync.facts.waldur.teams.get(resource.uuid, ())
        if isinstance(team, SiteAgentError):
            raise team
    else:
        preview = None
        team = members.team(site.client, resource.uuid)
    user, uuid = _who(site, resource, person)
    on_cluster = _name_on_cluster(preview, user) if user else person
    still_in = _still_in(preview, fold(on_cluster), fold(resource.backend_id)) if preview else ""
    links = [
        *_waldur_links(person, user, uuid, team, resource, _closes(preview), is_in=bool(still_in)),
        *(_cluster_links(site, preview, fold(on_cluster), resource, still_in) if preview else ()),
    ]
    coming = tuple(_coming(preview, fold(on_cluster))) if preview else ()
    name = on_cluster or person
    option = _words(site).account_option
    broken = next((link.broken for link in links if link.broken), "")
    if still_in and broken != still_in:
        broken = f"{broken} {still_in}"
    if broken and coming:
        broken = f"{broken} The next pass over members would change that: {coming[0]}."
    verdict = (
        broken or f"Nothing is wrong: {name} can submit jobs with `{option}{fold(resource.backend_id)}`."
    )
    return Explanation(name, resource, tuple(links), verdict, coming)


def _who(site: Site, resource: Resource, person: str) -> tuple[OfferingUser | None, str]:
    """Return the offering user that `person` names, None where there is none, and the uuid of that person in Waldur,
    empty where none is called so. Raises WaldurError.
    """
    # A pass reads no logins and e-mails where it makes no usernames, and these need not be printed.
    users = members.offering_users(site.client, with_persons=True)
    if user := find_user(users, person):
        return user, user.user_uuid
    uuid = teams.person_uuid(site.client, resource, person)
    return next((each for each in users if uuid and each.user_uuid == uuid), None), uuid


def _name_on_cluster(preview: Preview | None, user: OfferingUser) -> str:
    """Return the name of a person on the cluster: of who is not renamed in the directory, the one that this has."""
    planned = preview.sync.facts.waldur.users if preview and preview.sync else ()
    names = {each.uuid: each.directory_name for each in planned}
    return names.get(user.uuid) or user.username


def find_user(users: Sequence[OfferingUser], person: str) -> OfferingUser | None:
    """Return the offering user of this username on the cluster, login in Waldur, e-mail or uuid."""
    name = fold(person)
    for found in (
        [u for u in users if fold(u.username) == name],
        [u for u in users if name.replace("-", "") in (u.uuid, u.user_uuid)],
        [u for u in users if name in (fold(u.waldur_username), fold(u.email))],
    ):
        if found and name:
            return found[0]
    return None


def _still_in(preview: Preview, user: str, account: str) -> str:
    """Return a sentence on who is in an account and not meant to be, with why that is so; empty where there is none."""
    if not (preview.sync and preview.sync.plans):
        return ""
    plan, seen = preview.sync.plans[0], preview.sync.snapshot
    if not seen.rows_of(account, user) or user in plan.case.members.wanted:
        return ""
    closed = seen.refuses_jobs(account) or user in plan.case.blocked
    can = "and submits no more" if closed else "and can submit jobs there"
    why = _withheld(preview, user)
    if not why and not any(user == getattr(action, "user", "") for action in preview.allowed):
        why = "; ".join(plan.notes) or "no step of a pass removes who stays there"
    return f"{user} is still in {account} {can}{f': {why}' if why else ''}."


def _waldur_links(  # noqa: PLR0913  what Waldur says, and what follows from it
    person: str,
    user: OfferingUser | None,
    user_uuid: str,
    team: Sequence[TeamMember],
    resource: Resource,
    has_effect: bool,
    *,
    is_in: bool,
) -> Iterator[AccessStep]:
    project = resource.project_name or resource.project_uuid
    member = next(
        (m for m in team if (user_uuid and m.user_uuid == user_uuid) or fold(m.username) == fold(person)),
        None,
    )
    if member is None:
        known = (
            "Waldur knows the account" if user else f"Waldur knows no user called {person} at this offering"
        )
        meant = "" if is_in else ", so no access is meant"
        said = f"{person} has no role in the project {project}{meant} ({known})."
        yield AccessStep("Waldur role", f"none in project {project}", said)
    else:
        yield AccessStep("Waldur role", f"{member.role or 'member'} in project {project}")
    if user is None:
        said = f"{person} has no user at this offering yet: Waldur makes one when the person joins a project."
        yield AccessStep("offering user", "none", "" if member is None else said)
    else:
        yield _user_link(user)
    yield _resource_link(resource, has_effect=has_effect)


def _user_link(user: OfferingUser) -> AccessStep:
    state = f", {user.state}" if user.state else ""
    found = f"{user.username or '(no username)'}{state}{', restricted' if user.is_restricted else ''}"
    who = user.username or user.waldur_username or user.uuid
    if user.is_on_the_way_out:
        return AccessStep(
            "offering user", found, f"The account of {who} at the offering is being deleted ({user.state})."
        )
    if user.is_restricted:
        said = f"The provider has restricted {who}: lift that in Waldur (offering, users)."
        return AccessStep("offering user", found, said)
    if not user.username:
        said = f"{who} has no username yet: it is made by the site (username_management_backend), or set in Waldur."
        return AccessStep("offering user", found, said)
    return AccessStep("offering user", found)


def _closes(preview: Preview | None) -> bool:
    """Return whether the site's settings do something about a resource that Waldur has paused."""
    plans = preview.sync.plans if preview and preview.sync else ()
    return any(each.spec and (each.spec.state.submission is False or each.spec.state.qos) for each in plans)


def _resource_link(resource: Resource, *, has_effect: bool) -> AccessStep:
    """`has_effect`: pausing closes the account, by the site's settings."""
    words = [str(resource.state)]
    words += ["paused"] * resource.paused + ["downscaled"] * resource.downscaled
    words += ["closed to members"] * resource.restrict_member_access
    found = f"{resource.name} ({resource.uuid}): {', '.join(words)}"
    name = resource.name
    if why := why_unplanned(resource):
        return AccessStep("resource", found, f"{name} cannot be used: {why}. Wait, or see `status`.")
    if resource.restrict_member_access:
        return AccessStep(
            "resource", found, f"{name} is closed to its members in Waldur (restrict_member_access)."
        )
    if resource.paused and has_effect:
        return AccessStep(
            "resource",
            found,
            f"{name} is paused in Waldur: lift that there, and the next pass opens the account.",
        )
    return AccessStep("resource", found)


def _words(site: Site) -> Advice:
    return registry.advice_of(site.offering, Mode.MEMBERSHIP_SYNC)


def _cluster_links(
    site: Site, preview: Preview, user: str, resource: Resource, still_in: str
) -> Iterator[AccessStep]:
    assert preview.sync is not None
    seen, account = preview.sync.snapshot, fold(resource.backend_id)
    standing = seen.accounts.get(account)
    if standing is None:
        said = f"The account {account} is not on the cluster {seen.cluster}: `rebuild` makes it again."
        yield AccessStep("account", "none", said)
        return
    yield AccessStep("account", f"{account} below {standing.parent}")
    if rows := seen.rows_of(account, user):
        partitions = sorted(row.partition or "all partitions" for row in rows)
        named = f" on {', '.join(partitions)}" if any(row.partition for row in rows) else ""
        yield AccessStep("association", f"{user} in {account}{named}", still_in)
    else:
        yield AccessStep("association", "none", _missing(preview, user, account, preview.sync.plans[0].case))
    default = seen.default_accounts.get(user)
    option = _words(site).account_option
    noted = "" if default == account else f" (not this one: jobs need `{option}{account}`)"
    yield AccessStep("default account", f"{default}{noted}" if default else "none")
    yield from _qos_and_limits(site, seen, user, account, resource)


def _missing(preview: Preview, user: str, account: str, case: ResourceCase) -> str:
    """Return why a person is not in an account, as the plan has it."""
    if why := _withheld(preview, user):
        return f"{user} is not in {account}: {why}."
    if user not in case.members.wanted:
        return f"{user} is not in {account}, and is not meant to be."
    return f"{user} is not in {account} on the cluster, though Waldur says so."


def _withheld(preview: Preview, user: str) -> str:
    """Return why a planned step of a person does not happen, empty where none is kept from happening."""
    about = [a for a in preview.sync.actions if getattr(a, "user", "") == user] if preview.sync else []
    for plan in preview.held:
        if any(action in plan.actions for action in about):
            return f"the step is held as plan {plan.short_id} ({plan.reason}); `approve {plan.short_id}` releases it"
    for refused in preview.refused:
        if refused.action in about:
            return f"the site's policy leaves the step out: {refused.sentence}"
    return ""


def _qos_and_limits(
    site: Site, seen: Snapshot, user: str, account: str, resource: Resource
) -> Iterator[AccessStep]:
    standing = seen.accounts[account]
    qos = ", ".join(sorted(seen.qos_of(account))) or "none"
    yield AccessStep("QoS", f"{qos}; default {seen.default_qos_of(account) or 'none'}")
    closed = ""
    if standing.submit_limit == 0:
        words = _words(site)
        why = " (downscaled or paused in Waldur)" if resource.downscaled or resource.paused else ""
        closed = f"The account {account} takes no new jobs: {words.submit_limit} is 0{why}."
    yield AccessStep("submission", "closed" if closed else "open", closed)
    limits = {**standing.limits}
    own = seen.user_limits.get((account, user), {})
    try:
        usage = site.backend.observe(Scope(frozenset(), usage_of=frozenset({account}))).used.get(account)
    except BackendError:
        usage = None
    used = usage or {}
    listed = ", ".join(
        f"{tres}={value}{f' ({used[tres]} used)' if tres in used else ''}"
        for tres, value in sorted(limits.items())
    )
    spent = [tres for tres, value in sorted(limits.items()) if tres in used and used[tres] >= value]
    full = ""
    if spent:
        names = ", ".join(spent)
        full = f"The limit of {account} for {names} is used up: jobs wait until it is raised or usage decays."
    unknown = "; how much of that is used is unknown" if listed and usage is None else ""
    yield AccessStep("limits", f"{listed}{unknown}" or "none", full)
    if own:
        yield AccessStep(
            f"limits of {user}", ", ".join(f"{tres}={value}" for tres, value in sorted(own.items()))
        )


def _coming(preview: Preview, user: str) -> Iterator[str]:
    """Yield what the next pass would do to this person's place, or to the account as a whole."""
    for action in preview.allowed:
        if isinstance(action, ClusterAction) and getattr(action, "user", user) == user:
            yield action.line()
