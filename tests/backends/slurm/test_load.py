# SPDX-License-Identifier: MIT
"""Loading many new things at once: what goes into the file, what stays out, and that nothing else changes."""

from __future__ import annotations

import logging
import os
import re
import resource
import signal
import stat
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.core.actions import AddMember, ClusterAction, CreateAccount, SetLimits
from agent.core.errors import ClusterBusy
from backends.base import BackendContext
from backends.lock import WriteLock
from backends.slurm import load_file
from backends.slurm.backend import SlurmBackend
from backends.slurm.plugin import plugin
from rig.child_process import child_process, script_command
from rig.processes import wait_until
from rig.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.every_slurm(one_of=10)


def account(name: str, parent: str = "root", text: str = "") -> CreateAccount:
    return CreateAccount(account=name, parent=parent, description=text or name, organization=parent)


def member(account: str, user: str, *, default: str = "", present: str | None = "") -> AddMember:
    return AddMember(account=account, user=user, default_account=default, present_default=present)


ALLOCATION: tuple[ClusterAction, ...] = (
    account("proj", "cust"),
    account("cust"),
    account("alloc", "proj", "It's #1: 50%"),
    SetLimits(account="alloc", after=(("cpu", 600), ("gres/gpu:a100", 5))),
    member("alloc", "bob"),
    member("alloc", "ann", present="root"),
)


def texts(actions: tuple[ClusterAction, ...]) -> list[str]:
    return [file.text for file in load_file.files(actions, "c1")]


def test_parents_come_first_and_values_are_quoted() -> None:
    assert texts(ALLOCATION) == [
        "Cluster - 'c1'\n"
        "Parent - 'root'\n"
        "Account - 'cust':Description='cust':Organization='root'\n"
        "Parent - 'cust'\n"
        "Account - 'proj':Description='proj':Organization='cust'\n"
        "Parent - 'proj'\n"
        "Account - 'alloc':Description='It s 1: 50%':Organization='proj':GrpTRESMins='cpu=600,gres/gpu:a100=5'\n"
        "Parent - 'alloc'\n"
        "User - 'ann':Fairshare=parent\n"
        "User - 'bob':DefaultAccount='alloc':Fairshare=parent\n"
    ]


@pytest.mark.parametrize(
    ("joins", "lines"),
    [
        # none: the first account that a new user joins
        ([member("a", "u"), member("b", "u")], ["a u a", "b u a"]),
        # individual: the last one, as single commands would leave it
        ([member("a", "u", default="a"), member("b", "u", default="b")], ["a u b", "b u b"]),
        # common: the association with the common account is written down once
        ([member("a", "u", default="root"), member("b", "u", default="root")], ["a u root", "b u root", "root u root"]),
        # who has a default keeps it, without a word about it
        ([member("a", "u", present="x"), member("b", "u", default="x", present="x")], ["a u", "b u"]),
    ],
)  # fmt: skip
def test_default_accounts_come_out_as_with_single_commands(joins: list[AddMember], lines: list[str]) -> None:
    found, parent = [], ""
    for line in texts(tuple(joins))[0].splitlines()[1:]:
        words = line.replace(":", "'").split("'")
        if line.startswith("Parent"):
            parent = words[1]
        elif "DefaultAccount=" in line:
            found.append(f"{parent} {words[1]} {words[4]}")
        else:
            found.append(f"{parent} {words[1]}")
    assert sorted(found) == lines


@pytest.mark.parametrize(
    "skipped",
    [
        member("a", "u", default="a", present="other"),
        member("a", "u", present=None),
        AddMember(account="a", user="u", present_default="", partitions=("p",)),
        AddMember(account="a", user="u", present_default="", qos=("q",), default_qos="q"),
        SetLimits(account="standing", after=(("cpu", 1),)),
    ],
    ids=["default changes", "default unknown", "partition", "QoS", "limit of a standing account"],
)
def test_what_could_change_something_stays_out(skipped: ClusterAction) -> None:
    held = [action for file in load_file.files((*ALLOCATION, skipped), "c1") for action in file.actions]
    assert set(held) == set(ALLOCATION)


def test_a_line_break_of_unicode_in_a_text_is_no_note_of_a_change() -> None:
    """What sacctmgr prints about things that exist begins with a blank; a text may go on with one behind U+2028."""
    listed = "Acct=alloc Descr=one\u2028 two\x85 three\n"
    assert load_file.notes(listed) == []
    assert load_file.notes(listed + " Changed parent of proj\n") == ["Changed parent of proj"]
    (text,) = texts((account("alloc", text="one\u2028 two\x85 three"),))
    assert "Description='one two three'" in text


def test_files_are_cut_between_accounts_and_parents_stay_in_front() -> None:
    actions = [account(f"a{n}", "cust") for n in range(load_file.ACCOUNTS_PER_FILE)] + [account("cust")]
    first, second = load_file.files(actions, "c1")
    assert first.actions[0].account == "cust"
    assert (len(first.actions), len(second.actions)) == (load_file.ACCOUNTS_PER_FILE, 1)


@pytest.fixture
def backend(slurm: SlurmCluster, tmp_path: Path) -> SlurmBackend:
    raw = {"default_account_policy": "none", "slurm_bin_path": str(slurm.bin_path)}
    settings = plugin.parse(raw, "test").settings
    return plugin.connect(settings, BackendContext("0" * 32, tmp_path))


def rows(slurm: SlurmCluster) -> set[str]:
    columns = "account,user,parentname,share,grptresmins,qos,defaultqos,maxtresmins,grpsubmit,partition"
    users = slurm.ask("sacctmgr", "-nP", "list", "user", "format=user,defaultaccount,admin")
    return {
        *slurm.ask("sacctmgr", "-nP", "show", "assoc", f"format={columns}").splitlines(),
        *users.splitlines(),
    }


def test_on_the_real_slurm_one_write_adds_what_was_asked_and_changes_nothing(
    slurm: SlurmCluster, backend: SlurmBackend
) -> None:
    slurm.change(
        "add account name=old parent=root fairshare=7 GrpTRESMins=cpu=99",
        "add user name=ann,tom account=old fairshare=3 maxjobs=2",
    )
    before = rows(slurm)
    backend.observe()
    actions = [*ALLOCATION[:3], SetLimits(account="alloc", after=(("cpu", 600),)), *ALLOCATION[4:]]
    actions[-1] = member("alloc", "ann", present="old")
    assert all(outcome.done for outcome in backend.apply(actions))
    assert backend.executed["write"] == 1
    assert before <= rows(slurm)
    added = {row.split("|")[0] + ":" + row.split("|")[1] for row in rows(slurm) - before}
    assert added == {"cust:", "proj:", "alloc:", "alloc:ann", "alloc:bob", "bob:alloc"}


def test_what_changed_since_the_read_is_not_touched(
    slurm: SlurmCluster, backend: SlurmBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """Another program makes the account after we looked: a load would move it, so nothing is loaded."""
    caplog.set_level(logging.INFO)
    backend.observe()
    slurm.ask("sacctmgr", "-i", "add", "account", "name=alloc", "parent=root")
    actions = [*ALLOCATION[:3], *ALLOCATION[4:]]
    backend.apply(actions)
    assert "not loading" in caplog.text
    assert "Changed Parent for Account alloc root -> proj" in caplog.text
    tree = backend.observe()
    assert tree.accounts["alloc"].parent == "root"
    assert tree.accounts["proj"].parent == "cust"


def test_without_the_right_to_load_single_commands_do_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A sacctmgr that knows no `load`, as the emulator's: the rest of the commands are the real ones."""
    commands = tmp_path / "bin"
    commands.mkdir()
    stand_in = commands / "sacctmgr"
    stand_in.write_text(
        '#!/bin/sh\ncase " $* " in *" load "*) echo "error: Unknown command: load" >&2; exit 1;; esac\n'
        f'exec {slurm.bin_path}/sacctmgr "$@"\n'
    )
    stand_in.chmod(0o755)
    settings = plugin.parse(
        {"default_account_policy": "none", "slurm_bin_path": str(commands)}, "test"
    ).settings
    backend = plugin.connect(settings, BackendContext("0" * 32, tmp_path))
    backend.observe()
    actions = [*ALLOCATION[:3], *ALLOCATION[4:]]
    assert all(outcome.done for outcome in backend.apply(actions))
    assert backend.observe().users_of("alloc") == {"ann", "bob"}


KILLED_LOADER = """
from pathlib import Path
from backends.base import BackendContext
from backends.slurm.plugin import plugin
from tests.backends.slurm.test_load import ALLOCATION
bin_path, state = sys.argv[1:]
settings = plugin.parse({"default_account_policy": "none", "slurm_bin_path": bin_path}, "test").settings
backend = plugin.connect(settings, BackendContext("0" * 32, Path(state)))
backend.observe()
backend.apply([*ALLOCATION[:3], *ALLOCATION[4:]])
"""


def test_a_load_whose_agent_is_killed_changes_nothing_and_keeps_others_out_until_it_has_ended(
    slurm: SlurmCluster, backend: SlurmBackend, tmp_path: Path
) -> None:
    begun, go, commands = tmp_path / "begun", tmp_path / "go", tmp_path / "bin"
    commands.mkdir()
    stand_in = commands / "sacctmgr"
    stand_in.write_text(
        f'#!/bin/sh\ncase " $* " in *" load "*) touch {begun}; while ! [ -e {go} ]; do sleep 0.02; done;; esac\n'
        f'exec {slurm.bin_path}/sacctmgr "$@"\n'
    )
    stand_in.chmod(0o755)
    before = rows(slurm)
    with child_process(script_command(KILLED_LOADER, commands, tmp_path)) as agent:
        wait_until("the load has begun", begun.exists)
        agent.kill()
        agent.wait()
    with pytest.raises(ClusterBusy):
        WriteLock(tmp_path, "slurmdbd", wait_s=0).__enter__()
    go.touch()
    with WriteLock(tmp_path, "slurmdbd"):
        assert rows(slurm) == before
    assert all(outcome.done for outcome in backend.apply([account("later")])), "no row is left locked"


def counted(commands: Sequence[str]) -> Counter[str]:
    """Commands by kind: `load`, `modify account`."""
    kinds = (re.search(r"(load|(?:add|modify|remove) \w+)", command.splitlines()[0]) for command in commands)
    return Counter(kind.group(1) for kind in kinds if kind)


def test_what_is_printed_is_what_is_run(slurm: SlurmCluster, backend: SlurmBackend, tmp_path: Path) -> None:
    """A load and a single command next to it; what is printed makes the same of another cluster, in a shell."""
    slurm.ask("sacctmgr", "-i", "add", "account", "name=old", "parent=root", "GrpTRESMins=cpu=99")
    backend.observe()
    actions = [*ALLOCATION[:3], *ALLOCATION[4:], SetLimits(account="old", after=(("cpu", 5),))]
    printed = backend.commands(actions)
    assert backend.executed["write"] == 0
    outcomes = backend.apply(actions)
    assert all(outcome.done for outcome in outcomes)
    ran = dict.fromkeys(command for outcome in outcomes for command in outcome.commands)
    assert counted(printed) == counted(list(ran)) == {"load": 1, "modify account": 1}
    made = rows(slurm)
    slurm.reset()
    slurm.ask("sacctmgr", "-i", "add", "account", "name=old", "parent=root", "GrpTRESMins=cpu=99")
    environment = {**os.environ, "SLURM_CONF": slurm.env["SLURM_CONF"]}
    subprocess.run(["bash", "-euc", "\n".join(printed)], check=True, capture_output=True, env=environment)
    assert rows(slurm) == made


def test_few_things_are_printed_as_the_single_commands_that_make_them(
    slurm: SlurmCluster, backend: SlurmBackend
) -> None:
    backend.observe()
    assert counted(backend.commands([account("cust")])) == {"add account": 1}


def left_over(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "locks").iterdir() if not file.name.endswith(".lock"))


def test_files_that_a_killed_worker_left_are_swept_and_ours_is_private(
    slurm: SlurmCluster, backend: SlurmBackend, tmp_path: Path
) -> None:
    backend.observe()
    lock = backend._writer._lock.path
    old, foreign = lock.with_name(f"{lock.stem}-load-dead"), lock.with_name("writes-other-load-alive")
    lock.parent.mkdir(exist_ok=True)
    old.touch()
    foreign.touch()
    path = backend._writer._loader._written("text")
    assert path is not None and path.parent == lock.parent
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    backend.apply([*ALLOCATION[:3], *ALLOCATION[4:]])
    assert left_over(tmp_path) == [foreign.name]


@pytest.mark.parametrize("fault", ["no such folder", "full"])
def test_without_room_for_a_file_single_commands_do_it(
    slurm: SlurmCluster, backend: SlurmBackend, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    backend.observe()
    actions = [*ALLOCATION[:3], *ALLOCATION[4:]]
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if fault == "full":  # the first byte of a file is one too many
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    else:
        backend._writer._loader._prefix = "no/such/folder-"
    try:
        assert backend._writer._loader._written("text") is None
        assert list(backend._writer._loader.load(actions, "test")) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert backend.executed["write"] == 0
    assert "going by single commands" in caplog.text
    assert left_over(backend._writer._lock.path.parents[1]) == []
