# SPDX-License-Identifier: MIT
"""Reading limits that stand on the QoS of an account."""

from __future__ import annotations

from agent.core.associations import Association
from agent.core.model import MemberQos
from tests.backends.slurm.stand_in import ROOT, HeadNode

OWN_QOS = {"qos_management": {"enabled": True}}
LIMITS_ON_QOS = {"qos_management": {"enabled": True, "skip_qos_swap": True, "apply_limits_to_qos": True}}


def test_limits_that_were_left_on_a_qos_of_ours_are_seen(node: HeadNode) -> None:
    node.answer("assoc", f"{ROOT}c1|d|||root|||d|d|\n")
    node.answer("user", "root|root\n")
    node.answer(
        "qos",
        "normal||x\nc|cpu=9|c\nd|cpu=60,mem=2000M|waldur-site-cluster: account d on c1\n"
        "e|cpu=9|waldur-site-cluster: account e on c2\n",
    )
    assert node.backend(OWN_QOS).observe().qos_limits == {"d": {"cpu": 60, "mem": 2000}}
    snapshot = node.backend(LIMITS_ON_QOS).observe()
    assert (snapshot.qos_limits, snapshot.accounts["d"].limits) == ({}, {"cpu": 60, "mem": 2000})


def test_limits_are_those_of_the_accounts_own_qos_unless_it_was_limited_before(node: HeadNode) -> None:
    node.answer(
        "assoc",
        f"{ROOT}c1|a|||root|||a|a|\nc1|b|||root|cpu=5||b|b|\nc1|c|||root|cpu=5||normal||\nc1|d|||root|||d|d|\nc1|e|||root|||e|e|\n"
        "c1|d|ann|gpu||||fast,slow|fast|\n",
    )
    node.answer("user", "root|root\nann|d\n")
    node.answer(
        "qos",
        "normal||x\na|cpu=60,mem=2000M|made | by hand\nb||b\nc|cpu=9|c\nd||waldur-site-cluster: account d on c1\n"
        "e|cpu=9|waldur-site-cluster: account e on c2\nfast||\n",
    )
    snapshot = node.backend(LIMITS_ON_QOS).observe()
    found = {name: (account.limits, account.limits_on_qos) for name, account in snapshot.accounts.items()}
    assert found == {
        "root": ({}, False),
        "a": ({"cpu": 60, "mem": 2000}, True),
        "b": ({"cpu": 5}, False),
        "c": ({"cpu": 5}, False),
        "d": ({}, True),
        "e": ({}, False),
    }
    assert (snapshot.made_qos, snapshot.foreign_qos) == ({"d"}, {"e"})
    assert snapshot.member_qos == {
        Association("d", "ann", "gpu"): MemberQos(frozenset({"fast", "slow"}), "fast")
    }
