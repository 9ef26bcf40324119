# SPDX-License-Identifier: MIT
"""Project directories in the configuration: the reference's defaults, and nothing made by a setting that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from agent.config.load import LoadResult
from agent.core.project_directories import DirectoryRules, ProjectQuota, quota_of

from .samples import OFFERING, Site, changed

HERE = "offerings[0].backend_settings.project_directory"


def load(site: Site, **section: Any) -> LoadResult:
    settings = {"project_directory": {"enabled": True, **section}}
    return site.load({"offerings": [changed(OFFERING, "backend_settings", settings)]})


def rules(loaded: LoadResult) -> DirectoryRules | None:
    assert loaded.settings is not None
    return loaded.settings.offerings[0].project_directories


def test_the_usual_values(site: Site) -> None:
    assert rules(load(site)) == DirectoryRules("/valhalla/projects", "nobody", 0o2770, has_acl=True)
    assert rules(load(site, enabled=False, permissions="none")) is None


def test_all_keys(site: Site) -> None:
    quota = {"mount_point": "/l", "block_softlimit": 1, "inode_hardlimit": 5, "project_id_offset": 9}
    loaded = load(
        site, base_path="/l/p/", owner="root", permissions="0750", set_gid=False, set_acl=False,
        group_owner_source="project_id", lustre_quota=quota,
    )  # fmt: skip
    assert rules(loaded) == DirectoryRules(
        "/l/p", "root", 0o750, has_acl=False,
        quota=ProjectQuota("/l", (("bsoft", "1"), ("ihard", "5")), 9),
    )  # fmt: skip
    assert not [problem for problem in loaded.problems if "project_directory" in problem.path]


def test_one_group_for_all_directories_gets_no_quota_that_they_would_share(site: Site) -> None:
    group = {"group_owner_source": "x", "group_name": "hpc"}
    assert rules(load(site, **group)) == DirectoryRules(
        "/valhalla/projects", "nobody", 0o2770, has_acl=True, group_name="hpc"
    )
    loaded = load(site, **group, lustre_quota={"block_hardlimit": 1})
    found = rules(loaded)
    assert found is not None and (found.group_name, found.quota) == ("hpc", None)
    (problem,) = (problem for problem in loaded.problems if problem.path == f"{HERE}.lustre_quota")
    assert "would share the quota of one" in problem.message and problem.strict_error


def test_the_quota_of_a_group(site: Site) -> None:
    loaded = load(site, set_gid=False, lustre_quota={
        "mount_point": "/l", "quota_type": "group", "block_hardlimit": 1, "project_id_offset": 9
    })  # fmt: skip
    found = rules(loaded)
    assert found is not None
    assert found.quota == ProjectQuota("/l", (("bhard", "1"),), of_group=True)
    assert quota_of(found.quota.mark()) == found.quota != ProjectQuota("/l", (("bhard", "1"),))
    messages = {problem.path.removeprefix(HERE): problem.message for problem in loaded.problems}
    assert "there is no project id" in messages[".lustre_quota.project_id_offset"]
    assert "only files of the group count" in messages[".set_gid"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("base_path", "/"),
        ("base_path", "projects"),
        ("base_path", "/a/../b"),
        ("permissions", 504),  # 0770 without quotes
        ("permissions", "-rwx"),
        ("permissions", "4770"),
        ("permissions", "077"),
        ("set_acl", "perhaps"),
        ("owner", []),
    ],
)
def test_a_wrong_value_makes_no_directory_and_says_so(site: Site, key: str, value: Any) -> None:
    loaded = load(site, **{key: value})
    assert rules(loaded) is None
    (problem,) = (problem for problem in loaded.problems if problem.path == f"{HERE}.{key}")
    assert "no project directories are made" in problem.message and problem.strict_error


def test_unknown_keys_are_named(site: Site) -> None:
    loaded = load(site, base_pth="/x", lustre_quota={"mountpoint": "/l", "block_hardlimit": 1})
    found = {problem.path: problem.message for problem in loaded.problems}
    assert "did you mean 'base_path'?" in found[f"{HERE}.base_pth"]
    assert "did you mean 'mount_point'?" in found[f"{HERE}.lustre_quota.mountpoint"]
    assert rules(loaded) is not None


@pytest.mark.parametrize(
    "quota",
    [
        {"project_id_offset": "many", "block_hardlimit": 1},
        {"project_id_offset": -1, "block_hardlimit": 1},
        {"project_id_offset": 2**32 - 1, "block_hardlimit": 1},
        {"block_hardlimit": "1T"},
        {"block_softlimit": 2, "block_hardlimit": 1},
        {"mount_point": "lustre", "block_hardlimit": 1},
        {"project_id_offset": 1},
    ],
    ids=str,
)
def test_a_wrong_quota_is_none_and_the_directories_are_made(site: Site, quota: dict[str, Any]) -> None:
    loaded = load(site, lustre_quota=quota)
    found = rules(loaded)
    assert found is not None and found.quota is None
    assert any("project directories are made without a quota" in p.message for p in loaded.problems)
