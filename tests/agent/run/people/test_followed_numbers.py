# SPDX-License-Identifier: MIT
"""`account_source: waldur`: numbers that disagree, and numbers that are adopted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.config.model import Mode
from agent.core.directory_actions import AdoptNumbers
from agent.run import engine
from agent.run.passes import sync_members
from agent.run.people import posix_accounts
from agent.run.preview.previews import preview
from agent.run.site import Site
from rig.slapd import Slapd
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.people.conftest import (
    SiteFactory,
    facts,
    listed,
    logins,
    named,
    waldur_of,
    with_resource,
)
from tests.agent.run.people.followed import FOLLOWED, give, looker, passed, site, user_of, waldur
from tests.backends.usernames.conftest import Looker, raw
from tests.world import approve

__all__ = ["looker", "site", "waldur"]


@pytest.mark.parametrize(("how", "is_failed"), [("report", False), ("fail", True)])
def test_numbers_that_disagree_fail_the_pass_where_the_site_wants_that(
    waldur: SimulatedWaldur, site: Site, site_for: SiteFactory, slapd: Slapd, looker: Looker, how: str, is_failed: bool
) -> None:  # fmt: skip
    give(waldur, logins(waldur)[0], "ann", 5001)
    looker.add_user("ann", 7777)
    site = site_for("ldap", **raw(slapd, **FOLLOWED, on_posix_mismatch=how))
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        named(run, waldur_of(site, listed(site), facts(site)))
    assert run.report.failed is is_failed
    assert "7777:7777" in " ".join([*run.report.notes, *run.report.problems])


@pytest.fixture
def adopting(
    waldur: SimulatedWaldur, site: Site, site_for: SiteFactory, slapd: Slapd, looker: Looker
) -> Site:
    """Waldur's numbers count, and ann has others in the directory."""
    give(waldur, logins(waldur)[0], "ann", 5001)
    looker.add_user("ann", 7777)
    return site_for("ldap", **raw(slapd, **FOLLOWED, on_posix_mismatch="adopt"))


def test_numbers_are_adopted_with_the_group(adopting: Site, looker: Looker) -> None:
    looker.add_group("ann", 7777, "ann")
    done = passed(adopting)
    assert done[0].action == AdoptNumbers(user="ann", before=(7777, 7777), after=(5001, 6001))
    group = looker.group("ann")
    assert group is not None and group.first("gidNumber") == "6001"
    assert user_of(looker, "ann").first("uidNumber") == "5001"
    assert passed(adopting) == []


def test_a_plan_knows_that_a_person_has_approved_what_is_adopted(
    waldur: SimulatedWaldur, adopting: Site, looker: Looker
) -> None:
    looker.add_group("ann", 7777, "ann")
    with_resource(waldur, waldur.seed.project_uuids[0])
    strict = replace(adopting.offering.policy, max_removed_members=0)
    site = replace(adopting, offering=replace(adopting.offering, policy=strict))
    (held,) = preview(site, Mode.MEMBERSHIP_SYNC).held
    assert [plan.id for plan in sync_members(site).held] == [held.id]
    approve(site, posix_accounts.KEY)
    shown = preview(site, Mode.MEMBERSHIP_SYNC)
    assert (shown.held, set(held.actions) - set(shown.allowed)) == ((), set())
    sync_members(site)
    assert user_of(looker, "ann").first("uidNumber") == "5001"


def test_the_number_of_another_group_is_not_adopted(adopting: Site, looker: Looker) -> None:
    looker.add_group("wheel", 6001)
    assert passed(adopting) == []
    assert user_of(looker, "ann").first("uidNumber") == "7777"
