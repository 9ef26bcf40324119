# SPDX-License-Identifier: MIT
"""The groups of a real OpenLDAP are part of a membership plan, and of what `apply` carries out."""

from __future__ import annotations

from pathlib import Path

from agent.config.model import Mode
from agent.core.directory_actions import DirectoryAction
from agent.run.preview.previews import preview
from backends.usernames.base import UsernameContext
from backends.usernames.ldap.backend import LdapUsernames
from rig.slapd import Slapd
from simulator.world.records import OfferingUserState
from tests.agent.run.membership.conftest import WorldFactory
from tests.backends.usernames.conftest import Looker, person, raw, settings


def test_a_group_that_is_missing_is_planned_made_and_then_no_difference(
    make_world: WorldFactory, slapd: Slapd
) -> None:
    plain = make_world()
    plain.allocate("one")
    plain.converge()
    world = make_world(backend=raw(slapd))
    world.backend.state = plain.cluster
    members = len(world.members("a_one"))
    looked_at = preview(world.site, Mode.MEMBERSHIP_SYNC)
    verbs = [action.verb for action in looked_at.allowed if isinstance(action, DirectoryAction)]
    assert verbs == ["create group", *["add to group"] * members]
    assert not looked_at.apply().problems
    assert preview(world.site, Mode.MEMBERSHIP_SYNC).allowed.actions == ()
    slapd.stop()
    away = preview(world.site, Mode.MEMBERSHIP_SYNC)
    assert any(note.startswith("groups cannot be planned: ") for note in away.notes)
    assert world.sync().failed


def test_whose_deletion_waldur_wants_is_released_by_the_directory(
    make_world: WorldFactory, slapd: Slapd, tmp_path: Path
) -> None:
    keys = raw(slapd, remove_user_on_deactivate=True)
    directory = LdapUsernames(settings(slapd), UsernameContext("o", tmp_path))
    directory.open()
    looker = Looker(slapd)
    assert directory.make(person()) == "jsmith"
    world = make_world(backend=keys, username_management_backend="ldap")
    world.allocate("one")
    world.join("jsmith")
    world.converge()
    assert "jsmith" in world.members("a_one")
    world.waldur.people.set_account("jsmith", "jsmith", state=OfferingUserState.REQUESTED_DELETION)
    report = world.sync()
    verbs = [outcome.action.verb for outcome in report.outcomes if "jsmith" in outcome.action.line()]
    assert [verb for verb in verbs if verb != "remove from group"] == [
        "begin deletion",
        "remove member",
        "deactivate user",
        "complete deletion",
    ]
    assert "jsmith" not in world.members("a_one")
    assert looker.user("jsmith") is None
    row = world.waldur.people.account("jsmith")
    assert row is not None
    assert (row.state, row.username) == (OfferingUserState.DELETED, "jsmith")
    looker.directory.close()
    directory.close()
