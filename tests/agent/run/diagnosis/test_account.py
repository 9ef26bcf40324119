# SPDX-License-Identifier: MIT
"""`diagnose-account` against a real SLURM: one opinion, which is the plan of the pass."""

from __future__ import annotations

from tests.agent.run.diagnosis.conftest import ACCOUNT, Site

KEYS = [
    "account_name",
    "overall_status",
    "slurm_info",
    "waldur_info",
    "policy_info",
    "expected_settings",
    "comparisons",
    "fix_commands",
    "unit_conversions",
]


def test_an_account_that_agrees_and_those_that_one_side_does_not_have(site: Site) -> None:
    said = site.run("diagnose-account", ACCOUNT, "-v")
    assert said.code == 0
    lines = said.out.splitlines()
    for expected in (
        f"SLURM Account Diagnostic: {ACCOUNT}",
        "  Account Exists:     Yes",
        "  GrpTRESMins:        cpu=600",
        f"  Resource UUID:      {site.resource}",
        "  [OK]       GrpTRESMins[cpu]: 600 == 600",
        "             Units: Waldur: 10 core-hours -> 600 TRES-minutes (factor: 60)",
        "OVERALL: OK",
    ):
        assert expected in lines, said.out
    absent = site.run("diagnose-account", "a_nothing", "--json")
    document = absent.document()
    assert (absent.code, document["overall_status"]) == (1, "missing")
    assert document["slurm_info"]["error"] == "Account 'a_nothing' not found in SLURM cluster"
    assert document["waldur_info"]["error"] == "No Waldur resource found with backend_id 'a_nothing'"
    only_here = site.run("diagnose-account", "p_project-1-1")
    assert only_here.code == 1
    assert "OVERALL: MISSING" in only_here.out
    assert "nothing could be compared" in only_here.out


def test_what_differs_is_mended_by_the_commands_of_the_plan_and_the_policy_is_printed(site: Site) -> None:
    gone = site.members[1]
    site.sacctmgr("delete", "user", gone, f"account={ACCOUNT}")
    site.sacctmgr("add", "user", "intruder", f"account={ACCOUNT}")
    said = site.run("diagnose-account", ACCOUNT, "--json")
    document = said.document()
    planned = site.run("plan", "membership_sync", "--commands").out.splitlines()[1:]
    assert (said.code, document["overall_status"]) == (1, "mismatch")
    assert [*document][: len(KEYS)] == KEYS
    assert "\n".join(document["fix_commands"]).splitlines() == planned
    users = next(each for each in document["comparisons"] if each["field"] == "users")
    assert users["status"] == "mismatch"
    assert users["actual"].split(",") == sorted([site.members[0], "intruder"])
    assert users["expected"].split(",") == sorted(site.members)
    for command in document["fix_commands"]:
        assert site.slurm.run("sh", "-c", command).returncode == 0
    assert site.run("diagnose-account", ACCOUNT).code == 0
    site.waldur.site.add_policy()
    policy = site.run("diagnose-account", ACCOUNT, "--json").document()["policy_info"]
    assert (policy["exists"], policy["limit_type"], policy["error"]) == (True, "GrpTRESMins", None)
    assert (
        "  Grace Ratio:        0.2 (20% overconsumption allowed)" in site.run("diagnose-account", ACCOUNT).out
    )


def test_a_paused_account_is_no_mismatch_once_it_is_closed(site: Site) -> None:
    def qos() -> tuple[str, str]:
        compared = site.run("diagnose-account", ACCOUNT, "--json").document()["comparisons"]
        return next((each["actual"], each["expected"]) for each in compared if each["field"] == "qos")

    site.sacctmgr("add", "qos", "paused")
    site.configure(backend={"qos_paused": "paused", "qos_default": "normal"})
    site.waldur.site.change("resources", site.resource, paused=True)
    assert qos() == ("normal", "paused")
    site.run("run", "membership_sync", "--once")
    assert qos() == ("paused", "paused")
    assert "One is paused in Waldur" in site.run("explain", site.members[0], ACCOUNT).out.splitlines()[-1]
