# SPDX-License-Identifier: MIT
"""Which real programs a test needs: skips the test where one is missing, naming it.

With REQUIRE_REAL_SERVICES=1 (continuous integration) a missing part fails the test instead.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SLURM_ROOTS = Path(os.environ.get("SLURM_ROOTS", "/var/cache/waldur-site-cluster/slurm"))
"""Folder of the Debian roots with other generations of SLURM, each in a folder named like its suite."""

SLURM_SUITES = {"24.11": "trixie", "26.05": "forky"}
"""SLURM generation to the Debian suite that has it."""

OWN_GENERATION = "22.05"
"""That of this machine's own packages."""

GENERATIONS = (OWN_GENERATION, *SLURM_SUITES)

REFERENCE_VENV = Path(os.environ.get("REFERENCE_VENV", "/var/cache/waldur-site-cluster/reference"))
"""A virtual environment with waldur-site-agent and some of its plugins."""

OWN_BIN = str(Path(sys.prefix) / "bin")
"""Folder of this interpreter's programs: on PATH where its environment is activated."""

SLURM_COMMANDS = ("sacctmgr", "sacct", "sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue", "sreport")

REDIS_PROGRAMS = {
    "redis-8": SLURM_ROOTS / "trixie/usr/bin/redis-server",
    "valkey-8": SLURM_ROOTS / "trixie/usr/bin/valkey-server",
    "valkey-9": SLURM_ROOTS / "forky/usr/bin/valkey-server",
}
"""Other generations of Redis in the Debian roots. This machine's own is 7.0."""

PROGRAMS: dict[str, tuple[str, ...]] = {
    "slurm": (
        *(
            "munged",
            "mariadb",
            "mariadbd",
            "mariadb-install-db",
            "slurmdbd",
            "slurmctld",
            "slurmd",
            "setpriv",
        ),
        *SLURM_COMMANDS,
    ),
    "redis": ("redis-server|valkey-server", "setpriv"),
    "slapd": ("slapd", "slapadd", "setpriv"),
    "mosquitto": ("mosquitto", "setpriv"),
    "rabbitmq": ("rabbitmq-server", "erl"),
    "reference": (str(REFERENCE_VENV / "bin/python"),),
    **{kind: (str(program), "unshare", "setpriv") for kind, program in REDIS_PROGRAMS.items()},
    # slurmctld is a link there, which leads to this machine's own; munged is this machine's.
    **{
        f"slurm-{generation}": (
            str(SLURM_ROOTS / suite / "usr/sbin/slurmdbd"),
            "munged",
            "nsenter",
            "unshare",
        )
        for generation, suite in SLURM_SUITES.items()
    },
}
"""Part name to the programs it needs; `a|b` is met by either."""

OF_ANY_DEBIAN = ("setpriv", "unshare", "mkhomedir_helper")
REQUIRED = os.environ.get("REQUIRE_REAL_SERVICES") == "1"
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Asker:
    """Who asks for programs."""

    # The running test while it lacks the marker `real_part`; it may then ask for no service program.
    unmarked = ""


def path_to_slurm() -> str:
    """Return PATH without this interpreter's environment, where slurm-emulator has programs of SLURM's names."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if folder != OWN_BIN)


def find_program(names: str) -> str | None:
    """Return the absolute path of the first of `a|b|c` that is installed; PATH first, then the system folders, then
    this interpreter's environment.
    """
    if Asker.unmarked and names not in OF_ANY_DEBIAN:
        pytest.fail(f"{Asker.unmarked} asks for {names} and has no marker real_part", pytrace=False)
    search = f"{path_to_slurm()}:{SYSTEM_FOLDERS}:{OWN_BIN}"
    for name in names.split("|"):
        found = shutil.which(name, path=search)
        if found:
            return found
    return None


def missing_programs(part: str) -> list[str]:
    """Return the programs of a part that are not installed; a part not listed is itself the program."""
    return [names for names in PROGRAMS.get(part, (part,)) if find_program(names) is None]


def require(part: str) -> None:
    """Skip the calling test when the part is missing; fail it when REQUIRE_REAL_SERVICES=1, but for the reference,
    which is no dependency (`make services-reference`).
    """
    missing = missing_programs(part)
    is_in_root = part.removeprefix("slurm-") in SLURM_SUITES or part in REDIS_PROGRAMS
    if (part == "slurm" or is_in_root) and not missing and os.geteuid() != 0:
        missing = ["root rights"]
    if is_in_root and not missing and not _can_mount():
        missing = ["the right to mount (`unshare --mount` is refused)"]
    generation = part.removeprefix("slurm-")
    if generation in SLURM_SUITES and not missing and not _release(generation).startswith(f"{generation}."):
        root = SLURM_ROOTS / SLURM_SUITES[generation]
        missing = [f"{root} has SLURM {_release(generation)}, another than rig.parts.SLURM_SUITES says"]
    if not missing:
        return
    message = f"real part {part!r} is missing: {', '.join(missing)}"
    if is_in_root:
        message += "; `make services services-slurm` bring what the suites have"
    if REQUIRED and not part.startswith("reference"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def _release(generation: str) -> str:
    """Return the release of SLURM that its root has, as Debian writes it: a suite that is not stable goes on."""
    packages = SLURM_ROOTS / SLURM_SUITES[generation] / "var/lib/dpkg"
    query = ("dpkg-query", f"--admindir={packages}", "--show", "--showformat=${Version}", "slurmctld")
    return subprocess.run(query, capture_output=True, check=True, text=True).stdout


@cache
def _can_mount() -> bool:
    """Return whether a root can have mounts of its own here: not in every container."""
    probe = ("unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0
