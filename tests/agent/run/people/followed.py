# SPDX-License-Identifier: MIT
"""A site whose people follow Waldur: its names and numbers go into a directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.core.plans import Outcome
from agent.run.site import Site
from backends.usernames.ldap.directory import LdapEntry
from rig.slapd import Slapd
from simulator.server.waldur import SimulatedWaldur
from simulator.world.ages import Age
from tests.agent.run.people.conftest import (
    SCENARIO,
    SiteFactory,
    facts,
    listed,
    provision,
)
from tests.backends.usernames.conftest import Looker, raw

FOLLOWED = {
    "account_source": "waldur",
    "waldur_username_attribute": "employeeNumber",
    "default_home_base": "/data",
}


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    """The first age that reports the numbers."""
    with SimulatedWaldur(age=Age.V8_1, scenario=SCENARIO) as server:
        yield server


@pytest.fixture
def looker(slapd: Slapd) -> Iterator[Looker]:
    looker = Looker(slapd)
    yield looker
    looker.directory.close()


def give(waldur: SimulatedWaldur, login: str, name: str, uid: int | None, **more: Any) -> None:
    row = waldur.people.set_account(login, name)
    values = {"uidnumber": uid, "primarygroup": uid and uid + 1000, **more}
    waldur.site.change("offering_users", row.uuid, **values)


@pytest.fixture
def site(waldur: SimulatedWaldur, site_for: SiteFactory, slapd: Slapd) -> Site:
    waldur.site.change("offerings", waldur.seed.offering_uuid, plugin_options={})
    return site_for("ldap", **raw(slapd, **FOLLOWED))


def passed(site: Site) -> list[Outcome]:
    """One pass without a fault."""
    report = provision(site, listed(site), facts(site))
    assert report.error is None
    assert all(outcome.done for outcome in report.outcomes), report.outcomes
    return list(report.outcomes)


def user_of(looker: Looker, name: str) -> LdapEntry:
    entry = looker.user(name)
    assert entry is not None
    return entry
