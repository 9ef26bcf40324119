# SPDX-License-Identifier: MIT
"""What `doctor` says of SLURM's releases, and what commands of another release than slurmdbd's mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from agent.core.actions import AddMember, CreateAccount
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.model import Part
from backends.base import HintsOfThisProcess, Scope
from backends.slurm import releases
from backends.slurm.costs import LOAD, LOAD_USERS, REMOVALS, Costs
from rig import processes
from rig.slurm_cluster import SlurmCluster
from rig.slurmrestd import Slurmrestd
from tests.backends.conftest import REAL_SLURMRESTDS, Connect, by_rest, connector

RESTD = "23.11 would bring a slurmrestd that `execution_mode: rest` can use"
QUARTER = "24.11 would bring on a cluster of 10,000 associations, writes in a quarter of the time"
MOVED = "26.05 would bring a refusal to move an account below one that is in it, a removal of accounts that leaves"
NOTHING = "no later release is known to bring more"
BROUGHT = {"22.05": f"{RESTD}; {QUARTER}", "24.11": MOVED, "26.05": NOTHING}


@pytest.mark.every_slurm
def test_the_releases_are_those_that_the_cluster_tells(slurm: SlurmCluster, on_slurm: Connect) -> None:
    exact = slurm.ask("sacctmgr", "--version").split()[-1]
    series = exact.rpartition(".")[0]
    way = "paths (lineage)" if slurm.root else "places (lft, rgt)"
    backend = on_slurm()
    found = backend.check()
    named = f"slurmdbd {exact}, sacctmgr {exact}, slurmctld {series}"
    assert (found.version, found.problems) == (exact, ())
    assert found.release.startswith(f"{named}; the tree is read by {way} with WOPInfo; {BROUGHT[series]}")
    # The tree's reads: by places first, on each release.
    assert backend.executed["read"] == (4 if slurm.root else 3)


@pytest.mark.every_slurm
def test_the_tree_is_said_to_be_read_by_parents_where_it_is(slurm: SlurmCluster, on_slurm: Connect) -> None:
    for name in ("one", "two"):
        slurm.ask("sacctmgr", "-i", "add", "account", name)
    place = "lineage = '/gone/two/'" if slurm.root else "rgt = rgt + 1"
    back = "lineage = '/two/'" if slurm.root else "rgt = rgt - 1"
    slurm.sql(f"UPDATE test_assoc_table SET {place} WHERE acct = 'two'")
    try:
        assert "the tree is read by the parent of each account (parentname)" in on_slurm().check().release
    finally:
        slurm.sql(f"UPDATE test_assoc_table SET {back} WHERE acct = 'two'")


DESCRIBED: dict[str, tuple[Mapping[str, str], str]] = {
    "22.05": ({"slurmdbd": "22.05.8", "sacctmgr": "22.05.8"}, BROUGHT["22.05"]),
    "the first with a slurmrestd that can be used": ({"slurmdbd": "23.11.10"}, QUARTER),
    "an older sacctmgr": ({"slurmdbd": "24.11.5", "sacctmgr": "22.05.8"}, MOVED),
    "newest": ({"slurmdbd": "26.05.5", "slurmctld": ""}, NOTHING),
    "newer than is known": ({"slurmdbd": "29.05.0"}, NOTHING),
}


@pytest.mark.parametrize("what", DESCRIBED)
def test_what_a_newer_release_would_bring_goes_by_the_server(what: str) -> None:
    programs, brought = DESCRIBED[what]
    said = releases.described(programs, "x is used")
    named = ", ".join(f"{program} {release}" for program, release in programs.items() if release)
    assert said.startswith(f"{named}; x is used; {brought}")
    assert "slurmctld" not in said


def test_a_protocol_that_is_not_known_is_named_by_its_number() -> None:
    assert [releases.of_protocol(number) for number in (9728, 10752, 11520, 0)] == [
        "22.05",
        "24.11",
        "26.05",
        "",
    ]
    assert releases.of_protocol(99 << 8) == "of protocol 25344"
    assert releases.versions("") == {"slurmdbd": "", "sacctmgr": ""}
    assert releases.described({"slurmdbd": ""}, "x is used") == ""


@pytest.mark.real_part
def test_commands_of_another_release_than_slurmdbds_are_told_from_an_outage(
    slurm_clusters: Callable[[str], SlurmCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the middle of an upgrade: slurmdbd is of 24.11, and this host's commands still of 22.05."""
    monkeypatch.setenv("SLURM_CONF", slurm_clusters("24.11").env["SLURM_CONF"])
    backend = connector(str(Path(processes.program("sacctmgr")).parent), tmp_path)()
    for read in (backend.check, lambda: backend.observe(Scope(frozenset({Part.ACCOUNTS})))):
        with pytest.raises(BackendUnavailable, match="are of releases that do not speak with each other"):
            read()
    jobs = backend.observe(Scope(frozenset(), jobs_of=frozenset({"root"})))
    assert Part.JOBS not in jobs.complete


@pytest.mark.cost
@pytest.mark.parametrize("kind", [LOAD, LOAD_USERS, *REMOVALS, "add user", "add account", "modify account"])
def test_from_23_11_on_only_loads_and_removals_are_taken_to_grow_with_the_cluster(kind: str) -> None:
    small, large = (
        Costs(lambda rows=rows: rows, HintsOfThisProcess[float](), lambda: False) for rows in (100, 10_000)
    )
    assert (large.seconds(kind, 10) > small.seconds(kind, 10)) == (kind in (LOAD, LOAD_USERS, *REMOVALS))
    joins = [AddMember(account="a", user=f"u{number}") for number in range(1000)]
    assert 100 <= large.actions_at_once("add user", joins) <= 400  # 9 ms each (24.11)


@pytest.mark.parametrize("slurmrestd_kind", REAL_SLURMRESTDS, indirect=True)
def test_slurmrestd_tells_its_release_and_that_of_slurmctld(on_rest: Connect, slurmrestd_kind: str) -> None:
    found = on_rest().check().release
    version = {"24.11": "v0.0.42", "26.05": "v0.0.45"}[slurmrestd_kind]
    assert found.startswith(f"slurmrestd {slurmrestd_kind}.")
    assert (
        f", slurmctld {slurmrestd_kind}; requests are those of {version}; {BROUGHT[slurmrestd_kind]}" in found
    )


@pytest.mark.real_part
def test_a_slurmrestd_of_one_version_only_is_spoken_to_in_that_one(
    slurm_clusters: Callable[[str], SlurmCluster], tmp_path: Path
) -> None:
    newest = Slurmrestd(slurm_clusters("26.05"), "-d", "v0.0.45")
    newest.cluster.reset()
    newest.start()
    try:
        backend = by_rest(newest.access, tmp_path)()
        assert "requests are those of v0.0.45" in backend.check().release
        made = [CreateAccount(account="only", parent="root"), AddMember(account="only", user="ann")]
        assert [outcome.error for outcome in backend.apply(made)] == [None, None]
        assert backend.observe().users_of("only") == {"ann"}
        older = by_rest({**newest.access, "api_version": "v0.0.44"}, tmp_path)()
        with pytest.raises(BackendError, match="It serves another version"):
            older.observe()
    finally:
        newest.stop()
