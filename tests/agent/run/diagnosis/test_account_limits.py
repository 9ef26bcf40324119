# SPDX-License-Identifier: MIT
"""`diagnose-account` and limits, on a real SLURM: what was bought, and what a periodic policy would set."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from agent.core.periods import Month, attribution
from agent.waldur import usages
from rig.site import site_of
from tests.agent.run.diagnosis.conftest import ACCOUNT, Site

MINUTES = "GrpTRESMins[cpu]"


def compared(site: Site) -> dict[str, Any]:
    """The comparisons by field, the commands under "", and the status."""
    said = site.run("diagnose-account", ACCOUNT, "--json")
    document = said.document()
    assert (said.code == 0) is (document["overall_status"] == "ok")
    fields: dict[str, Any] = {each["field"]: each for each in document["comparisons"]}
    return {**fields, "": document["fix_commands"], "status": document["overall_status"], "all": document}


def halved(site: Site) -> None:
    site.sacctmgr("modify", "account", ACCOUNT, "set", "GrpTRESMins=cpu=300")


def mend(site: Site, found: dict[str, Any]) -> None:
    """Run the commands of the diagnosis."""
    assert found[""]
    for line in found[""]:
        assert site.slurm.run("sh", "-c", line).returncode == 0


@pytest.mark.parametrize("source", ["cluster", "waldur"])
def test_a_limit_that_was_halved_by_hand_is_a_mismatch_with_its_command(site: Site, source: str) -> None:
    site.configure(limits_source=source)
    assert compared(site)["status"] == "ok"
    halved(site)
    found = compared(site)
    assert (found["status"], found[MINUTES]["actual"], found[MINUTES]["expected"]) == (
        "mismatch",
        "300",
        "600",
    )
    assert found[MINUTES]["fix_command"] in found[""]
    mend(site, found)
    assert compared(site)["status"] == "ok"


def test_it_is_one_still_when_a_pass_has_shown_it_in_waldur(site: Site) -> None:
    """`limits_source: cluster`: Waldur then has the halved limit, too, and the last order what was bought."""
    halved(site)
    assert site.run("run", "membership_sync", "--once").code == 0
    assert site.waldur.resource(site.resource).limits["cpu"] == 5
    found = compared(site)
    assert (found["status"], found[MINUTES]["actual"], found[MINUTES]["expected"]) == (
        "mismatch",
        "300",
        "600",
    )
    assert (
        "bought by order" in found[MINUTES]["reason"] and "limits_source: cluster" in found[MINUTES]["reason"]
    )
    said = site.run("diagnose-account", ACCOUNT)
    assert "  [MISMATCH] GrpTRESMins[cpu]: 300 != 600" in said.out.splitlines()
    assert "OVERALL: MISMATCH (1 issue found)" in said.out
    mend(site, found)
    assert compared(site)["status"] == "ok"


def test_the_last_order_says_what_was_bought(site: Site) -> None:
    order = site.waldur.orders.place_update(site.resource, {"cpu": 20})
    assert site.run("run", "order_process", "--once").code == 0
    assert site.waldur.order(order).state.value == "done"
    assert compared(site)["status"] == "ok"
    halved(site)
    assert compared(site)[MINUTES]["expected"] == "1200"


def policy(site: Site, **settings: Any) -> None:
    site.configure(backend={"periodic_limits": {"enabled": True}})
    usual = {"period": 2, "tres_billing_enabled": False, "grace_ratio": 0, "carryover_enabled": False}
    site.waldur.site.add_policy(**{**usual, **settings})


def test_what_a_policy_would_set_is_compared_field_by_field(site: Site) -> None:
    """Ten hours with a grace of a fifth are 720 minutes, and a share of three."""
    policy(site, grace_ratio=0.2)
    found = compared(site)
    assert found["status"] == "mismatch"
    assert (found[MINUTES]["actual"], found[MINUTES]["expected"]) == ("600", "720")
    assert (found["fairshare"]["actual"], found["fairshare"]["expected"]) == ("1", "3")
    assert "10 h, and a grace of 20%" in found[MINUTES]["reason"]
    expected = found["all"]["expected_settings"]
    assert (expected["limit_type"], expected["limits"], expected["fairshare"]) == (
        "GrpTRESMins",
        {"cpu": 720},
        3,
    )
    mend(site, found)
    assert compared(site)["status"] == "ok"


def test_the_type_of_its_limits(site: Site) -> None:
    policy(site, limit_type="MaxTRESMins")
    found = compared(site)
    limit = found["MaxTRESMins[cpu]"]
    assert (limit["actual"], limit["expected"], found[MINUTES]["status"]) == (None, "600", "ok")
    assert found["all"]["expected_settings"]["limit_type"] == "MaxTRESMins"
    mend(site, found)
    assert compared(site)["status"] == "ok"


def test_what_was_not_used_in_the_period_before_is_carried_over(site: Site) -> None:
    """Of ten hours eight were used: two are left."""
    policy(site, carryover_enabled=True, carryover_factor=50)
    before = Month.of(site.waldur.store.clock.now()).previous
    client = site_of(site.folder / "site.yaml").client
    usages.set_totals(client, site.resource, [("cpu", "8.00")], attribution(before, UTC))
    found = compared(site)
    assert found[MINUTES]["expected"] == str((10 + 2) * 60)
    assert "and 2 h carried over" in found[MINUTES]["reason"]


@pytest.mark.parametrize(
    ("settings", "limit_period", "reason"),
    [
        (
            {"tres_billing_enabled": True, "tres_billing_weights": {"cpu": "much"}},
            "month",
            "weight of cpu is 'much', which is no number",
        ),
        (
            {"tres_billing_enabled": True, "tres_billing_weights": None},
            "month",
            "its weights are unknown: tres_billing_weights is None",
        ),
        ({"carryover_enabled": True, "period": 7}, "month", "its period is 7, which is unknown"),
        ({"carryover_enabled": True}, "annual", "the limit of cpu is for another period (annual)"),
    ],
)
def test_what_cannot_be_computed_is_a_note_and_no_command(
    site: Site, settings: dict[str, Any], limit_period: str, reason: str
) -> None:
    for component in next(iter(site.waldur.store.offerings)).components:
        component.limit_period = limit_period
    policy(site, **settings)
    found = compared(site)
    (note,) = (note for note in found["all"]["notes"] if "cannot be computed" in note)
    assert reason in note
    assert found[""] == []


def test_a_policy_that_sets_nothing_here_is_named(site: Site) -> None:
    site.waldur.site.add_policy(period=2)
    notes = compared(site)["all"]["notes"]
    assert "its policy sets nothing here: backend_settings.periodic_limits.enabled is not true" in notes
