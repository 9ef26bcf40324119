# SPDX-License-Identifier: MIT
"""`explain`: the sentence that says what is wrong, on a real SLURM."""

from __future__ import annotations

from tests.diagnosis.conftest import ACCOUNT, Site


def verdict(site: Site, person: str, resource: str = ACCOUNT) -> tuple[int, str]:
    said = site.run("explain", person, resource)
    return said.code, said.out.splitlines()[-1]


def test_whoever_may_submit_is_told_how_and_others_that_they_have_no_role(site: Site) -> None:
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


def test_somebody_without_a_username(site: Site) -> None:
    project = site.waldur.seed.project_uuids[0]
    person = site.waldur.seed.members[project][1]
    site.waldur.people.set_account(person, "")
    document = site.run("explain", person, ACCOUNT, "--json").document()
    assert "has no username yet" in document["verdict"]
    broken = [link["link"] for link in document["chain"] if link["broken"]]
    assert broken[:1] == ["offering user"]


def test_an_account_that_takes_no_jobs(site: Site) -> None:
    site.sacctmgr("modify", "account", ACCOUNT, "set", "GrpSubmitJobs=0")
    code, said = verdict(site, site.members[0])
    assert code == 1
    assert said.startswith(f"The account {ACCOUNT} takes no new jobs: GrpSubmitJobs is 0.")
