# SPDX-License-Identifier: MIT
"""The files of `systemd/`: understood by systemd, hardened as far as it goes, and nothing that an old systemd lacks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backends.slurm.commands import CommandBuilder
from backends.slurm.programs import Programs
from rig import processes
from rig.parts import require
from rig.processes import REPOSITORY
from rig.unit_process import UNITS, sections
from tasks.limits import TASK_TIME_LIMIT_S
from tests.backends.slurm.wanted import account, delete, join, leave, limits, move

MODERN = sorted(UNITS.glob("*.service"))
LEGACY = sorted(UNITS.glob("legacy/*.service"))
ALL = [*MODERN, *LEGACY]
WORKERS = [unit for unit in ALL if "worker" in unit.name]
METRICS = [unit for unit in ALL if "metrics" in unit.name]
CONSOLE = [unit for unit in ALL if "console" in unit.name]
OTHERS = [unit for unit in MODERN if unit not in (*WORKERS, *METRICS, *CONSOLE)]
BY_NAME = {"ids": lambda unit: f"{unit.parent.name}/{unit.name}"}
# systemd.unit(5), .service(5), .exec(5) and .kill(5) of 219, as far as our units go.
KNOWN_TO_219 = {
    "Unit": {"Description", "Documentation", "Wants", "After", "PartOf"},
    "Service": {
        "Type", "NotifyAccess", "TimeoutStartSec", "TimeoutStopSec", "WatchdogSec", "User", "Environment",
        "EnvironmentFile", "ExecStart", "Restart", "RestartSec", "StartLimitInterval", "KillMode", "PrivateTmp",
        "PrivateDevices", "ProtectSystem", "ProtectHome", "NoNewPrivileges", "CapabilityBoundingSet",
        "RestrictAddressFamilies", "UMask", "MemoryLimit",
    },
    "Install": {"WantedBy"},
}  # fmt: skip
# What keeps root of a unit from making homes wherever they are, or sudo in a command prefix from working.
IN_THE_WAY = {
    "CapabilityBoundingSet", "DynamicUser", "InaccessiblePaths", "LockPersonality", "MemoryDenyWriteExecute",
    "NoExecPaths", "NoNewPrivileges", "PrivateDevices", "PrivateUsers", "ProtectHome", "ReadOnlyPaths",
    "RestrictAddressFamilies", "RestrictNamespaces", "RestrictSUIDSGID", "RootDirectory", "SystemCallFilter",
    "TemporaryFileSystem", "UMask",
}  # fmt: skip
# systemd's own measure, 0 to 10, times ten. A worker is root with all capabilities: only so much can be taken away.
EXPOSURE_AT_MOST = {"worker": 78, "metrics": 30, "other": 20}


def seconds(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(min)?", text).groups()  # type: ignore[union-attr]
    return int(number) * (60 if unit else 1)


@pytest.mark.real_part
def test_systemd_understands_every_unit(tmp_path: Path) -> None:
    require("systemd-analyze")
    done = analyze("verify", "--man=no", *(str(unit) for unit in [*UNITS.glob("*.target"), *MODERN]))
    ours = [line for line in done.stderr.splitlines() if "waldur" in line]
    assert (ours, done.returncode) == ([], 0), done.stderr
    # The legacy units have the same names, and 252 calls a key of 219 an old one: that it reads it all the same.
    done = analyze("verify", "--man=no", *(str(unit) for unit in LEGACY))
    old = "Unit uses MemoryLimit="
    assert not [line for line in done.stderr.splitlines() if "waldur" in line and old not in line]


@pytest.mark.real_part
@pytest.mark.parametrize("unit", MODERN, **BY_NAME)
def test_units_are_no_more_exposed_than_they_need_be(unit: Path) -> None:
    require("systemd-analyze")
    kind = "worker" if unit in WORKERS else "metrics" if unit in METRICS else "other"
    most = EXPOSURE_AT_MOST[kind]
    done = analyze("security", "--offline=yes", f"--threshold={most}", str(unit))
    assert done.returncode == 0, done.stdout[-300:]
    assert analyze("security", "--offline=yes", "--threshold=5", str(unit)).returncode != 0


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    command = [processes.program("systemd-analyze"), *words]
    environment = {**os.environ, "SYSTEMD_PAGER": "", "LC_ALL": "C.UTF-8"}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)


@pytest.mark.parametrize("unit", LEGACY, **BY_NAME)
def test_legacy_units_have_nothing_that_219_does_not_know(unit: Path) -> None:
    for name, keys in sections(unit).items():
        assert set(keys) <= KNOWN_TO_219[name]
    service = sections(unit)["Service"]
    assert service["Type"][0] in ("notify", "simple")
    (command,) = service["ExecStart"]
    log = re.fullmatch(r"/bin/sh -c 'exec /usr/bin/env .* >>(/var/log/\S+)/\S+\.log 2>&1'", command)
    # Whoever owns the folder could have root write through a link.
    rules = (UNITS / "tmpfiles.d/waldur-site-cluster-legacy.conf").read_text().splitlines()
    owners = {line.split()[1]: line.split()[3] for line in rules if line.startswith("d ")}
    assert log and owners[log[1]] == service["User"][0]


def test_legacy_units_start_the_same_commands() -> None:
    for unit in MODERN:
        (command,) = sections(unit)["Service"]["ExecStart"]
        (legacy,) = sections(UNITS / "legacy" / unit.name)["Service"]["ExecStart"]
        assert legacy.startswith(f"/bin/sh -c 'exec {command} >>")


@pytest.mark.parametrize("unit", ALL, **BY_NAME)
def test_every_unit_comes_back_belongs_to_the_target_and_finds_the_venv(unit: Path) -> None:
    found = sections(unit)
    assert found["Service"]["Restart"] == ["always"]
    assert found["Unit"].get("StartLimitIntervalSec", found["Service"].get("StartLimitInterval")) in (["0"],)
    assert found["Unit"]["PartOf"] == found["Install"]["WantedBy"] == ["waldur-site.target"]
    environment = dict(value.split("=", 1) for value in found["Service"]["Environment"])
    first, *others = environment["PATH"].split(":")
    assert f"python3 -m venv {Path(first).parent}\n" in (REPOSITORY / "docs" / "install.md").read_text()
    assert {"/usr/bin", "/bin", "/usr/sbin"} <= set(others)


@pytest.mark.parametrize("unit", ALL, **BY_NAME)
def test_every_unit_has_a_bound_of_memory(unit: Path) -> None:
    """219 knows it by another name. A worker has two passes at once, and what its commands print."""
    (bound,) = sections(unit)["Service"]["MemoryLimit" if unit in LEGACY else "MemoryMax"]
    gigabytes = float(bound.removesuffix("G")) if bound.endswith("G") else int(bound.removesuffix("M")) / 1024
    assert (4 if unit in WORKERS else 0.5) <= gigabytes <= 4


@pytest.mark.parametrize("unit", WORKERS, **BY_NAME)
def test_a_worker_is_ended_alone_and_late_and_can_make_homes_and_call_sudo(unit: Path) -> None:
    service = sections(unit)["Service"]
    assert service["KillMode"] == ["process"]
    assert seconds(service["TimeoutStopSec"][0]) > TASK_TIME_LIMIT_S + 30
    assert unit in LEGACY or service["OOMPolicy"] == ["continue"]
    assert service["User"] == ["root"]
    assert not IN_THE_WAY & service.keys() - ({"UMask"} if unit in LEGACY else set())
    # `strict` would leave no folder but its own writable; /usr, /boot and /etc are none of homes.
    assert service["ProtectSystem"] == ["full"]


@pytest.mark.parametrize("unit", OTHERS, **BY_NAME)
def test_other_units_may_write_nowhere_and_get_the_configuration_as_a_credential(unit: Path) -> None:
    service = sections(unit)["Service"]
    assert service["DynamicUser"] == service["NoNewPrivileges"] == service["ProtectHome"] == ["yes"]
    assert service["ProtectSystem"] == ["strict"]
    environment = dict(value.split("=", 1) for value in service["Environment"])
    names = [value.partition(":")[0] for value in service["LoadCredential"]]
    config = environment["WALDUR_SITE_AGENT_CONFIG"]
    assert config.startswith("%d/") and config.removeprefix("%d/") in names


@pytest.mark.parametrize("unit", METRICS, **BY_NAME)
def test_metrics_read_what_is_the_workers_and_take_nothing_from_it(unit: Path) -> None:
    service = sections(unit)["Service"]
    assert (service["User"], service["CapabilityBoundingSet"]) == (
        ["root"],
        ["CAP_DAC_READ_SEARCH CAP_SETUID CAP_SETGID"],
    )
    # systemd would give the folder to root, also where the worker has a user of its own.
    assert "StateDirectory" not in service
    # Below `strict` a state_dir of the site's choice could not be opened: SQLite's readers write next to the file.
    assert (service["ProtectSystem"], service["NoNewPrivileges"]) == (["full"], ["yes"])


@pytest.mark.parametrize("unit", CONSOLE, **BY_NAME)
def test_the_console_has_a_user_of_its_own_and_writes_the_state_only(unit: Path) -> None:
    service = sections(unit)["Service"]
    (user,) = service["User"]
    assert f"u {user} - " in (UNITS / "sysusers.d" / "waldur-site-cluster.conf").read_text()
    assert (service["CapabilityBoundingSet"], service["NoNewPrivileges"]) == ([""], ["yes"])
    if unit in MODERN:
        assert service["ProtectSystem"] == ["strict"] and "ReadWritePaths" not in service
        assert service["StateDirectory"] == ["waldur-site-cluster"]
        assert service["InaccessiblePaths"] == ["-/run/munge"]


def test_nothing_takes_the_state_from_its_owner() -> None:
    """systemd and tmpfiles.d would give it to root at each start."""
    for unit in WORKERS:
        assert "StateDirectory" not in sections(unit)["Service"]
    for rules in UNITS.glob("tmpfiles.d/*.conf"):
        assert not re.search(r"^[^#].*/var/lib/waldur-site-cluster\s", rules.read_text(), re.MULTILINE)


CHECKED = UNITS / "examples" / "checked-slurm"


def is_let_through(*words: str) -> bool:
    """Ask the shipped program itself, without starting what it lets through."""
    ask = (
        "import runpy, sys; sys.exit(not runpy.run_path(sys.argv[1])['is_known'](sys.argv[2], sys.argv[3:]))"
    )
    return not subprocess.run([sys.executable, "-IS", "-c", ask, CHECKED, *words], check=False).returncode


def test_sudo_lets_one_checked_program_through_and_hands_no_configuration_on() -> None:
    text = (UNITS / "examples" / "sudoers").read_text()
    assert re.findall(r"^Cmnd_Alias.*$", text, re.MULTILINE) == [
        "Cmnd_Alias WALDUR_SLURM = /usr/local/lib/waldur-site/checked-slurm"
    ]
    rules = [line for line in text.splitlines() if line.startswith("waldur-site")]
    assert rules == ["waldur-site ALL = (slurm) NOPASSWD: WALDUR_SLURM"]
    assert "SLURM_CONF" not in text and "*" not in text
    assert CHECKED.read_text().startswith("#!/usr/bin/python3 -I\n")


WRITE = ("sacctmgr", *Programs("").sacctmgr_write[1:])


def test_what_the_builders_write_is_let_through() -> None:
    programs = Programs("")
    members = [join("a_one", name, default_account="a_one", qos=("fast",)) for name in ("ann", "bob")]
    actions = [
        account("a_one", "p", "Ärzte ohne Grenzen (2)", "O; x"),
        *members,
        limits("a_one", **{"cpu": 600, "gres/gpu": 5}),
        limits("a_two", cpu=-1),
        leave("a_one", "cid"),
        delete("a_old"),
        move("dan", "a_old", "a_one"),
    ]
    built = [batch for action in actions for batch in CommandBuilder("c1").batches([action])]
    assert built
    for words in [(*programs.sacctmgr_write, *batch.argv) for batch in built]:
        assert is_let_through(*words), words
    for words in (
        (programs.sacctmgr, "--version"),
        (*programs.sacctmgr_read, "show", "assoc", "cluster=c1", "format=account,user", "WOPLimits"),
        (*programs.sacct_read, "--duplicates", "--starttime=2026-05-01T00:00:00", "--format=account,user"),
        (programs.squeue, "--noheader", "--all", "--account=a_one,a_two", "--format=%a|%u"),
        (programs.scancel, "--account=a_one", "--user=ann"),
        (programs.scontrol, "--all", "--oneliner", "show", "partition"),
        (programs.scontrol, "--oneliner", "show", "assoc_mgr", "accounts=a", "flags=assoc"),
    ):
        assert is_let_through(*words), words


@pytest.mark.parametrize(
    "words",
    [
        ("scontrol", "--oneliner", "update", "nodename=ALL", "state=down", "reason=show assoc_mgr x"),
        ("scontrol", "--all", "--oneliner", "update", "nodename=ALL", "show partition"),
        (*WRITE, "dump", "c1", "file=/etc/cron.d/x"),
        (*WRITE, "load", "file=/tmp/x"),
        (*WRITE, "load", "/tmp/x"),
        (*WRITE, "modify", "user", "where", "name=ann", "set", "AdminLevel=Administrator"),
        (*WRITE, "modify", "account", "set", "GrpTRESMins=cpu=0"),
        (*WRITE, "add", "account", "name=a;reboot"),
        (*WRITE, "add", "account", "name=a", "description=$(reboot)"),
        (*WRITE, "add", "account", "name=a\nb"),
        (*WRITE, "show", "assoc", "-Q"),
        ("sacctmgr", "--conf=/tmp/slurm.conf", "--version"),
        ("sacct", *Programs("").sacct_read[1:], "--file=/etc/shadow"),
        ("squeue", "--noheader", "--conf=/tmp/x"),
        ("scancel",),
        ("scancel", "--user=ann"),
        ("scancel", "--account=a", "-Q"),
        ("sh", "-c", "reboot"),
        ("../../bin/sh",),
        (),
    ],
    ids=lambda words: " ".join(words)[-40:],
)
def test_what_the_agent_never_calls_is_refused_in_words(words: tuple[str, ...]) -> None:
    done = subprocess.run([CHECKED, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 126 and "is refused" in done.stderr


def test_the_environment_of_the_caller_leads_no_command_elsewhere() -> None:
    ask = "import runpy, sys, os, json; print(json.dumps(runpy.run_path(sys.argv[1])['environment'](os.environ)))"
    given = {
        "SLURM_CONF": "/tmp/x",
        "LD_PRELOAD": "",
        "PYTHONPATH": "/tmp",
        "TZ": "../../tmp/x",
        "PATH": "/tmp",
    }
    command = [sys.executable, "-IS", "-c", ask, CHECKED]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


def test_the_environment_example_is_what_systemd_reads() -> None:
    lines = (UNITS / "examples" / "site-cluster.env").read_text().splitlines()
    known = (REPOSITORY / "docs" / "configuration.md").read_text() + "SLURM_CONF"
    for line in lines:
        if line and not line.startswith("# "):
            name, is_set, value = line.removeprefix("#").partition("=")
            assert is_set and value and re.fullmatch(r"[A-Z_]+", name)
            assert name in known or name.startswith("FLOWER_"), name
