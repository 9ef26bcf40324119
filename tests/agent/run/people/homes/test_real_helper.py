# SPDX-License-Identifier: MIT
"""The real mkhomedir_helper and the real user database, with users of the test's own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rig import warm_python
from rig.processes import REPOSITORY
from tests.agent.config.samples import OFFERING, changed
from tests.agent.run.people.homes.private_users import command_prefix

PROVISION = """
import json, sys
from pathlib import Path
from agent.config.load import load
from agent.config.model import Mode
from agent.plan.groups import DesiredGroups
from agent.run import engine
from agent.run.handed_on import AccountsInStep
from agent.run.people.homes import Homes
from tests.agent.run.people.homes.conftest import site_of
site = site_of(load(Path(sys.argv[1]), {}).settings.offerings[0], Path(sys.argv[2]))
with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
    run.leave(AccountsInStep(DesiredGroups({}), frozenset(sys.argv[3:])))
    mode = Homes(run)
    engine.run_optional(run, mode)
print(json.dumps(mode.report.as_json()))
"""
APPLY = """
import sys
from pathlib import Path
from agent.core.host_actions import MakeHome
from backends.lock import WriteLock
from backends.storage.homes import HeadNode
outcome = HeadNode(WriteLock(Path(sys.argv[1]), "homes")).apply(
    MakeHome(user=sys.argv[2], path=sys.argv[3], umask=sys.argv[4])
)
print(outcome.error or "made")
"""


def run(prefix: list[str], script: str, *words: object) -> str:
    done = subprocess.run(
        [*prefix, warm_python.of_commands().program, "-c", script, *map(str, words)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def provision(folder: Path, prefix: list[str], *users: str, **settings: Any) -> Any:
    file = folder / "site.yaml"
    file.write_text(yaml.safe_dump({"offerings": [changed(OFFERING, "backend_settings", settings)]}))
    file.chmod(0o600)
    return json.loads(run(prefix, PROVISION, file, folder / "state", *users))


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({}, "0700"),
        ({"default_homedir_umask": "0027"}, "0750"),
        ({"homedir_umask": "0700"}, "0700"),
        ({"homedir_umask": "0777"}, "0755"),
    ],
    ids=str,
)
def test_a_real_home_is_its_users_own_and_made_once(
    tmp_path: Path, settings: dict[str, str], mode: str
) -> None:
    homes = tmp_path / "homes"
    prefix = command_prefix(tmp_path, {"ann.x": (20001, homes / "ann.x"), "bob": (20002, homes / "bob")})
    first = provision(tmp_path, prefix, "ann.x", "bob", "no_such_user", **settings)
    assert (first["made"], first["waiting"], first["failed"]) == (["ann.x", "bob"], ["no_such_user"], {})
    for name, uid in (("ann.x", 20001), ("bob", 20002)):
        seen = (homes / name).stat()
        assert (seen.st_uid, seen.st_gid, f"{seen.st_mode & 0o7777:04o}") == (uid, uid, mode)
    skeleton = sorted(path.name for path in Path("/etc/skel").iterdir())
    assert sorted(path.name for path in (homes / "bob").iterdir()) == skeleton
    second = provision(tmp_path, prefix, "ann.x", "bob", "no_such_user", **settings)
    assert (second["kept"], second["commands"], second["actions"]) == (2, {}, [])


def test_a_home_that_the_helper_cannot_make(tmp_path: Path) -> None:
    (tmp_path / "homes").touch()
    prefix = command_prefix(tmp_path, {"ann": (20001, tmp_path / "homes" / "ann")})
    report = provision(tmp_path, prefix, "ann")
    assert "Not a directory" in report["failed"]["ann"]
    said = run(prefix, APPLY, tmp_path / "state", "ann", tmp_path / "homes" / "ann", "0077")
    assert "mkhomedir_helper ann 0077` ended with 6: " in said
    assert "may root write in the folder above" in said


def test_what_the_real_helper_says_of_an_unknown_user_and_of_a_bad_umask(tmp_path: Path) -> None:
    prefix = command_prefix(tmp_path, {"ann": (20001, tmp_path / "ann")})
    unknown = run(prefix, APPLY, tmp_path / "state", "no_such_user", tmp_path / "x", "0077")
    assert "the user database does not know the user now" in unknown
    bad = run(prefix, APPLY, tmp_path / "state", "ann", tmp_path / "ann", "0x")
    assert "ended with 14: it does not take the umask" in bad


def test_the_umask_must_have_its_zero(tmp_path: Path) -> None:
    """Why it is always written with four digits: without the zero it is decimal, and 77 is 0115."""
    prefix = command_prefix(tmp_path, {"ann": (20001, tmp_path / "ann")})
    assert run(prefix, APPLY, tmp_path / "state", "ann", tmp_path / "ann", "77") == "made\n"
    assert f"{(tmp_path / 'ann').stat().st_mode & 0o777:04o}" == f"{0o777 & ~77:04o}"
