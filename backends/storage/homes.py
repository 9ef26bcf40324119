# SPDX-License-Identifier: MIT
"""The head node: who is known here, which homes there are, and the programs that make homes and set quotas.

They run on this host and never behind `command_prefix`: that leads to the SLURM commands (`docker exec slurmctld`),
while homes belong to where people log in, which is where their names are looked up. Root rights are needed.
"""

from __future__ import annotations

import logging
import os
import shlex
import stat
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.core.errors import BackendError, CommandFailed, NotApplied, PlanRefused, SiteAgentError
from agent.core.homes import Home, QuotaProvider, is_username
from agent.core.host_actions import HostAction, MakeHome, SetQuota
from agent.core.plans import Outcome
from backends.lock import WriteLock
from backends.process import Completed, Runner
from backends.storage import passwd, quotas
from backends.storage.passwd import Entry, Lookup
from backends.storage.programs import Programs

log = logging.getLogger(__name__)

PATIENCE_S = 30.0
# Numbers below belong to the distribution's own users (Debian policy 9.2.2: 0-99).
FIRST_PERSON_UID = 100
NOT_PERMITTED = 6
# mkhomedir_helper speaks to syslog only; it ends with a number of PAM (<security/_pam_types.h>).
HELPER_ENDS: Mapping[int, str] = {
    3: "it could not be carried out (PAM_SERVICE_ERR)",
    4: "a system error (PAM_SYSTEM_ERR)",
    5: "no memory (PAM_BUF_ERR)",
    NOT_PERMITTED: "the home or what belongs into it cannot be written (PAM_PERM_DENIED): may root write in the folder "
    "above (NFS: no_root_squash), and is it a folder?",
    10: "the system does not know the user (PAM_USER_UNKNOWN)",
    14: "it does not take the umask (PAM_SESSION_ERR)",
}


class RootNeeded(BackendError):
    """The agent's user may not make homes."""


@dataclass(slots=True)
class HeadNode:
    """This host. Everything that changes something runs under `lock`, one at a time.

    `ask` looks one user up; `patience_s`: after so long a program that hangs (a file system that does not answer) is
    left to itself.
    """

    lock: WriteLock
    programs: Programs = field(default_factory=Programs)
    ask: Lookup = passwd.lookup
    patience_s: float = PATIENCE_S
    runner: Runner = field(default_factory=Runner)

    @property
    def executed(self) -> Counter[str]:
        """Processes started so far by kind."""
        return self.runner.executed

    def commands(self, action: HostAction) -> tuple[str, ...]:
        """The command lines of an action, for people and the journal. Runs nothing."""
        return tuple(shlex.join((self.programs.shown(argv[0]), *argv[1:])) for argv in self._settings(action))

    def apply(self, action: HostAction) -> Outcome:
        """Carry one action out and look at the result.

        The error is a CommandMissing where the program is not on this host, RootNeeded where we may not, and a
        BackendUnavailable where it hangs: these concern more than this user.
        """
        started_s = time.monotonic()
        error: SiteAgentError | None = None
        commands: tuple[str, ...] = ()
        try:
            commands = self.commands(action)
            STEPS[type(action)](self, action)
        except (BackendError, PlanRefused) as refusal:
            error = refusal
        return Outcome(action, error, commands, time.monotonic() - started_s)

    def _make_home(self, action: MakeHome) -> None:
        (argv,) = self._settings(action)
        done = self._write(argv)
        if done.returncode == NOT_PERMITTED and os.geteuid() != 0:
            raise RootNeeded(
                f"`{shlex.join(done.argv)}` ended with {done.returncode}: homes are made with root rights only. Run "
                "the agent as root, or set enable_user_homedir_account_creation to false"
            )
        if done.returncode != 0:
            raise CommandFailed(
                done.argv,
                returncode=done.returncode,
                stdout=done.stdout,
                stderr=done.stderr.strip() or HELPER_ENDS.get(done.returncode, ""),
                retryable=done.returncode < 0,
            )
        if not os.path.isdir(action.path):
            raise NotApplied(f"`{shlex.join(done.argv)}` ended well, yet there is no folder {action.path}")

    def _set_quota(self, action: SetQuota) -> None:
        wanted = quotas.commands(action)
        if action.provider == QuotaProvider.CEPH_XATTR and not _is_own_folder(action.place):
            raise PlanRefused(
                f"{action.place} of {action.user} is not a folder of its own, and setfattr would follow it: "
                "no quota is set. Is homedir_base_path where the homes are?"
            )
        for argv in wanted.settings:
            done = self._write(argv)
            if done.returncode != 0 or (wanted.complains and done.stderr.strip()):
                raise CommandFailed(
                    done.argv, returncode=done.returncode, stdout=done.stdout, stderr=done.stderr
                )
        for check in wanted.checks:
            self._verify(action, check)

    def _verify(self, action: SetQuota, check: quotas.Check) -> None:
        """Another value than the one set is an error; no answer is a warning, for it says nothing."""
        try:
            done = self.runner.read(self._found(check.argv), timeout_s=self.patience_s)
        except BackendError as error:
            log.warning("the quota of %s is set and could not be read back: %s", action.user, error)
            return
        said = done.stdout.strip()
        if done.returncode != 0:
            words = done.stderr.strip() or said
            log.warning(
                "the quota of %s is set and could not be read back: `%s` ended with %s: %s",
                action.user, shlex.join(done.argv), done.returncode, words,
            )  # fmt: skip
        elif check.expected is None:
            log.info("quota of %s on %s: %s", action.user, action.place, " ".join(said.split()))
        elif said != check.expected:
            raise NotApplied(
                f"`{shlex.join(done.argv)}` shows {said[:100]!r} where {check.expected} was set for {action.user}"
            )

    def _settings(self, action: HostAction) -> Sequence[Sequence[str]]:
        return SETTINGS[type(action)](action)

    def _write(self, argv: Sequence[str]) -> Completed:
        return self.runner.write(self._found(argv), self.lock, patience_s=self.patience_s)

    def _found(self, argv: Sequence[str]) -> tuple[str, ...]:
        return (self.programs.find(argv[0]), *argv[1:])


def _home_command(action: MakeHome) -> Sequence[Sequence[str]]:
    if not is_username(action.user):
        raise PlanRefused(f"user name {action.user!r} cannot be used for a home")
    return (("mkhomedir_helper", action.user, action.umask),)


# The commands of each kind of action, and how it is carried out.
SETTINGS: Mapping[type[HostAction], Callable[[Any], Sequence[Sequence[str]]]] = {
    MakeHome: _home_command,
    SetQuota: lambda action: quotas.commands(action).settings,
}
STEPS: Mapping[type[HostAction], Callable[[HeadNode, Any], None]] = {
    MakeHome: HeadNode._make_home,
    SetQuota: HeadNode._set_quota,
}


def look(entry: Entry, base_path: str) -> Home:
    """The home of a user who is known here. Below `base_path` symbolic links are not followed.

    mkhomedir_helper makes the home that the user database names, wherever `base_path` is; it does nothing where
    that exists.
    """
    path = f"{base_path}/{entry.name}" if base_path else entry.home
    trouble = _unfit(entry)
    there = False
    if not trouble:
        try:
            there = _is_folder(path, follow=not base_path) or _is_folder(entry.home, follow=True)
        except OSError as error:
            trouble = f"{path} cannot be the home: {error.strerror or error}"
    return Home(entry.name, path, made_at=entry.home, exists=there, trouble=trouble)


def _unfit(entry: Entry) -> str:
    if entry.uid < FIRST_PERSON_UID:
        return f"uid {entry.uid} belongs to the system itself: its home and quota are left alone"
    parts = entry.home.split("/")
    if not entry.home.startswith("/") or not entry.home.strip("/") or {".", ".."} & set(parts):
        return f"the user database gives {entry.home!r} as its home"
    return ""


def _is_folder(path: str, *, follow: bool) -> bool:
    """False where nothing is. Raises NotADirectoryError where something else stands in the way, OSError otherwise."""
    try:
        mode = os.stat(path, follow_symlinks=follow).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(mode):
        raise NotADirectoryError("it is a symbolic link, which is not followed")
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError("it is not a folder")
    return True


def _is_own_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
