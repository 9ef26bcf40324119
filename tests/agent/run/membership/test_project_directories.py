# SPDX-License-Identifier: MIT
"""Project directories of a membership pass: a real OpenLDAP gives the group its number, lfs is a stand-in."""

from __future__ import annotations

import json
import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.host_actions import SetProjectQuota
from agent.core.model import Snapshot
from agent.core.policy import Budget, Cost, PolicyRules
from agent.core.project_directories import DirectoryRecord
from agent.run.preview.previews import preview
from agent.state.hints import PROJECT_DIRECTORIES
from rig.slapd import Slapd
from tests.agent.run.membership.conftest import WorldFactory
from tests.backends.storage.world import World as HeadNode
from tests.backends.usernames.conftest import Looker, raw

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="folders are given to other users by root only")


def test_each_allocation_gets_its_directory_and_quota_once(
    make_world: WorldFactory, slapd: Slapd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = HeadNode(tmp_path / "node")
    node.file_systems(lustre="/lustre")
    monkeypatch.setenv("PATH", f"{node.bin}:{os.environ['PATH']}")
    base = tmp_path / "projects"
    base.mkdir(mode=0o755)
    settings = {
        **raw(slapd),
        "enable_user_homedir_account_creation": False,
        "project_directory": {
            "enabled": True,
            "base_path": str(base),
            "lustre_quota": {"mount_point": "/lustre", "block_hardlimit": 1000, "project_id_offset": 500},
        },
    }
    world = make_world(backend=settings)
    world.allocate("one")
    assert os.listdir(base) == ["a_one"]
    looker = Looker(slapd)
    group = looker.group("a_one")
    looker.directory.close()
    assert group is not None
    gid = int(group.first("gidNumber"))
    seen = (base / "a_one").stat()
    assert (seen.st_uid, seen.st_gid) == (pwd.getpwnam("nobody").pw_uid, gid)
    assert node.kept("lustre") == {f"project {gid + 500}": {"-B": "1000"}}
    node.forget_calls()
    world.converge()
    assert node.calls() == []
    # Gone by an operator's hand: shown by a plan, made by the next pass.
    (base / "a_one").rmdir()
    lines = [action.line() for action in preview(world.site, Mode.MEMBERSHIP_SYNC).allowed]
    assert [line.split(" of ")[0] for line in lines] == [
        f"make project directory {base}/a_one",
        "set project quota",
    ]
    assert not (base / "a_one").exists()
    report = world.sync()
    assert not report.failed, report.as_json()
    assert (base / "a_one").is_dir()
    # Cut off between the directory and its quota: no user loses anything by the first one, as long as it is empty.
    record = {"a_one": DirectoryRecord()}
    (node.folder / "lustre").write_text("{}")
    PROJECT_DIRECTORIES.put(world.site.state_dir, world.site.offering.uuid, record)
    for is_used in (False, True):
        (quota,) = preview(world.site, Mode.MEMBERSHIP_SYNC).allowed
        assert quota.takes_away(Snapshot("c"), PolicyRules()) is is_used
        (base / "a_one" / "data").touch()
    (base / "a_one" / "data").unlink()
    # Raised by an operator, and our record is lost.
    (node.folder / "lustre").write_text(json.dumps({f"project {gid + 500}": {"-B": "9000"}}))
    PROJECT_DIRECTORIES.put(world.site.state_dir, world.site.offering.uuid, record)
    (quota,) = preview(world.site, Mode.MEMBERSHIP_SYNC).allowed
    assert isinstance(quota, SetProjectQuota) and ("bhard", "9000") in (quota.before or ())
    assert quota.takes_away(Snapshot("c"), PolicyRules())
    # What a pass would hold is shown as held.
    rules = world.site.offering.policy
    strict = replace(rules, budgets={**rules.budgets, Cost.QUOTAS_LOWERED: Budget(0, 0)})
    offering = replace(world.site.offering, policy=strict)
    shown = preview(replace(world.site, offering=offering), Mode.MEMBERSHIP_SYNC)
    assert list(shown.allowed) == []
    assert ["quota" in plan.reason for plan in shown.held] == [True]


def test_a_plan_that_is_carried_out_makes_no_directory_that_it_did_not_show(
    make_world: WorldFactory, slapd: Slapd, tmp_path: Path
) -> None:
    """Its group comes with the plan, so its number was unknown before."""
    plain = make_world(backend={"enable_user_homedir_account_creation": False})
    plain.allocate("one")
    plain.converge()
    base = tmp_path / "projects"
    base.mkdir(mode=0o755)
    directory = {"enabled": True, "base_path": str(base)}
    settings = {"enable_user_homedir_account_creation": False, "project_directory": directory}
    world = make_world(backend={**raw(slapd), **settings})
    world.backend.state = plain.cluster
    looked_at = preview(world.site, Mode.MEMBERSHIP_SYNC)
    verbs = {action.verb for action in looked_at.allowed}
    assert verbs == {"create group", "add to group"}
    report = looked_at.apply()
    assert {outcome.action.verb for outcome in report.outcomes if outcome.done} - verbs <= {
        "refresh last sync"
    }
    assert os.listdir(base) == []
    (later,) = preview(world.site, Mode.MEMBERSHIP_SYNC).allowed
    assert later.verb == "make project directory"
    assert not preview(world.site, Mode.MEMBERSHIP_SYNC).apply().failed
    assert os.listdir(base) == ["a_one"]


def test_without_a_place_for_directories_the_pass_says_so_and_goes_on(
    make_world: WorldFactory, tmp_path: Path
) -> None:
    settings = {"project_directory": {"enabled": True, "base_path": f"{tmp_path}/none"}}
    world = make_world(backend={"enable_user_homedir_account_creation": False, **settings})
    world.allocate("one")
    report = world.sync()
    assert report.in_step == 1
    (problem,) = report.problems
    assert problem.startswith("project directories: ") and "is its file system mounted?" in problem
