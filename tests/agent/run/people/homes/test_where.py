# SPDX-License-Identifier: MIT
"""Root makes and limits homes where the site has them, whatever the user database says of a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.errors import PlanRefused
from tests.agent.run.people.homes.conftest import XFS, HomeSite, warnings

BAD = "/etc/systemd/system/cron.service.d"
FOLLOWED = {
    "account_source": "waldur",
    "uri": "ldaps://x",
    "bind_dn": "x",
    "bind_password": "x",
    "base_dn": "x",
}


@pytest.mark.parametrize("bases", ["written", "of a directory that follows Waldur", "none"])
def test_a_home_elsewhere_is_neither_made_nor_limited(
    homes_of: HomeSite, bases: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Everybody else gets theirs."""
    world = homes_of.world
    world.add_users("ann", "bob")
    world.add_users("mal", home=BAD)
    world.file_systems(xfs="/xfs")
    settings: dict[str, object] = {
        "written": {"homedir_bases": [f"{world.homes}/"]},
        "of a directory that follows Waldur": {"ldap": {**FOLLOWED, "default_home_base": str(world.homes)}},
        "none": {},
    }[bases]
    homes_of.configure(quota=XFS, **settings)
    assert {action.ids()["user"] for action in homes_of.plan("ann", "bob", "mal").actions} == {"ann", "bob"}
    report = homes_of.provision("ann", "bob", "mal")
    assert (report.made, report.limited) == (["ann", "bob"], ["ann", "bob"])
    assert isinstance(report.failed["mal"], PlanRefused)
    assert f"its home is {BAD!r}, and it is " in str(report.failed["mal"])
    assert "homedir_bases" in warnings(caplog)[0]
    assert not any("mal" in word for call in world.calls() for word in call)
    assert not Path(BAD).exists()
    caplog.clear()
    homes_of.provision("ann", "bob", "mal")
    assert warnings(caplog) == []


def test_a_quota_of_ceph_reaches_no_folder_elsewhere(homes_of: HomeSite) -> None:
    """setfattr is given the path."""
    world = homes_of.world
    elsewhere = world.folder / "elsewhere" / "mal"
    elsewhere.mkdir(parents=True)
    world.add_users("mal", home=str(elsewhere))
    world.file_systems(ceph=str(world.folder))
    homes_of.configure(quota={"provider": "ceph_xattr", "max_bytes": "1T"}, homedir_bases=[str(world.homes)])
    assert homes_of.provision("mal").limited == []
    assert world.calls() == []
    homes_of.configure(
        quota={"provider": "ceph_xattr", "max_bytes": "1T"}, homedir_bases=[str(elsewhere.parent)]
    )
    assert homes_of.provision("mal").limited == ["mal"]
