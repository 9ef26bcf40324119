# SPDX-License-Identifier: MIT
"""Project directories on this host: reads which there are, makes one complete before it has its name.

Everything below `base_path` is opened through a descriptor of that folder and follows no symbolic link. Nothing that
stands there is changed, renamed or deleted. ACLs are written as the kernel keeps them (linux/posix_acl_xattr.h), so no
setfacl is needed.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from agent.core.errors import BackendError, BackendUnavailable, PlanRefused
from agent.core.host_actions import MakeProjectDirectory
from agent.core.project_directories import is_directory_name
from backends.storage import passwd
from backends.storage.passwd import Lookup

log = logging.getLogger(__name__)

OTHERS_WRITE = 0o022
# Names of folders that are being made: no account begins with a dot.
UNFINISHED = ".{}.new"
ACL_VERSION = 2
ACL_USER, ACL_OWNING_GROUP, ACL_GROUP, ACL_MASK, ACL_OTHER = 0x01, 0x04, 0x08, 0x10, 0x20
NO_ID = 0xFFFFFFFF
ACCESS_ACL, DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"


class DirectoriesUnusable(BackendError):
    """No project directory can be made on this host."""

    of_host = True


def taken_places(base_path: str, accounts: Iterable[str]) -> Mapping[str, str]:
    """Return the accounts whose place is taken: empty text for a folder, else why not. Raises BackendError."""
    found = {}
    with _opened(base_path) as base:
        for account in accounts:
            try:
                mode = os.stat(account, dir_fd=base, follow_symlinks=False).st_mode
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _unavailable(f"{base_path}/{account}", error) from error
            words = (
                "it is a symbolic link, which is not followed" if stat.S_ISLNK(mode) else "it is no folder"
            )
            found[account] = "" if stat.S_ISDIR(mode) else words
    return found


def is_empty(base_path: str, account: str) -> bool:
    """Return whether a project directory holds nothing; False where that cannot be read. Raises BackendError."""
    try:
        with _opened(base_path) as base:
            folder = os.open(account, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=base)
            try:
                with os.scandir(folder) as entries:
                    return next(entries, None) is None
            finally:
                os.close(folder)
    except PermissionError:
        return False
    except OSError as error:
        raise _unavailable(f"{base_path}/{account}", error) from error


def make(
    action: MakeProjectDirectory, look_up: Lookup = passwd.lookup, tag: Callable[[str], None] | None = None
) -> None:
    """Make a project directory. `tag` gets the path of the unfinished one, to give it its project id.

    What a crash left unfinished is taken up again. Raises PlanRefused for a name that cannot be used and for an owner
    who is not there, BackendError.
    """
    base_path, _, name = action.path.rpartition("/")
    if name != action.account or not is_directory_name(name):
        raise PlanRefused(f"account name {action.account!r} cannot be used for a project directory")
    owner = look_up(action.owner)
    if owner is None:
        raise PlanRefused(f"project_directory.owner: this head node knows no user {action.owner!r}")
    unfinished = UNFINISHED.format(name)
    try:
        with _opened(base_path) as base:
            if _is_there(name, base):
                return
            if not _is_there(unfinished, base):
                os.mkdir(unfinished, 0o700, dir_fd=base)
            folder = os.open(unfinished, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=base)
            try:
                if os.listdir(folder):
                    raise PlanRefused(f"{base_path}/{unfinished} is not empty: look at it, and remove it")
                os.fchown(folder, owner.uid, action.gid)
                os.fchmod(folder, int(action.mode, 8))
                if action.has_acl:
                    _give_group(folder, action)
                if tag is not None:
                    tag(f"{base_path}/{unfinished}")
            finally:
                os.close(folder)
            os.rename(unfinished, name, src_dir_fd=base, dst_dir_fd=base)
    except PermissionError as error:
        raise DirectoriesUnusable(
            f"{action.path} cannot be made: {error.strerror}. Project directories are made with root rights only: run "
            "the agent as root, and may root write there (NFS: no_root_squash)?"
        ) from error
    except OSError as error:
        raise _unavailable(action.path, error) from error


@contextmanager
def _opened(base_path: str) -> Iterator[int]:
    """Open the folder of all project directories. Raises DirectoriesUnusable where others may rename what is in it."""
    try:
        base = os.open(base_path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DirectoriesUnusable(
            f"project_directory.base_path {base_path} is no folder on this head node: is its file system mounted?"
        ) from error
    except OSError as error:
        raise _unavailable(base_path, error) from error
    try:
        seen = os.fstat(base)
        if seen.st_uid not in (0, os.geteuid()) or seen.st_mode & OTHERS_WRITE:
            raise DirectoriesUnusable(
                f"project_directory.base_path {base_path} belongs to user {seen.st_uid} with mode "
                f"{stat.S_IMODE(seen.st_mode):04o}: it must belong to root, and no other user may write there"
            )
        yield base
    finally:
        os.close(base)


def _is_there(name: str, base: int) -> bool:
    try:
        os.stat(name, dir_fd=base, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _give_group(folder: int, action: MakeProjectDirectory) -> None:
    """Let the group read and write all that will be made below, whatever umask its members have."""
    mode = int(action.mode, 8)
    entries = (
        (ACL_USER, mode >> 6 & 7, NO_ID),
        (ACL_OWNING_GROUP, mode >> 3 & 7, NO_ID),
        (ACL_GROUP, 7, action.gid),
        (ACL_MASK, 7, NO_ID),
        (ACL_OTHER, mode & 7, NO_ID),
    )
    written = struct.pack("<I", ACL_VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        for name in (ACCESS_ACL, DEFAULT_ACL):
            os.setxattr(folder, name, written)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        log.warning("%s is made without an ACL: its file system has none (set_acl: false)", action.path)


def _unavailable(path: str, error: OSError) -> BackendError:
    kind = DirectoriesUnusable if isinstance(error, PermissionError) else BackendUnavailable
    return kind(f"{path}: {error.strerror or error}")
