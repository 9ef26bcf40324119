# SPDX-License-Identifier: MIT
"""A simulated Waldur whose provider names the people, a cluster in memory, and a username backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.errors import SiteAgentError
from agent.core.model import OfferingFacts, OfferingUser, Snapshot
from agent.core.plans import Outcome
from agent.plan.groups import DesiredGroups
from agent.run import engine
from agent.run import site as sites
from agent.run.gate import Pass
from agent.run.handed_on import AccountsInStep
from agent.run.people.groups import Groups
from agent.run.people.naming import Naming
from agent.run.people.usernames import Usernames
from agent.run.site import Site
from agent.run.waldur_facts import MembershipFacts
from agent.state.store import Store
from agent.waldur import members, offerings
from backends.testing.memory import MemoryBackend
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OfferingUserState
from simulator.world.seed import Scenario
from tests.agent.run.people.scripted import Scripted, install

SiteFactory = Callable[..., Site]
PEOPLE = 6


SCENARIO = Scenario(
    projects_per_customer=1,
    members_per_project=PEOPLE,
    unnamed_members=PEOPLE,
    plugin_options={
        "username_generation_policy": "service_provider",
        "service_provider_can_create_offering_user": True,
    },
)


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(scenario=SCENARIO) as server:
        yield server


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    return install(tmp_path, monkeypatch)


def site_on(waldur: SimulatedWaldur, folder: Path, name: str = "scripted", **backend: Any) -> Site:
    """The site with this username backend and these backend settings; its cluster is in memory."""
    settings = settings_of(configuration(waldur, folder, backend=backend, username_management_backend=name))
    offering = settings.offerings[0]
    return Site(offering, sites.client(offering, "membership_sync"), MemoryBackend(), settings.state_dir)


@pytest.fixture
def site_for(waldur: SimulatedWaldur, tmp_path: Path) -> SiteFactory:
    return partial(site_on, waldur, tmp_path)


def with_resource(waldur: SimulatedWaldur, project: str) -> str:
    """A resource of the project at the offering, without an account."""
    order = waldur.orders.place_create(project, "one")
    waldur.site.change("orders", order, state="done")
    (resource,) = waldur.site.resources()
    waldur.site.change("resources", resource.uuid, state="OK")
    return resource.uuid


def listed(site: Site) -> list[OfferingUser]:
    return members.offering_users(site.client, with_persons=True)


def facts(site: Site) -> OfferingFacts:
    return offerings.facts(site.client)


@dataclass(frozen=True)
class Done:
    """What a mode of names or groups has done. `error`: what stopped names, `users`: as they are then; `problems`,
    `later`: as the report of the pass has them.
    """

    outcomes: tuple[Outcome, ...]
    problems: Sequence[str]
    later: SiteAgentError | None
    error: SiteAgentError | None = None
    users: Sequence[OfferingUser] = ()


def waldur_of(site: Site, users: Sequence[OfferingUser], options: OfferingFacts) -> MembershipFacts:
    """What a pass has read where the offering has no resources with accounts."""
    return MembershipFacts(
        offering=options, resources=(), in_progress=(), users=users, teams={}, accounts={}, orders={},
        user_limits=None, cluster=Snapshot(site.backend.cluster),
    )  # fmt: skip


def named(run: Pass, waldur: MembershipFacts) -> Done:
    """Run the mode that names people as it is run in a membership pass."""
    run.leave(waldur)
    (mode,) = Usernames.each(run)
    engine.run_optional(run, mode)
    assert isinstance(mode, Naming)
    report = run.report
    return Done(tuple(mode.outcomes), report.problems, report.later, mode.error, mode.users)


def provision(site: Site, users: Sequence[OfferingUser], options: OfferingFacts) -> Done:
    """As in a membership pass."""
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        return named(run, waldur_of(site, users, options))


def planned(site: Site, kind: type[engine.Mode[Any, Any]], *left: object) -> Any:
    """Return the plan of a mode in a pass that does not apply, after modes that have `left` these."""
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, applies=False) as run:
        for each in left:
            run.leave(each)
        engine.walk(run, [kind])
    assert run.report.error is None
    assert not [note for note in run.report.notes if "cannot be planned" in note]
    return run.works[0].plan


def planned_names(site: Site) -> Any:
    return planned(site, Usernames, waldur_of(site, listed(site), facts(site)))


def provision_groups(site: Site, desired: DesiredGroups) -> Done:
    """As in a membership pass over everything."""
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        run.leave(AccountsInStep(desired, desired.users, is_whole=True))
        mode = Groups(run)
        engine.run_optional(run, mode)
    return Done(tuple(mode.outcomes), run.report.problems, run.report.later)


def provisioned(site: Site) -> Done:
    """One pass; what the report says of the users is what Waldur has."""
    report = provision(site, listed(site), facts(site))
    assert sorted(report.users, key=str) == sorted(listed(site), key=str)
    return report


def states(waldur: SimulatedWaldur) -> dict[str, str]:
    """State by login."""
    return {login: state for login, (state, _) in accounts(waldur).items()}


def accounts(waldur: SimulatedWaldur) -> dict[str, tuple[str, str]]:
    """State and name by login."""
    logins = [login for several in waldur.seed.members.values() for login in several]
    found = {login: waldur.people.account(login) for login in logins}
    return {login: (row.state.value, row.username) for login, row in found.items() if row}


def logins(waldur: SimulatedWaldur) -> list[str]:
    return [login for several in waldur.seed.members.values() for login in several]


def set_state(waldur: SimulatedWaldur, login: str, state: str) -> None:
    waldur.people.set_account(login, "", state=OfferingUserState(state))


def forget_names(site: Site) -> None:
    """Forget which names people had."""
    with Store(site.state_dir).write() as db:
        db.run("DELETE FROM given_usernames")


def posts(waldur: SimulatedWaldur) -> dict[str, int]:
    """Requests that change something, since the last reset."""
    counts = waldur.request_counts()
    return {
        name.rpartition("/marketplace-offering-users/")[2] or name: number
        for name, number in counts.items()
        if not name.startswith("GET")
    }
