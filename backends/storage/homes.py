# SPDX-License-Identifier: MIT
"""The head node: which homes there are, the programs that make homes and set quotas, and project directories.

They run on this host and never behind `command_prefix`: that leads to the SLURM commands (`docker exec slurmctld`),
while homes belong to the host where people log in and their names are looked up. Root rights are needed.
"""

from __future__ import annotations

import logging
import os
import shlex
import stat
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from agent.core.errors import (
    BackendError,
    CommandFailed,
    NotApplied,
    ParseError,
    PlanRefused,
    SiteAgentError,
)
from agent.core.homes import Home, HomeRules, QuotaProvider, home_problem, is_home, is_username
from agent.core.host_actions import (
    HostAction,
    MakeHome,
    MakeProjectDirectory,
    SetProjectQuota,
    SetQuota,
)
from agent.core.plans import Outcome
from agent.core.system_users import FIRST_PERSON, SYSTEM_USERS, is_system_number
from backends.lock import WriteLock
from backends.process import Completed, Runner
from backends.storage import directories, passwd, project_quotas, quotas
from backends.storage.passwd import Lookup, PasswdEntry
from backends.storage.programs import Programs

log = logging.getLogger(__name__)

LEAVE_AFTER_S = 30.0
NOT_PERMITTED = 6
# mkhomedir_helper writes to syslog only; its exit code is a number of PAM (<security/_pam_types.h>).
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
    """This host."""

    # Everything that changes something runs under it, one at a time.
    lock: WriteLock
    programs: Programs = field(default_factory=Programs)
    # Looks one user up.
    lookup: Lookup = passwd.lookup
    # After this a program that hangs (a file system that does not respond) is left to itself.
    leave_after_s: float = LEAVE_AFTER_S
    runner: Runner = field(default_factory=Runner)

    @property
    def executed(self) -> Counter[str]:
        """Processes started so far by kind (`read`, `write`)."""
        return self.runner.executed

    def commands(self, action: HostAction) -> tuple[str, ...]:
        """Return the command lines of an action, for people and the journal. Runs nothing.

        Raises PlanRefused for a name or a place that must not reach a tool.
        """
        match action:
            case MakeHome():
                argvs: Sequence[Sequence[str]] = (_home_argv(action),)
            case SetQuota():
                argvs = quotas.commands(action).settings
            case MakeProjectDirectory():
                # Made by calls of the system, without a program.
                argvs = (project_quotas.tag(action.path, action.project_id),) if action.project_id else ()
            case SetProjectQuota():
                argvs = (project_quotas.settings(action),)
            case _:
                raise PlanRefused(f"the head node cannot {action.verb}")
        return tuple(shlex.join((self.programs.name_to_print(argv[0]), *argv[1:])) for argv in argvs)

    def apply(self, action: HostAction) -> Outcome:
        """Carry one action out and check the result.

        The error is CommandMissing where the program is not on this host, RootNeeded where we may not run it, and
        BackendUnavailable where it hangs: these concern more than this user.
        """
        started_s = time.monotonic()
        error: SiteAgentError | None = None
        commands: tuple[str, ...] = ()
        try:
            commands = self.commands(action)
            match action:
                case MakeHome():
                    self._make_home(action)
                case SetQuota():
                    self._set_quota(action)
                case MakeProjectDirectory():
                    tag = partial(self._tag, action.project_id) if action.project_id else None
                    directories.make(action, self.lookup, tag)
                case SetProjectQuota():
                    self._set_project_quota(action)
                case _:
                    raise PlanRefused(f"the head node cannot {action.verb}")
        except (BackendError, PlanRefused) as refusal:
            error = refusal
        return Outcome(action, error, commands, time.monotonic() - started_s)

    def project_limits(
        self, project_id: int, mount_point: str, *, of_group: bool = False
    ) -> tuple[tuple[str, str], ...]:
        """Return the Lustre quota that a project, or group, has now, as in `SetProjectQuota`. Raises BackendError."""
        said = self._read(project_quotas.show(project_id, mount_point, of_group=of_group))
        limits = project_quotas.limits_of(said)
        if limits is None:
            raise ParseError("lfs quota", said, "no limits")
        return tuple(limits.items())

    def _make_home(self, action: MakeHome) -> None:
        """Raise PlanRefused where the user database names another home by now than the one that was planned."""
        entry = self.lookup(action.user)
        if entry is None or entry.home != action.path:
            now = f"gives {entry.home!r}" if entry else "does not know the user"
            raise PlanRefused(f"{action.path} of {action.user} is not made: the user database {now} now")
        done = self._write(_home_argv(action))
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
                f"{action.place} of {action.user} is not a folder of its own, and setfattr does not follow it: "
                "no quota is set. Is homedir_base_path where the homes are?"
            )
        for argv in wanted.settings:
            done = self._write(argv)
            if done.returncode != 0 or (wanted.stderr_means_failure and done.stderr.strip()):
                raise CommandFailed(
                    done.argv, returncode=done.returncode, stdout=done.stdout, stderr=done.stderr
                )
        for check in wanted.checks:
            self._verify(action, check)

    def _verify(self, action: SetQuota, check: quotas.Check) -> None:
        """Read the quota back. Another value is an error; a failed read is a warning, for it proves nothing."""
        try:
            done = self.runner.read(self._found(check.argv), timeout_s=self.leave_after_s)
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

    def _tag(self, project_id: int, path: str) -> None:
        if not _is_own_folder(path):
            raise PlanRefused(
                f"{path} is not a folder of its own, and lfs would follow it: it gets no project id"
            )
        self._checked(project_quotas.tag(path, project_id))

    def _set_project_quota(self, action: SetProjectQuota) -> None:
        """Limit a project, or group, where the directory is of it: another id is another one's quota."""
        if action.of_group:
            self._require_group(action)
        else:
            self._require_tag(action)
        self._checked(project_quotas.settings(action))
        said = self._read(
            project_quotas.show(action.project_id, action.mount_point, of_group=action.of_group)
        )
        wrong = project_quotas.differences(said, action.limits)
        if wrong is None:
            log.warning("the quota of %s is set and could not be read back: %r", action.path, said[:100])
        elif wrong:
            raise NotApplied(f"lfs took the quota of {action.path}, and shows that {'; '.join(wrong)}")

    def _require_group(self, action: SetProjectQuota) -> None:
        try:
            gid = os.stat(action.path, follow_symlinks=False).st_gid
        except OSError as error:
            raise PlanRefused(f"{action.path} cannot be looked at: {error.strerror}") from error
        if gid != action.project_id:
            raise PlanRefused(
                f"{action.path} belongs to the group {gid}, and {action.project_id} is that of its account: no quota "
                f"is set. If the directory is the project's, run "
                f"`chgrp -R {action.project_id} {shlex.quote(action.path)}`"
            )

    def _require_tag(self, action: SetProjectQuota) -> None:
        said = self._read(project_quotas.show_tag(action.path))
        tag = project_quotas.tag_of(said)
        if tag is None:
            raise ParseError("lfs project -d", said, "no project id")
        if tag != action.project_id:
            raise PlanRefused(
                f"{action.path} has the project id {tag}, and {action.project_id} belongs to its group: its quota is "
                f"left alone. If the directory is the project's, run "
                f"`{shlex.join(project_quotas.tag(action.path, action.project_id))}`"
            )

    def _checked(self, argv: Sequence[str]) -> None:
        _require_success(self._write(argv))

    def _read(self, argv: Sequence[str]) -> str:
        return _require_success(self.runner.read(self._found(argv), timeout_s=self.leave_after_s)).stdout

    def _write(self, argv: Sequence[str]) -> Completed:
        return self.runner.write(self._found(argv), self.lock, leave_after_s=self.leave_after_s)

    def _found(self, argv: Sequence[str]) -> tuple[str, ...]:
        return (self.programs.find(argv[0]), *argv[1:])


def _require_success(done: Completed) -> Completed:
    if done.returncode != 0:
        raise CommandFailed(done.argv, returncode=done.returncode, stdout=done.stdout, stderr=done.stderr)
    return done


def _home_argv(action: MakeHome) -> Sequence[str]:
    if not is_username(action.user):
        raise PlanRefused(f"user name {action.user!r} cannot be used for a home")
    return ("mkhomedir_helper", action.user, action.umask)


def observe_home(entry: PasswdEntry, rules: HomeRules) -> Home:
    """Return the home of a user who is known here. Below `base_path` symbolic links are not followed.

    mkhomedir_helper makes the home that the user database names, wherever `base_path` is; it does nothing where
    that exists.
    """
    base_path = rules.base_path
    path = f"{base_path}/{entry.name}" if base_path else entry.home
    trouble, exists = "", False
    if is_system_number(entry.uid) or entry.name in SYSTEM_USERS:
        trouble = (
            f"uid {entry.uid} belongs to the system itself (people have {FIRST_PERSON} and above): its home and quota "
            "are left alone"
        )
    elif not is_home(entry.home):
        trouble = f"the user database gives {entry.home!r} as its home"
    else:
        try:
            exists = _is_folder(path, follow=not base_path) or _is_folder(entry.home, follow=True)
        except OSError as error:
            trouble = f"{path} cannot be the home: {error.strerror or error}"
        has_quota = rules.quota is not None and rules.quota.provider is QuotaProvider.CEPH_XATTR
        # Of a home that is there root changes its quota only, where that is the folder's own.
        acted_on = "" if trouble else entry.home if not exists else path if has_quota else ""
        if acted_on and (problem := home_problem(acted_on, rules.bases)):
            trouble = f"its home is {acted_on!r}, and {problem}"
    return Home(entry.name, path, made_at=entry.home, exists=exists, trouble=trouble)


def _is_folder(path: str, *, follow: bool) -> bool:
    """Whether a folder is there; False where nothing is. Raises NotADirectoryError for anything else, OSError."""
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
