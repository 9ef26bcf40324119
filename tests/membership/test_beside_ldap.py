# SPDX-License-Identifier: MIT
"""The groups of a real OpenLDAP are part of a membership plan, and of what `apply` carries out."""

from __future__ import annotations

from agent.config.model import Mode
from agent.core.directory_actions import DirectoryAction
from agent.run.preview.previews import preview
from rig.slapd import Slapd
from tests.backends.usernames.conftest import raw
from tests.membership.conftest import WorldFactory


def test_a_group_that_is_missing_is_shown_made_and_then_no_difference(
    make_world: WorldFactory, slapd: Slapd
) -> None:
    plain = make_world()
    plain.allocate("one")
    plain.settled()
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
