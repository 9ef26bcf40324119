# SPDX-License-Identifier: MIT
"""The record of a user belongs to all clusters of slurmdbd: it goes with the last association on any of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.actions import AddMember, CreateAccount, RemoveMember
from rig.slurmrestd import Slurmrestd
from tests.backends.conftest import by_rest

ELSEWHERE = "elsewhere"
# slurmrestd knows no address with its @ as it is.
ODD = "x.y@z-0_1"


@pytest.fixture
def members(real_slurmrestd: Slurmrestd, tmp_path: Path) -> Iterator[Any]:
    """A backend with users in two accounts, of whom one is on another cluster, too."""
    real_slurmrestd.cluster.reset()
    ask = real_slurmrestd.cluster.ask
    ask("sacctmgr", "-i", "add", "cluster", f"name={ELSEWHERE}")
    ask("sacctmgr", "-i", "add", "account", "name=u_other", f"cluster={ELSEWHERE}")
    ask("sacctmgr", "-i", "add", "user", "name=far", "account=u_other", f"cluster={ELSEWHERE}")
    ask("sacctmgr", "-i", "add", "user", "name=staff", "account=root", "cluster=test", "adminlevel=Operator")
    backend = by_rest(real_slurmrestd.access, tmp_path)()
    made = [
        *(CreateAccount(account=name, parent="root") for name in ("u_one", "u_two")),
        *(AddMember(account="u_one", user=user, default_account="u_one") for user in (ODD, "last", "again")),
        AddMember(account="u_two", user="both", default_account="u_two"),
        *(AddMember(account="u_one", user=user) for user in ("both", "far")),
    ]
    assert [outcome.error for outcome in backend.apply(made)] == [None] * len(made)
    yield backend
    real_slurmrestd.cluster.reset()


def test_who_has_no_association_left_has_no_record(real_slurmrestd: Slurmrestd, members: Any) -> None:
    def users() -> set[str]:
        shown = real_slurmrestd.cluster.ask("sacctmgr", "-nP", "show", "user", "format=user")
        return set(shown.split()) - {"root"}

    assert users() == {ODD, "last", "again", "both", "far", "staff"}
    leaving = [
        RemoveMember(account="u_one", user=user, is_default=user != "both")
        for user in (ODD, "last", "again", "both", "far")
    ]
    assert [outcome.error for outcome in members.apply(leaving)] == [None] * len(leaving)
    assert users() == {"both", "far", "staff"}
    far = real_slurmrestd.cluster.ask(
        "sacctmgr", "-nP", "show", "assoc", "user=far", "format=cluster,account"
    )
    assert far == f"{ELSEWHERE}|u_other\n"
    (joined,) = members.apply([AddMember(account="u_two", user="again", default_account="u_two")])
    assert joined.done
    assert users() == {"again", "both", "far", "staff"}


def test_a_record_with_an_admin_level_stays(real_slurmrestd: Slurmrestd, members: Any) -> None:
    leaving = [
        RemoveMember(account=name, user=user, is_default=True)
        for name, user in (("root", "staff"), ("u_one", "last"))
    ]
    assert [outcome.error for outcome in members.apply(leaving)] == [None, None]
    shown = real_slurmrestd.cluster.ask("sacctmgr", "-nP", "show", "user", "format=user,adminlevel")
    assert "staff|Operator" in shown.split()
    assert "last|None" not in shown.split()
