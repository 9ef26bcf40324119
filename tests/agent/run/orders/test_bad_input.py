# SPDX-License-Identifier: MIT
"""Orders that are wrong in themselves, together with orders that are right: on the real SLURM, in one pass."""

from __future__ import annotations

import pytest

from agent.run import passes
from agent.run.results import Result
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.orders.conftest import SiteFactory

pytestmark = pytest.mark.every_slurm(one_of=10)

LONG = "long-" * 16
COMPONENTS = {
    "cpu": {"measured_unit": "core-hours", "accounting_type": "limit", "label": "CPU"},
    "gres/gpu:a100": {"measured_unit": "GPU-hours", "accounting_type": "limit", "label": "A100"},
}

# slug -> the account it becomes, or the words in the order's message
SLUGS = {
    "-x": "at the beginning",
    "a,b": "letters, digits",
    "a=b": "letters, digits",
    "n[1-3]": "letters, digits",
    "set": "a keyword of sacctmgr",
    "x y": "letters, digits",
    "": "has no slug",
    LONG: LONG,
    "Capitals": "capitals",
    "good": "good",
}
LIMITS = {
    "half": (1.5, 1),
    "minus": (-1, "limit of cpu is -1"),
    "huge": (2**63, "counts no further than"),
    "null": (None, "limit of cpu is null"),
    "word": ("many", "limit of cpu is 'many'"),
    "zero": (0, 0),
}


def accounts(slurm: SlurmCluster) -> dict[str, str]:
    """Account -> GrpTRESMins, of accounts that stand on the cluster."""
    out = slurm.run("sacctmgr", "-nP", "show", "assoc", "format=account,user,grptresmins").stdout
    rows = (line.split("|") for line in out.splitlines())
    return {account: limits for account, user, limits in rows if not user and account != "root"}


def test_slugs_become_accounts_or_the_order_says_why_not(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm(backend={"allocation_prefix": "", "customer_prefix": "c_", "project_prefix": "p_"})
    project = waldur.seed.project_uuids[0]
    placed = {}
    for slug in SLUGS:
        placed[slug] = waldur.place_create_order(project, f"slug {slug}", limits={"cpu": 1}, slug=slug)
    report = passes.process_orders(site)
    stand = accounts(slurm)
    for slug, uuid in placed.items():
        order = waldur.order(uuid)
        if order.state.value == "done":
            assert SLUGS[slug] in stand, slug
        else:
            assert order.state.value == "erred", slug
            assert SLUGS[slug] in order.error_message, slug
    assert {o.result for o in report.orders} == {Result.DONE, Result.FAILED}
    assert set(stand) == {"c_kask-institute-1", "p_project-1-1", LONG, "capitals", "good"}


def test_limits_are_set_or_the_order_says_why_not(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    site = on_slurm(components=COMPONENTS)
    project = waldur.seed.project_uuids[0]
    placed = {
        slug: waldur.place_create_order(project, slug, limits={"cpu": value, "gres/gpu:a100": 5}, slug=slug)
        for slug, (value, _) in LIMITS.items()
    }
    report = passes.process_orders(site)
    stand = accounts(slurm)
    for slug, uuid in placed.items():
        wanted, order = LIMITS[slug][1], waldur.order(uuid)
        if isinstance(wanted, int):
            assert (order.state.value, stand[f"a_{slug}"]) == ("done", f"cpu={wanted}")
        else:
            assert order.state.value == "erred"
            assert wanted in order.error_message
            assert f"a_{slug}" not in stand
    assert len(report.orders) == len(LIMITS)


def test_an_unknown_tres_is_skipped_with_a_note(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory, caplog: pytest.LogCaptureFixture
) -> None:
    site = on_slurm(components=COMPONENTS)
    waldur.place_create_order(waldur.seed.project_uuids[0], "gpu", limits={"cpu": 3, "gres/gpu:a100": 5})
    assert passes.process_orders(site).counted() == {"done": 1}
    assert accounts(slurm)["a_gpu"] == "cpu=3"
    assert "this cluster does not track the TRES gres/gpu:a100" in caplog.text


def test_an_account_below_another_parent_is_not_taken_over(
    slurm: SlurmCluster, waldur: SimulatedWaldur, on_slurm: SiteFactory
) -> None:
    slurm.run("sacctmgr", "-i", "add", "account", "name=foreign", "parent=root")
    slurm.run("sacctmgr", "-i", "add", "account", "name=a_mine", "parent=foreign")
    bad = waldur.place_create_order(waldur.seed.project_uuids[0], "mine", limits={"cpu": 3}, slug="mine")
    good = waldur.place_create_order(waldur.seed.project_uuids[0], "other", limits={"cpu": 3}, slug="other")
    passes.process_orders(on_slurm())
    assert waldur.order(bad).state.value == "erred"
    assert "a_mine exists already, below foreign" in waldur.order(bad).error_message
    assert waldur.order(good).state.value == "done"
    assert accounts(slurm)["a_mine"] == ""
