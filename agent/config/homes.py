# SPDX-License-Identifier: MIT
"""Read the home directories of `backend_settings`: umask, base path and quota. No value here stops the agent.

What cannot be used is left out with a warning that `config-check` makes an error: homes are made all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from marshmallow import ValidationError

from agent.config import field_types
from agent.config.field_types import MAX_UMASK, shown
from agent.config.findings import Findings, below, key_name, unknown_keys
from agent.config.refusals import Refusals
from agent.core.homes import HomeQuota, HomeRules, QuotaProvider

OWNER_BITS = 0o700
OTHERS_BITS = 0o077
OTHERS_WRITE = 0o022
DEFAULT_UMASK = 0o077
BASES_KEY = "homedir_bases"
DIRECTORY_KEY = "ldap"
USUAL_BASE = "/home"

UNITS = "kmgtpe"
SIZE = re.compile(rf"[0-9]{{1,19}}[{UNITS}]?", re.IGNORECASE)
MAX_COUNT = 2**63 - 1
COMMON_KEYS = ("provider", "mount_point")
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
QUOTA_KEYS = frozenset({*COMMON_KEYS, *(key for limits in LIMITS.values() for key in limits)})
SOFT_AND_HARD = (("block_softlimit", "block_hardlimit"), ("inode_softlimit", "inode_hardlimit"))


def read_homes(
    values: Mapping[str, Any], section: Mapping[Any, Any], path: str, findings: Findings
) -> HomeRules:
    """Return the rules for homes from the checked values of `backend_settings`, which stand at `path`; `section`: all
    that is written there.
    """
    base_path = values["homedir_base_path"]
    problem = not_a_folder(base_path) if base_path else ""
    if base_path and not base_path.strip("/"):
        problem = "the root folder cannot hold homes"
    if problem:
        findings.warn(
            below(path, "homedir_base_path"),
            f"`homedir_base_path` is {shown(base_path)}; {problem}. "
            "Homes are made where the system's user database says",
            strict_error=True,
        )
        base_path = ""
    return HomeRules(
        create=values["enable_user_homedir_account_creation"],
        umask=f"{_umask(values, path, findings):04o}",
        base_path=base_path.rstrip("/"),
        quota=_quota(values["homedir_quota"], below(path, "homedir_quota"), findings),
        bases=home_bases(section) if values["homedir_bases"] or _follows_waldur(section) else (),
    )


def home_bases(settings: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the folders directly below which homes may be, by `backend_settings`: those of `homedir_bases`, else
    `homedir_base_path` and where a directory's users get theirs.
    """
    with suppress(ValidationError):  # of the whole file, and told there
        if written := settings.get(BASES_KEY):
            return home_folders(written)
    directory = settings.get(DIRECTORY_KEY)
    usual = directory.get("default_home_base") if isinstance(directory, Mapping) else None
    own = (settings.get("homedir_base_path"), usual or USUAL_BASE)
    usable = [text.rstrip("/") for text in own if isinstance(text, str) and text.strip("/")]
    return tuple(dict.fromkeys(usable)) or (USUAL_BASE,)


def home_folders(value: Any) -> tuple[str, ...]:
    """Return the folders of a list, or a single one. Raises ValidationError."""
    found = tuple(folder(each) for each in (value if isinstance(value, list | tuple) else [value]))
    if not all(each.strip("/") for each in found):
        raise ValidationError("the root folder cannot hold homes")
    return tuple(dict.fromkeys(each.rstrip("/") for each in found))


def _follows_waldur(settings: Mapping[Any, Any]) -> bool:
    """Return whether Waldur says where homes are: its users are those of the site's directory."""
    directory = settings.get(DIRECTORY_KEY)
    return isinstance(directory, Mapping) and directory.get("account_source") == "waldur"


def _umask(values: Mapping[str, Any], path: str, findings: Findings) -> int:
    """`default_homedir_umask` wins over the old `homedir_umask`, which was often written as the mode of the home."""
    key = "homedir_umask" if values["default_homedir_umask"] is None else "default_homedir_umask"
    written = values[key]
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
            below(path, key),
            f'{written:04o} {"; it ".join(reasons)}: write `default_homedir_umask: "{safe:04o}"`',
        )
    return safe


def _quota(section: Mapping[Any, Any], path: str, findings: Findings) -> HomeQuota | None:
    """Return the quota of every home; None where there is none, or it cannot be used."""
    given = {key_name(name): value for name, value in section.items() if value is not None}
    if not given:
        return None
    refused = Refusals(path, findings, "Homes are made without a quota")
    provider = refused.read(given, "provider", field_types.choice(*QuotaProvider), needed=True)
    for problem in unknown_keys(section, QUOTA_KEYS, path):
        refused.add(problem.path.removeprefix(f"{path}."), problem.message)
    if provider is None:
        return None
    provider = QuotaProvider(provider)
    names = LIMITS[provider]
    limits: dict[str, Any] = {}
    for key in names:
        if key in given:
            kind: Callable[[Any], Any] = field_types.whole(0, MAX_COUNT)
            if key == "max_bytes":
                kind = _bytes
            elif key.startswith("block_"):
                kind = _size_for(provider)
            limits[key] = refused.read(given, key, kind)
    mount_point = ""
    unused = given.keys() & QUOTA_KEYS - names.keys() - {"provider"}
    if provider is not QuotaProvider.CEPH_XATTR:
        mount_point = refused.read(given, "mount_point", folder, needed=True) or ""
        unused -= {"mount_point"}
    for key in sorted(unused):
        findings.warn(below(path, key), f"`{key}` has no meaning for {provider}", strict_error=True)
    check_order(limits, refused)
    if not limits:
        refused.add("", f"no limit is set: give one of {', '.join(names)}")
    if refused.any:
        return None
    return HomeQuota(provider, tuple((names[key], str(limits[key])) for key in limits), mount_point)


def _bytes(value: Any) -> str:
    """Bytes as digits: Ceph answers so, whatever unit was written. `1T` is 2**40."""
    size = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not _is_size(size):
        raise ValidationError(f'is {shown(value)}; write bytes, or a number with a unit, such as "1T"')
    return str(_amount(size.strip()))


def _size_for(provider: QuotaProvider) -> Callable[[Any], str]:
    """Text only: a bare number means bytes to xfs_quota and KiB to lfs, and YAML would hide which was meant."""
    bare = "bytes" if provider is QuotaProvider.XFS else "KiB"

    def size(value: Any) -> str:
        if not _is_size(value):
            raise ValidationError(
                f'is {shown(value)}; write text such as "20g" (units {", ".join(UNITS)}; without one: {bare})'
            )
        return str(value).strip()

    return size


def _is_size(value: Any) -> bool:
    return (
        isinstance(value, str)
        and SIZE.fullmatch(value.strip()) is not None
        and _amount(value.strip()) <= MAX_COUNT
    )


def _amount(size: str) -> int:
    """A size as a number, in the unit of a bare number."""
    unit = size[-1].lower()
    return int(size) if unit.isdigit() else int(size[:-1]) << 10 * (UNITS.index(unit) + 1)


def check_order(limits: Mapping[str, Any], refused: Refusals) -> None:
    """Refuse a soft limit above the hard one: XFS keeps neither, and says nothing (fs/xfs/xfs_qm_syscalls.c)."""
    for soft, hard in SOFT_AND_HARD:
        low, high = limits.get(soft), limits.get(hard)
        if low is None or high is None or refused.any:
            continue
        low_amount, high_amount = (v if isinstance(v, int) else _amount(v) for v in (low, high))
        if 0 < high_amount < low_amount:
            refused.add(soft, f"`{soft}` is {shown(low)}, more than `{hard}`, which is {shown(high)}")


def folder(value: Any) -> str:
    place = field_types.text(value)
    problem = not_a_folder(place)
    if problem:
        raise ValidationError(f"is {shown(value)}; {problem}")
    return place


def not_a_folder(place: str) -> str:
    """Return why a text cannot be the path of a folder here; empty when it can."""
    if not place.startswith("/"):
        return "an absolute path is needed"
    if any(part in (".", "..") for part in place.split("/")) or not place.isprintable():
        return "a path without `.`, `..` and control characters is needed"
    return ""
