# SPDX-License-Identifier: MIT
"""`create-homedirs`, and the reference's script for it: the homes of the offering's users, on this host."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rig import warm_python
from simulator.server.faults import Fault
from simulator.world.ages import Age
from simulator.world.records import OfferingUser, OfferingUserState
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import PROGRAMS, REPOSITORY, UNKNOWN, Ended, OperatorSite
from tests.agent.run.people.homes.private_users import command_prefix

CREATE = ("create-homedirs",)
NAMES = ("ann", "bob", "cat", "dan")


def users(site: OperatorSite) -> list[OfferingUser]:
    """The seeded users, named `ann`, `bob` ... and OK."""
    rows = list(site.waldur.store.offering_users)[: len(NAMES)]
    for row, name in zip(rows, NAMES, strict=True):
        row.username, row.state, row.is_restricted = name, OfferingUserState.OK, False
    for row in list(site.waldur.store.offering_users)[len(NAMES) :]:
        row.state = OfferingUserState.DELETED
    return rows


def on_head_node(site: OperatorSite, *names: str) -> list[str]:
    """What comes before a command on a head node that knows these users."""
    homes = site.folder / "homes"
    return command_prefix(site.folder, {name: (20000 + n, homes / name) for n, name in enumerate(names)})


def run(prefix: list[str], *words: str, program: str = "") -> Ended:
    command = [str(warm_python.of_commands().program), str(REPOSITORY / "manage.py")]
    start = [str(PROGRAMS / program)] if program else command
    done = subprocess.run(
        [*prefix, *start, *words], cwd=REPOSITORY, capture_output=True, text=True, timeout=600
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def rows(out: str) -> dict[str, tuple[str, str]]:
    """User -> result and message, from the table."""
    cells = [line.strip("│").split("│", 2) for line in out.splitlines() if line.startswith("│")]
    return {user.strip(): (result.strip(), message.strip()) for user, result, message in cells}


def test_users_of_a_server_without_states_need_a_name_alone(site: OperatorSite) -> None:
    """Waldur of 2024 has no states of offering users."""
    users(site)
    site.waldur.store.age = Age.A2024
    site.waldur.store.offering_users.where("offering", site.waldur.seed.offering_uuid)[0].is_restricted = True
    said = run(on_head_node(site, *NAMES), *CREATE, "-c", site.configure())
    assert said.code == 0, said.err
    made = {user for user, (result, _) in rows(said.out).items() if result == "made"}
    assert made >= {"bob", "cat", "dan"}
    assert "ann" not in made


def test_made_and_waiting(site: OperatorSite) -> None:
    users(site)
    prefix = on_head_node(site, "ann", "bob", "cat")
    (site.folder / "homes" / "cat").mkdir(parents=True)
    said = run(prefix, *CREATE, "-c", site.configure())
    assert said.code == 0, said.err
    assert rows(said.out) == {
        "ann": ("made", ""),
        "bob": ("made", ""),
        "dan": ("waiting", "this host does not know the user yet"),
    }
    assert said.out.splitlines()[-1] == "Test SLURM: 1 kept, 2 made, 1 waiting"
    assert (site.folder / "homes" / "ann").stat().st_mode & 0o777 == 0o700
    again = run(prefix, *CREATE, "-c", site.configure())
    assert (again.code, again.out.splitlines()[-1]) == (0, "Test SLURM: 3 kept, 1 waiting")


def test_homes_beyond_the_budget_wait_for_an_approval(site: OperatorSite) -> None:
    users(site)
    prefix = on_head_node(site, *NAMES)
    config = site.configure(policy={"budgets": {"homes_made": {"hour": 3, "day": 3}}})
    said = run(prefix, *CREATE, "-c", config)
    assert said.code == 0, said.err
    assert {result for result, _ in rows(said.out).values()} == {"later"}
    held = next(
        line for line in said.out.splitlines() if "is held: the homes of 4 users would be made" in line
    )
    plan = held.split()[3]
    assert f"`approve {plan}` releases it" in said.out
    assert run(prefix, "approve", plan, "-c", config).code == 0
    assert {result for result, _ in rows(run(prefix, *CREATE, "-c", config).out).values()} == {"made"}


def test_only_users_who_are_ok_unrestricted_and_named(site: OperatorSite) -> None:
    _, bob, cat, dan = users(site)
    bob.is_restricted, cat.state, dan.username = True, OfferingUserState.CREATING, ""
    prefix = on_head_node(site, *NAMES)
    (offering,) = run(prefix, *CREATE, "--json", "-c", site.configure()).document()["offerings"]
    assert (offering["made"], offering["waiting"]) == (["ann"], [])
    assert [path.name for path in (site.folder / "homes").iterdir()] == ["ann"]


def test_json_and_journal(site: OperatorSite) -> None:
    users(site)
    said = run(on_head_node(site, "ann"), *CREATE, "--json", "-c", site.configure())
    (offering,) = said.document()["offerings"]
    assert (offering["name"], offering["error"], offering["skipped"]) == ("Test SLURM", None, None)
    assert (offering["made"], offering["waiting"]) == (["ann"], ["bob", "cat", "dan"])
    (line,) = (site.folder / "state" / "journal" / "journal.jsonl").read_text().splitlines()
    record: dict[str, Any] = json.loads(line)
    assert (record["cause"], record["ids"]["user"], record["outcome"]) == ("create-homedirs", "ann", "done")
    assert record["commands"] == ["/sbin/mkhomedir_helper ann 0077"]


def test_a_failure_is_code_1_and_other_users_get_their_homes(site: OperatorSite) -> None:
    rows_of_users = users(site)
    rows_of_users[1].username = "no name"
    (site.folder / "homes").mkdir()
    (site.folder / "homes" / "cat").touch()
    said = run(on_head_node(site, "ann", "cat", "dan"), *CREATE, "-c", site.configure())
    assert said.code == 1
    results = {user: result for user, (result, _) in rows(said.out).items()}
    assert results == {"ann": "made", "cat": "failed", "dan": "made", "no name": "failed"}
    assert "cannot be the home: it is not a folder" in said.out


def test_a_missing_quota_tool_is_one_error(site: OperatorSite) -> None:
    users(site)
    quota = {"provider": "lustre", "mount_point": "/lustre", "block_hardlimit": "10g"}
    said = run(on_head_node(site, *NAMES), *CREATE, "-c", site.configure(backend={"homedir_quota": quota}))
    assert said.code == 1
    assert said.sentences() == [
        "error: Test SLURM: lfs is not on this head node: it is in the packages of the Lustre client"
    ]
    assert sorted(path.name for path in (site.folder / "homes").iterdir()) == list(NAMES)


def test_an_offering_without_homes_is_passed_over(site: OperatorSite, command: Command) -> None:
    users(site)
    site.waldur.requests.reset()
    said = command(*CREATE, "-c", site.configure(backend={"enable_user_homedir_account_creation": False}))
    assert (said.code, said.err) == (0, "")
    assert said.out == "Test SLURM: no homes are made: enable_user_homedir_account_creation is false\n"
    assert site.waldur.requests.counts() == {}


def test_a_backend_without_homes_is_passed_over(site: OperatorSite, command: Command) -> None:
    said = command(*CREATE, "-c", site.configure(order_processing_backend="other", backend_type="other"))
    assert (said.code, said.out) == (
        0,
        "Test SLURM: no homes are made: its backend has no home directories\n",
    )


@pytest.mark.parametrize(
    ("policy", "why"),
    [({"paused": True}, "paused by `paused: true`"), ({"mode": "observe"}, "only observes")],
)
def test_the_policy_holds_here_too(
    site: OperatorSite, command: Command, policy: dict[str, object], why: str
) -> None:
    users(site)
    said = command(*CREATE, "-c", site.configure(policy=policy))
    assert said.code == 0
    assert why in said.out


def test_waldur_away_is_code_1_and_the_other_offering_goes_on(site: OperatorSite, command: Command) -> None:
    users(site)
    off = {"default_account": "root", "enable_user_homedir_account_creation": False}
    file = site.configure_several(
        {}, {"name": "Other", "waldur_offering_uuid": UNKNOWN, "backend_settings": off}
    )
    site.waldur.inject(Fault(path="marketplace-offering-users", status=403, body="{}"))
    said = command(*CREATE, "-c", file)
    assert said.code == 1
    assert "error: Test SLURM: " in said.err
    assert "Other: no homes are made" in said.out


def test_a_misspelt_quota_is_reported_with_its_path_and_homes_are_made(site: OperatorSite) -> None:
    users(site)
    file = site.configure(backend={"homedir_quota": {"provider": "zfs"}})
    path = "offerings[0].backend_settings.homedir_quota.provider"
    checked = run([], "config-check", "-c", file)
    assert checked.code == 2
    assert f"error: {path}: `provider` is 'zfs'; use one of ceph_xattr, xfs, lustre" in checked.out
    said = run(on_head_node(site, "ann"), *CREATE, "-c", file)
    assert (said.code, rows(said.out)["ann"][0]) == (0, "made")
    assert any(path in line["event"] for line in said.log() if line["level"] == "warning")


@pytest.mark.parametrize("words", [("-m", "report", "-c"), ("--config-file",)], ids=" ".join)
def test_the_script_of_the_reference_with_its_options(site: OperatorSite, words: tuple[str, ...]) -> None:
    users(site)
    script = "waldur_site_create_homedirs"
    said = run(on_head_node(site, "ann"), *words, site.configure(), program=script)
    assert said.code == 0, said.err
    assert rows(said.out)["ann"][0] == "made"
    assert run([], "-m", "reports", program=script).code == 2


def test_no_such_file(command: Command, tmp_path: Path) -> None:
    assert command(*CREATE, "-c", str(tmp_path / "none.yaml")).code == 2
