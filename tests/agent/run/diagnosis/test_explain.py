# SPDX-License-Identifier: MIT
"""`explain`: the sentence that says what is wrong, on a real SLURM."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.conftest import Command
from tests.agent.run.diagnosis.conftest import ACCOUNT, Site, made_site


def verdict(site: Site, person: str, resource: str = ACCOUNT) -> tuple[int, str]:
    said = site.run("explain", person, resource)
    return said.code, said.out.splitlines()[-1]


def test_explain_says_how_a_member_may_submit_and_that_others_have_no_role(site: Site) -> None:
    said = site.run("explain", site.members[0], "One")
    assert said.code == 0
    assert [line[4:].partition(":")[0] for line in said.out.splitlines()[1:-1]] == [
        "Waldur role",
        "offering user",
        "resource",
        "account",
        "association",
        "default account",
        "QoS",
        "submission",
        "limits",
    ]
    assert verdict(site, site.members[0]) == (
        0,
        f"Nothing is wrong: {site.members[0]} can submit jobs with `--account={ACCOUNT}`.",
    )
    code, said_of_others = verdict(site, "nobody")
    assert (code, said_of_others.startswith("nobody has no role in the project Project 1-1")) == (1, True)
    elsewhere = site.run("explain", site.members[0], "a_two")
    assert elsewhere.code == 1
    assert "has a resource 'a_two' in Waldur: name it by its account" in elsewhere.err


def test_a_member_who_is_missing_on_the_cluster(site: Site) -> None:
    gone = site.members[1]
    site.sacctmgr("delete", "user", gone, f"account={ACCOUNT}")
    assert verdict(site, gone) == (
        1,
        f"{gone} is not in {ACCOUNT} on the cluster, though Waldur says so. The next pass over members would change "
        f"that: add member {gone} to {ACCOUNT}.",
    )


def test_a_person_without_a_username(site: Site) -> None:
    project = site.waldur.seed.project_uuids[0]
    person = site.waldur.seed.members[project][1]
    site.waldur.people.set_account(person, "")
    document = site.run("explain", person, ACCOUNT, "--json").document()
    assert "has no username yet" in document["verdict"]
    broken = [link["link"] for link in document["chain"] if link["broken"]]
    assert broken[:1] == ["offering user"]


def test_what_is_used_is_unknown_where_slurmctld_does_not_say(site: Site) -> None:
    commands = site.folder / "bin"
    commands.mkdir()
    for name in ("sacctmgr", "sacct", "squeue", "sinfo"):
        (commands / name).symlink_to(site.slurm.bin_path / name)
    site.configure(backend={"slurm_bin_path": str(commands)})
    said = site.run("explain", site.members[0], "One")
    (limits,) = (line for line in said.out.splitlines() if line.startswith("    limits:"))
    assert limits.endswith("cpu=600; how much of that is used is unknown")
    assert said.code == 0


def test_an_account_that_takes_no_jobs(site: Site) -> None:
    site.sacctmgr("modify", "account", ACCOUNT, "set", "GrpSubmitJobs=0")
    code, said = verdict(site, site.members[0])
    assert code == 1
    assert said.startswith(f"The account {ACCOUNT} takes no new jobs: GrpSubmitJobs is 0.")


@pytest.mark.parametrize("age", ["2024", "8.1"])
def test_people_are_found_by_e_mail_and_login(
    age: str,
    slurm: SlurmCluster,
    tmp_path: Path,
    command: Command,
) -> None:
    """No offering user shows an e-mail on a server of 2024, and later only where the provider exposes it."""
    with SimulatedWaldur(age) as waldur:
        for offering in waldur.store.offerings:
            offering.exposed_fields = ["full_name"]
        site = made_site(waldur, slurm, tmp_path, command)
        project = waldur.seed.project_uuids[0]
        person = waldur.seed.members[project][0]
        email = waldur.store.users.where("username", person)[0].email
        for named in (email, email.upper(), person):
            document = site.run("explain", named, "One", "--json").document()
            assert (document["user"], document["is_fine"]) == (site.members[0], True), document
        # Who has a role in another project only, which the provider serves as well.
        other = waldur.seed.members[waldur.seed.project_uuids[1]][0]
        waldur.place_create_order(waldur.seed.project_uuids[1], "Two", limits={"cpu": 1})
        email = waldur.store.users.where("username", other)[0].email
        document = site.run("explain", email, "One", "--json").document()
        assert "Waldur knows the account" in document["verdict"], document["verdict"]
        unknown = site.run("explain", "nobody@example.org", "One", "--json").document()
        assert "Waldur knows no user called nobody@example.org at this offering" in unknown["verdict"]


def test_whose_removal_is_held_can_still_submit_and_that_is_said(site: Site) -> None:
    site.configure(policy={"max_removed_members": 1, "max_removed_percent": 1})
    project = site.waldur.seed.project_uuids[0]
    for person in site.waldur.seed.members[project][:2]:
        site.waldur.people.remove_member(project, person)
    site.run("run", "membership_sync", "--once")
    code, said = verdict(site, site.members[0])
    assert code == 1
    assert "no access is meant" not in said
    assert said.startswith(
        f"{site.members[0]} has no role in the project Project 1-1 (Waldur knows the account). "
    )
    assert (
        f"{site.members[0]} is still in {ACCOUNT} and can submit jobs there: the step is held as plan" in said
    )
    site.sacctmgr("modify", "account", ACCOUNT, "set", "GrpSubmitJobs=0")
    assert f"is still in {ACCOUNT} and submits no more: the step is held" in verdict(site, site.members[0])[1]


def test_who_leaves_with_the_next_pass_is_in_until_then(site: Site) -> None:
    project = site.waldur.seed.project_uuids[0]
    site.waldur.people.remove_member(project, site.waldur.seed.members[project][1])
    code, said = verdict(site, site.members[1])
    assert code == 1
    assert f"{site.members[1]} is still in {ACCOUNT} and can submit jobs there. The next pass" in said
    assert said.endswith(f"would change that: remove member {site.members[1]} from {ACCOUNT}.")
