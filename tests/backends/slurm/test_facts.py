# SPDX-License-Identifier: MIT
"""The real sacctmgr of each generation answers as the table says that docs/slurm.md shows."""

from __future__ import annotations

import pytest

from rig.slurm_cluster import SlurmCluster
from tests.backends.conftest import Connect
from tests.backends.slurm import facts
from tests.backends.slurm.dangers import World, sacctmgr
from tests.backends.slurm.facts import FACTS, GENERATIONS, Answer, Fact


class Site:
    """The tree of all facts, made anew unless a fact puts it back as it was."""

    def __init__(self, slurm: SlurmCluster, connect: Connect) -> None:
        self.slurm = slurm
        self._connect = connect
        self._unchanged: World | None = None

    def answer(self, fact: Fact) -> Answer:
        return fact.answers[GENERATIONS.index(self.slurm.generation)]

    def take(self) -> World:
        world, self._unchanged = self._unchanged, None
        if world is None:
            self.slurm.reset()
            world = World(self.slurm, self._connect, facts.TREE, facts.COMMANDS)
        return world

    def put_back(self, world: World) -> None:
        """Keep a tree that is as it was taken for the next fact."""
        self._unchanged = world


@pytest.fixture(scope="module")
def site(slurm_cluster: SlurmCluster, on_slurm: Connect) -> Site:
    return Site(slurm_cluster, on_slurm)


@pytest.mark.every_slurm
@pytest.mark.parametrize("what", FACTS)
def test_fact(site: Site, what: str) -> None:
    fact = FACTS[what]
    world = site.take()
    if fact.before:
        site.slurm.change(*fact.before)
        world.changes()
    code, out, err = sacctmgr(site.slurm, fact.command)
    changes = tuple(world.changes())
    if not fact.before and not changes:
        site.put_back(world)
    answer = site.answer(fact)
    assert (code, answer.says in out + err, changes) == (answer.code, True, answer.changes), out + err


def stored(slurm: SlurmCluster) -> set[str]:
    """The accounts and associations of the database, as `dangers.lines` writes them."""
    rows = slurm.sql("SELECT acct, user, parent_acct FROM test_assoc_table WHERE deleted=0 AND acct!='root'")
    found = (line.split("\t") for line in rows.splitlines())
    return {
        f"{user} in {account}" if user else f"{account} below {parent}" for account, user, parent in found
    }


@pytest.mark.every_slurm
def test_an_account_with_others_below_it(site: Site) -> None:
    answer = site.answer(facts.WITH_OTHERS_BELOW)
    slurm = site.take().slurm
    before = stored(slurm)
    code, out, err = sacctmgr(slurm, facts.WITH_OTHERS_BELOW.command)
    after = stored(slurm)
    # Nothing that asks slurmdbd for the tree would end now (24.11).
    slurm.sql("DELETE FROM test_assoc_table WHERE deleted=0 AND acct IN ('kids', 'kid')")
    slurm.restart()
    changes = tuple(
        sorted([*(f"-{line}" for line in before - after), *(f"+{line}" for line in after - before)])
    )
    assert (code, answer.says in out + err, changes) == (answer.code, True, answer.changes), out + err
