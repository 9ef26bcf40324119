# SPDX-License-Identifier: MIT
"""A head node whose SLURM programs are ours: strict about their options, with answers that a test lays down.

Each call is logged. Without a rule for it a write says nothing and ends with 0, and a read answers from a file.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.core.actions import (
    AddMember,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    DeleteQos,
    RemoveMember,
    SetLimits,
)
from agent.core.plans import Outcome
from backends.base import BackendContext
from backends.slurm.backend import SlurmBackend
from backends.slurm.plugin import plugin
from rig import warm_python

PROGRAM = r"""
import fcntl, os, sys
folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
program, words = os.path.basename(__file__), sys.argv[1:]
line = " ".join([program, *words])


def end(code, stdout="", stderr=""):
    sys.stdout.write(stdout)
    sys.stderr.write(stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def is_locked():
    locks = os.path.join(folder, "state", "locks")
    for name in os.listdir(locks) if os.path.isdir(locks) else ():
        with open(os.path.join(locks, name)) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


with open(os.path.join(folder, "log"), "a") as log:
    log.write(repr((line, is_locked())) + "\n")
with open(os.path.join(folder, "rules")) as stream:
    rules = eval(stream.read())
for number, rule in enumerate(rules):
    used = os.path.join(folder, "used", str(number))
    count = len(os.listdir(used)) if os.path.isdir(used) else 0
    if rule["needle"] in line and count < rule["times"]:
        os.makedirs(used, exist_ok=True)
        open(os.path.join(used, str(count)), "w").close()
        end(rule["code"], rule["stdout"], rule["stderr"])


def placed(text):
    rows = [line.split("|") for line in text.splitlines()]
    places, last = {}, [0]

    def enter(number):
        last[0] += 1
        left, (cluster, account, user) = last[0], rows[number][:3]
        for other, row in enumerate(rows):
            if not user and row[0] == cluster and (row[4] == account if not row[2] else row[1] == account):
                enter(other)
        last[0] += 1
        places[number] = f"|||{left}|{last[0]}"

    for number, row in enumerate(rows):
        if row[1] == "root" and not row[2]:
            enter(number)
    printed = ["|".join([*row[:4], "", *row[5:]]) + places.get(n, "||||") for n, row in enumerate(rows)]
    return "".join(line + "\n" for line in printed)


flags = {
    "sacctmgr": ["--immediate", "--parsable2", "--noheader"],
    "squeue": ["--noheader", "--all"],
    "scancel": [],
    "scontrol": ["--all", "--oneliner"],
    "sacct": ["--allusers", "--allocations", "--noheader", "--parsable2", "--noconvert"],
}
if words == ["show", "config"]:
    end(0, "SLURM_VERSION          = 22.05.8\n\nSLURMDBD_VERSION       = 22.05.8\n")
if words[: len(flags[program])] != flags[program] or any(word == "" for word in words):
    end(64, stderr=f"stand-in: unexpected options: {line}\n")
rest = words[len(flags[program]) :]
if program == "squeue" and (not rest[-2].startswith("--account=") or rest[-1] != "--format=%a|%u"):
    end(64, stderr=f"stand-in: unexpected options: {line}\n")
if program == "scancel" and not all(word.startswith(("--clusters=", "--account=", "--user=")) for word in words):
    end(64, stderr=f"stand-in: unexpected options: {line}\n")
if program == "sacct" and not rest[-1].endswith("TRES,State,ElapsedRaw,Suspended,Start,Submit,JobIDRaw"):
    end(64, stderr=f"stand-in: unexpected options: {line}\n")
if program == "scontrol":
    end(0, "PartitionName=main AllowGroups=ALL\nPartitionName=gpu AllowGroups=ALL\n")
if program == "sacct":
    with open(os.path.join(folder, "sacct")) as stream:
        end(0, stream.read())
if program == "sacctmgr" and any(word.startswith("-") for word in rest):
    end(64, stderr=f"stand-in: unexpected options: {line}\n")
if program == "sacctmgr" and "format=cluster,account,qos,defaultqos" in rest:
    end(0)
if program == "sacctmgr" and "OnlyDefaults" in rest:
    with open(os.path.join(folder, "user")) as stream:
        pairs = [line.rstrip("\n").split("|") for line in stream]
    end(0, "".join(f"{home}|{user}\n" for user, home in pairs if home))
if program == "sacctmgr" and "WOPInfo" in rest:
    with open(os.path.join(folder, "assoc")) as stream:
        end(0, placed(stream.read()))
if program == "sacctmgr" and rest[0] in ("show", "list"):
    with open(os.path.join(folder, rest[1])) as stream:
        end(0, stream.read())
end(0)
"""
ROOT = "c1|root||||||normal||\nc1|root|root|||||||\n"
READS = {
    "assoc": ROOT,
    "user": "root|root\n",
    "tres": "cpu|\nmem|\ngres|gpu\n",
    "qos": "normal||Normal QOS default\n",
    "cluster": "c1|9728\n",
}


@dataclass(frozen=True)
class Rule:
    """What a call answers whose line holds `needle`, for the first `times` calls that do."""

    needle: str
    code: int = 0
    stdout: str = ""
    stderr: str = ""
    times: int = 1000


class HeadNode:
    """Programs, their answers, and the log of their calls, in one folder."""

    def __init__(
        self, folder: Path, programs: Iterable[str] = ("sacctmgr", "squeue", "scancel", "scontrol")
    ) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in programs:
            path = self.bin / name
            path.write_text(f"#!{warm_python.of_programs().program}\n{PROGRAM}")
            path.chmod(0o755)
        for name, text in READS.items():
            self.answer(name, text)
        self.rules()

    def answer(self, read: str, text: str) -> None:
        (self.folder / read).write_text(text)

    def rules(self, *rules: Rule) -> None:
        (self.folder / "rules").write_text(repr([asdict(rule) for rule in rules]))

    def backend(
        self, settings: Mapping[str, object] | None = None, context: BackendContext | None = None
    ) -> SlurmBackend:
        raw = {"slurm_bin_path": str(self.bin), "cluster_name": "c1", **(settings or {})}
        parsed = plugin.parse(raw, "test")
        return plugin.connect(parsed.settings, context or BackendContext("0" * 32, self.folder / "state"))

    def calls(self) -> list[str]:
        """Lines of the calls so far, without the flags that every sacctmgr call needs."""
        return [line.replace(" --immediate --parsable2 --noheader", "") for line, _ in self._log()]

    def forget_calls(self) -> None:
        (self.folder / "log").unlink()

    def writes(self) -> list[str]:
        """Words of the calls of sacctmgr that change something."""
        return [
            line.removeprefix("sacctmgr ")
            for line in self.calls()
            if line.startswith("sacctmgr ") and line.split()[1] not in ("show", "list", "--version")
        ]

    def was_locked(self, program: str = "") -> set[bool]:
        """Whether the cluster's lock was held during the calls, of one program or of all."""
        return {locked for line, locked in self._log() if line.startswith(program)}

    def _log(self) -> list[tuple[str, bool]]:
        log = self.folder / "log"
        return [literal_eval(line) for line in log.read_text().splitlines()] if log.exists() else []


def account(name: str, parent: str = "root") -> CreateAccount:
    return CreateAccount(account=name, parent=parent, description="d", organization="o")


def limits(name: str) -> SetLimits:
    return SetLimits(account=name, after=(("cpu", 1),))


def join(name: str, user: str) -> AddMember:
    return AddMember(account=name, user=user)


def removal(name: str, parent: str = "root") -> list[ClusterAction]:
    return [
        BlockSubmission(account=name),
        CancelJobs(account=name),
        RemoveMember(account=name, user="ann"),
        DeleteAccount(account=name, parent=parent),
        DeleteQos(account=name),
    ]


def errors(outcomes: list[Outcome]) -> dict[str, str]:
    """Rendered action -> kind of its error, for those that have one."""
    return {o.action.render(): type(o.error).__name__ for o in outcomes if o.error}


def applied(node: HeadNode, actions: list[ClusterAction], **settings: object) -> list[Outcome]:
    outcomes = list(node.backend(settings).apply(actions))
    assert {o.action for o in outcomes} == set(actions)
    assert len(outcomes) == len(set(actions))
    return outcomes


OUTAGES = [
    "sacctmgr: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:h:7: "
    "Connection refused\nsacctmgr: error: Sending PersistInit msg: Connection refused",
    "sacctmgr: error: slurm_persist_conn_open: No response to persist_init",
    "sacctmgr: error: Sending PersistInit msg: Unable to connect to database",
    "sacct: error: Problem talking to the database: Connection refused",
    "error: Munge encode failed: Failed to access socket: No such file or directory",
    "error: If munged is up, restart with --num-threads=10",
    "error: Protocol authentication error",
    "error: persistent connection for fd 3 experienced error[32]: Broken pipe",
    "error: Getting response to message type: DBD_ADD_USERS\n Problem adding users: Unspecified error",
    " Problem getting associations from database.  Contact your admin.",
    "squeue: error: Unable to contact slurm controller (connect failure)",
    "slurm_load_jobs error: Socket timed out on send/recv operation",
    "error: slurmdbd: Lock wait timeout exceeded; try restarting transaction",
    "fatal: unable to resolve deadlock with attempts 10/10",
]
REST_OF_X = ["remove member ann from x", "delete account x below p", "delete QoS x"]
