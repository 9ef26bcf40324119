# SPDX-License-Identifier: MIT
"""Home directories in `backend_settings`: umask, base path and quota. No value here stops the agent.

What cannot be used is a warning that `config-check` makes an error: homes are made all the same.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marshmallow import ValidationError

from agent.config.field_types import Several, Text, displayed, needed, whole
from agent.config.findings import Findings, key_path
from agent.config.keys import WrongValue, key, required
from agent.core.homes import HomeQuota, HomeRules, QuotaProvider

if TYPE_CHECKING:
    from agent.config.schema import BackendSettingsKeys

MAX_UMASK = 0o777
OWNER_BITS = 0o700
OTHERS_BITS = 0o077
OTHERS_WRITE = 0o022
DEFAULT_UMASK = 0o077
BASES_KEY = "homedir_bases"
HOMES_KEY = "enable_user_homedir_account_creation"
# They say how homes are made.
HOME_KEYS = ("default_homedir_umask", "homedir_umask", "homedir_base_path", "homedir_quota")
DIRECTORY_KEY = "ldap"
USUAL_BASE = "/home"

UNITS = "kmgtpe"
SIZE = re.compile(rf"[0-9]{{1,19}}[{UNITS}]?", re.IGNORECASE)
MAX_COUNT = 2**63 - 1
OF_USERS: Mapping[str, str] = {
    "block_softlimit": "bsoft",
    "block_hardlimit": "bhard",
    "inode_softlimit": "isoft",
    "inode_hardlimit": "ihard",
}
# Key, and the limit that it sets, in the order of the command line of the provider's tool.
LIMITS: Mapping[QuotaProvider, Mapping[str, str]] = {
    QuotaProvider.CEPH_XATTR: {
        "max_bytes": "ceph.quota.max_bytes",
        "max_files": "ceph.quota.max_files",
    },
    QuotaProvider.XFS: OF_USERS,
    QuotaProvider.LUSTRE: OF_USERS,
}
SOFT_AND_HARD = (("block_softlimit", "block_hardlimit"), ("inode_softlimit", "inode_hardlimit"))
NO_QUOTA = WrongValue(fallback="homes are made without a quota", strictly=True)


# Text only: a bare number means bytes to xfs_quota and KiB to lfs, and YAML would hide which was meant.
SIZE_WANTED = (
    f'write text such as "20g" (units {", ".join(UNITS)}; without one: KiB with lustre, bytes with xfs)'
)
BYTES_WANTED = 'write bytes, or a number with a unit, such as "1T"'


def _size(wanted: str, *, is_name: bool = False, in_digits: bool = False) -> Text:
    """Return the type of a size. `in_digits`: as Ceph answers, whatever unit was written; `1T` is 2**40."""

    def parse(size: str) -> str:
        if not SIZE.fullmatch(size) or _amount(size) > MAX_COUNT:
            raise ValidationError(wanted)
        return str(_amount(size)) if in_digits else size

    return Text(parse, is_name=is_name, error_messages={"invalid": wanted})


def _amount(size: str) -> int:
    """Return a size as a number, in the unit of a bare number."""
    unit = size[-1].lower()
    return int(size) if unit.isdigit() else int(size[:-1]) << 10 * (UNITS.index(unit) + 1)


def folder(place: str) -> str:
    """Return the path of a folder. Raises ValidationError where a text cannot be one here."""
    if not place.startswith("/"):
        raise ValidationError("an absolute path is needed")
    if any(part in (".", "..") for part in place.split("/")) or not place.isprintable():
        raise ValidationError("a path without `.`, `..` and control characters is needed")
    return place


def folder_of_homes(place: str) -> str:
    if place and not folder(place).strip("/"):
        raise ValidationError("the root folder cannot hold homes")
    return place.rstrip("/")


def home_folders() -> Several:
    """Return the type of a list of folders, or of a single one."""
    return Several(Text(lambda place: folder_of_homes(needed(place))), or_one=True)


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class HomeQuotaKeys:
    provider: QuotaProvider = required("`xfs`, `lustre` or `ceph_xattr`")
    mount_point: str = key("", "XFS and Lustre: where the file system is mounted; needed there", of=Text(folder))
    block_softlimit: str = key("", 'XFS and Lustre: such as `"18g"`', of=_size(SIZE_WANTED))
    block_hardlimit: str = key("", 'XFS and Lustre: such as `"20g"`', of=_size(SIZE_WANTED))
    inode_softlimit: int | None = key(None, "XFS and Lustre: files", of=whole(0, MAX_COUNT))
    inode_hardlimit: int | None = key(None, "XFS and Lustre: files", of=whole(0, MAX_COUNT))
    max_bytes: str = key("", 'Ceph: bytes, or such as `"1T"`', of=_size(BYTES_WANTED, is_name=True, in_digits=True))
    max_files: int | None = key(None, "Ceph: files", of=whole(0, MAX_COUNT))
# fmt: on


def read_homes(
    values: BackendSettingsKeys, section: Mapping[Any, Any], path: str, findings: Findings
) -> HomeRules:
    """Return the rules for homes from the checked values of `backend_settings`, which stand at `path`; `section`: all
    that is written there.
    """
    return HomeRules(
        create=values.enable_user_homedir_account_creation,
        umask=f"{_umask(values, path, findings):04o}",
        base_path=values.homedir_base_path,
        quota=_quota(values.homedir_quota, key_path(path, "homedir_quota"), findings),
        bases=home_bases(section) if values.homedir_bases or follows_waldur(section) else (),
    )


def home_bases(settings: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the folders directly below which homes may be, by `backend_settings`: those of `homedir_bases`, else
    `homedir_base_path` and where a directory's users get theirs.
    """
    with suppress(ValidationError):  # of the whole file, and reported there
        if written := settings.get(BASES_KEY):
            return tuple(dict.fromkeys(home_folders().deserialize(written)))
    directory = settings.get(DIRECTORY_KEY)
    usual = directory.get("default_home_base") if isinstance(directory, Mapping) else None
    own = (settings.get("homedir_base_path"), usual or USUAL_BASE)
    usable = [text.rstrip("/") for text in own if isinstance(text, str) and text.strip("/")]
    return tuple(dict.fromkeys(usable)) or (USUAL_BASE,)


def follows_waldur(settings: Mapping[Any, Any]) -> bool:
    """Return whether `backend_settings` want a directory that follows Waldur, also where they cannot be used. Then
    Waldur says where homes are.
    """
    directory = settings.get(DIRECTORY_KEY)
    return isinstance(directory, Mapping) and directory.get("account_source") == "waldur"


def _umask(values: BackendSettingsKeys, path: str, findings: Findings) -> int:
    """`default_homedir_umask` wins over the old `homedir_umask`, which was often written as the mode of the home."""
    key = "homedir_umask" if values.default_homedir_umask is None else "default_homedir_umask"
    written = getattr(values, key)
    if written is None:
        return DEFAULT_UMASK
    asked = MAX_UMASK & ~written if written & OWNER_BITS else written
    safe = int((asked | OTHERS_WRITE) & OTHERS_BITS)
    reasons = []
    if written & OWNER_BITS:
        reasons.append("as a umask would lock owners out of their homes, so it is read as a mode")
    if asked | OTHERS_WRITE != asked:
        reasons.append("would let others than the owner write into homes, which is never given")
    if reasons:
        findings.warn(
            key_path(path, key),
            f'{written:04o} {"; it ".join(reasons)}: write `default_homedir_umask: "{safe:04o}"`',
        )
    return safe


def _quota(values: HomeQuotaKeys | None, path: str, findings: Findings) -> HomeQuota | None:
    """Return the quota of every home; None where there is none, or it cannot be used."""
    if values is None:
        return None
    provider = values.provider
    names = LIMITS[provider]
    written = {each.name: getattr(values, each.name) for each in dataclasses.fields(values)}
    limits = {name: written[name] for name in names if written[name] not in ("", None)}
    unused = (
        {name for name, value in written.items() if value not in ("", None)} - names.keys() - {"provider"}
    )
    if provider is not QuotaProvider.CEPH_XATTR:
        unused -= {"mount_point"}
        if not values.mount_point:
            findings.refuse(key_path(path, "mount_point"), "`mount_point` is missing", NO_QUOTA)
            return None
    for name in sorted(unused):
        findings.warn(key_path(path, name), f"`{name}` has no meaning for {provider}", strict_error=True)
    if not limits:
        findings.refuse(path, f"no limit is set: give one of {', '.join(names)}", NO_QUOTA)
    if not limits or is_out_of_order(limits, path, findings, NO_QUOTA):
        return None
    return HomeQuota(provider, tuple((names[key], str(limits[key])) for key in limits), values.mount_point)


def is_out_of_order(limits: Mapping[str, Any], path: str, findings: Findings, effect: WrongValue) -> bool:
    """Refuse a soft limit above the hard one, and return whether there was one: XFS keeps neither, and says nothing
    (fs/xfs/xfs_qm_syscalls.c).
    """
    for soft, hard in SOFT_AND_HARD:
        low, high = limits.get(soft), limits.get(hard)
        if low is None or high is None:
            continue
        low_amount, high_amount = (v if isinstance(v, int) else _amount(v) for v in (low, high))
        if 0 < high_amount < low_amount:
            sentence = f"`{soft}` is {displayed(low)}, more than `{hard}`, which is {displayed(high)}"
            findings.refuse(key_path(path, soft), sentence, effect)
            return True
    return False
