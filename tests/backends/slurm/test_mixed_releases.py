# SPDX-License-Identifier: MIT
"""Commands and servers of different releases, and wrappers as commands: what works is whole, what does not is an outage
and never an empty cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agent.core.actions import AddMember, ClusterAction, CreateAccount, SetLimits
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.model import Part
from backends.base import BULK_PARTS, Backend, Scope
from backends.slurm.backend import SlurmBackend
from rig.parts import GENERATIONS
from rig.processes import wait_until
from rig.slurm_cluster import SlurmCluster
from rig.slurmrestd import Slurmrestd
from tests.backends.conftest import by_commands, by_rest, connector
from tests.backends.slurm.wanted import leave

OLDER, NEWER = "24.11", "26.05"
# Of 60 letters, with capitals, and what else a name may have.
LONG = f"a_{'x' * 56}.z"
NAMES = (LONG, "Physics.Group-1", "0-ann", "a.b_c-d")
USERS = ("ann", "j.doe-2", "u" * 60, "Kim")
TEXT = "It's the group's; 50 % \"of\" $HOME & more"


def made(prefix: str = "") -> list[ClusterAction]:
    """An account below another, with limits and members, and an unusual text."""
    top, low = f"{prefix}top", f"{prefix}low"
    return [
        CreateAccount(account=top, parent="root", description=TEXT, organization="o"),
        CreateAccount(account=low, parent=top, description="d", organization="o"),
        SetLimits(account=low, after=(("cpu", 600), ("gres/gpu", 5))),
        *(AddMember(account=low, user=user, present_default="") for user in ("ann", "bob")),
    ]


def assert_lives(backend: SlurmBackend, prefix: str) -> None:
    """Make accounts and members, read them whole, and take one out again."""
    backend.observe()
    assert [str(outcome.error) for outcome in backend.apply(made(prefix)) if not outcome.done] == []
    seen = backend.observe(Scope(jobs_of=frozenset({f"{prefix}low"})))
    assert seen.complete >= BULK_PARTS - {Part.QOS} | {Part.JOBS}
    low = seen.accounts[f"{prefix}low"]
    assert (low.parent, low.limits) == (f"{prefix}top", {"cpu": 600, "gres/gpu": 5})
    assert seen.users_of(low.name) == {"ann", "bob"}
    is_default = seen.default_accounts["bob"] == low.name
    (left,) = backend.apply([leave(low.name, "bob", default=is_default)])
    assert left.done, left.error
    assert backend.observe().users_of(low.name) == {"ann"}


@pytest.fixture
def older_beside(
    slurm_clusters: Callable[[str], SlurmCluster],
) -> Iterator[tuple[SlurmCluster, SlurmCluster]]:
    """A cluster, and one of an older release beside it, of which the same slurmdbd keeps the accounts."""
    newer = slurm_clusters(NEWER)
    newer.reset()
    with TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        older = SlurmCluster(Path(folder) / "older", "older", OLDER, beside=newer)
        older.start()
        try:
            yield newer, older
        finally:
            older.stop()
            newer.reset()


@pytest.mark.real_part
def test_two_clusters_of_different_releases_behind_one_slurmdbd_are_served_by_the_commands_of_either(
    older_beside: tuple[SlurmCluster, SlurmCluster], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Commands older than slurmctld and slurmdbd, and newer than slurmctld."""
    newer, older = older_beside
    for commands in older_beside:
        connect = by_commands(commands, monkeypatch, tmp_path)
        with pytest.raises(BackendError, match="knows the clusters older, test: set backend_settings"):
            connect(cluster_name="").observe()
        for of in older_beside:
            backend = connect(cluster_name=of.cluster)
            prefix = f"{commands.cluster}_{of.cluster}_"
            assert_lives(backend, prefix)
            other = newer if of is older else older
            assert f"{prefix}low" not in connect(cluster_name=other.cluster).observe().accounts
            used = Scope(parts=frozenset(), usage_of=frozenset({f"{prefix}low"}))
            wait_until("slurmctld knows the account", lambda b=backend, u=used: b.observe(u).used)


# slurmdbd understands commands of its own release and of the two or three before it.
STRANGERS = [
    (commands, server)
    for commands in GENERATIONS
    for server in GENERATIONS
    if commands != server and (commands, server) != (OLDER, NEWER)
]


@pytest.mark.real_part
@pytest.mark.parametrize(("commands", "server"), STRANGERS)
def test_what_a_server_of_another_release_does_not_understand_is_an_outage(
    slurm_clusters: Callable[[str], SlurmCluster],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    commands: str,
    server: str,
) -> None:
    programs, cluster = slurm_clusters(commands), slurm_clusters(server)
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    backend = connector(str(programs.bin_path), tmp_path)()
    with pytest.raises(BackendUnavailable, match="are of releases that do not speak with each other"):
        backend.observe()
    (outcome,) = backend.apply([CreateAccount(account="a", parent="root", description="d", organization="o")])
    assert isinstance(outcome.error, BackendUnavailable)
    asked = frozenset({"root"})
    seen = backend.observe(Scope(parts=frozenset(), jobs_of=asked, usage_of=asked))
    assert (seen.complete, seen.active_jobs, seen.used) == (frozenset(), {}, {})
    assert Part.JOBS in seen.unread


SSH = """#!/bin/sh
# As sshd does: what follows the host is joined with blanks, and a shell splits it again.
shift
cd / && exec env -i PATH="$PATH" SLURM_CONF="$SLURM_CONF" /bin/sh -c "$*"
"""
# As into a container, where a file of this host is not there.
CONTAINER = """#!/bin/sh
case " $* " in *" load "*) set -- --parsable2 --noheader load /not/there ;; esac
exec {bin}/sacctmgr "$@"
"""


@pytest.mark.every_slurm
def test_behind_ssh_texts_and_names_arrive_as_they_are(slurm: SlurmCluster, tmp_path: Path) -> None:
    program = tmp_path / "ssh"
    program.write_text(SSH)
    program.chmod(0o755)
    connect = connector(str(slurm.bin_path), tmp_path, command_prefix=[str(program), "head"])
    assert_lives(connect(), "")
    described = slurm.ask("sacctmgr", "-nP", "list", "account", "name=top", "format=description")
    direct = connector(str(slurm.bin_path), tmp_path)()
    assert direct.apply([CreateAccount(account="as", parent="root", description=TEXT, organization="o")])[
        0
    ].done
    again = slurm.ask("sacctmgr", "-nP", "list", "account", "name=as", "format=description")
    assert described == again
    assert "home" in described


@pytest.mark.every_slurm
def test_where_commands_run_in_a_container_single_commands_do_what_no_file_can(
    slurm: SlurmCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`slurm_bin_path` says nothing of where wrappers lead, and a file to load is not there."""
    caplog.set_level(logging.INFO)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sacctmgr").write_text(CONTAINER.format(bin=slurm.bin_path))
    (programs / "sacctmgr").chmod(0o755)
    (programs / "squeue").symlink_to(slurm.bin_path / "squeue")
    assert_lives(connector(str(programs), tmp_path)(), "")
    assert "going by single commands" in caplog.text


def assert_read_as_slurm_keeps_them(slurm: SlurmCluster, backend: Backend) -> None:
    """Make accounts and users of all these names, then limit the accounts and take users out again."""
    for name in NAMES:
        parent = "root" if name == LONG else LONG
        slurm.ask("sacctmgr", "-i", "add", "account", f"name={name}", f"parent={parent}")
        slurm.ask("sacctmgr", "-i", "add", "user", f"name={','.join(USERS)}", f"account={name}")
    seen = backend.observe()
    names, users = {name.lower() for name in NAMES}, {user.lower() for user in USERS}
    assert seen.accounts.keys() == {"root", *names}
    assert {name: seen.accounts[name].parent for name in names} == dict.fromkeys(names, LONG) | {LONG: "root"}
    assert {name: seen.users_of(name) for name in names} == dict.fromkeys(names, users)
    assert seen.default_accounts.keys() == {"root", *users}
    removed = [
        leave(name, user)
        for name in sorted(names - set(seen.default_accounts.values()))
        for user in sorted(users)
    ]
    limits = [SetLimits(account=name, after=(("cpu", 60),)) for name in sorted(names)]
    assert [str(outcome.error) for outcome in backend.apply([*limits, *removed]) if not outcome.done] == []
    seen = backend.observe()
    assert all(seen.accounts[name].limits == {"cpu": 60} for name in names)
    assert all(not seen.users_of(action.account) for action in removed)


@pytest.mark.every_slurm
def test_names_with_capitals_dots_and_60_letters_are_read_as_slurm_keeps_them(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    assert_read_as_slurm_keeps_them(slurm, connector(str(slurm.bin_path), tmp_path)())


def test_so_they_are_through_slurmrestd(real_slurmrestd: Slurmrestd, tmp_path: Path) -> None:
    real_slurmrestd.cluster.reset()
    assert_read_as_slurm_keeps_them(real_slurmrestd.cluster, by_rest(real_slurmrestd.access, tmp_path)())
