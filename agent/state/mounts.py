# SPDX-License-Identifier: MIT
"""Is a folder on a network file system? SQLite's locks and shared memory do not work there between hosts.

Read from the kernel's list of mounts. Where there is none (no Linux) nothing is said.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
NETWORK = frozenset({
    "nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "smb2", "ncpfs", "9p", "afs", "coda", "davfs",
    "lustre", "gpfs", "beegfs", "fhgfs", "ceph", "glusterfs", "panfs", "pvfs2", "orangefs", "wekafs", "daos",
    "gfs", "gfs2", "ocfs2", "quobyte", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "acfs", "cvmfs2",
})  # fmt: skip
# FUSE names its program after the dot.
NETWORK_FUSE = re.compile(
    r"fuse\.(sshfs|glusterfs|ceph|davfs|s3fs|goofys|rclone|gcsfuse|juicefs|quobyte|moosefs|mfs|lizardfs|saunafs|"
    r"beegfs|cvmfs|curlftpfs|smbnetfs|dfuse|pvfs2|seaweedfs|blobfuse2?|nfs|vmhgfs).*"
)
ESCAPED = re.compile(r"\\([0-7]{3})")


def network_type(folder: Path) -> str:
    """Return the type of the network file system that the folder is on, or will be; empty for a local one."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    try:
        device = os.stat(folder).st_dev
    except OSError:  # it is not there yet
        found = type_of(Path(os.path.realpath(folder)), mounts)
    else:
        seen = _seen(mounts)  # kept here: another thread may see other mounts meanwhile
        if device not in seen:
            seen[device] = type_of(Path(os.path.realpath(folder)), mounts)
        found = seen[device]
    return found if found in NETWORK or NETWORK_FUSE.fullmatch(found) else ""


@lru_cache(maxsize=1)
def _seen(mounts: str) -> dict[int, str]:
    """Return the types by device, which stay for as long as these are the mounts: a pass asks hundreds of times."""
    del mounts
    return {}


def type_of(place: Path, mounts: str) -> str:
    """Return the type of the file system that holds an absolute path, given a text like /proc/self/mounts.

    The longest mount point wins; of two on one point the later one, which lies on top.
    """
    best, found = -1, ""
    for line in mounts.split("\n"):
        words = line.split(" ")
        if len(words) < 3:
            continue
        point = ESCAPED.sub(lambda match: chr(int(match[1], 8)), words[1]).rstrip("/")
        if len(point) >= best and f"{place}/".startswith(f"{point}/"):
            best, found = len(point), words[2]
    return found
