# SPDX-License-Identifier: MIT
"""Homes in the configuration: no umask that opens them or locks their owner out, and quotas that the tools take."""

from __future__ import annotations

from typing import Any

import pytest

from agent.config.load import LoadResult
from agent.config.model import Severity
from agent.core.homes import HomeQuota, HomeRules, QuotaProvider

from .samples import OFFERING, Site, changed

HERE = "offerings[0].backend_settings"


def load(site: Site, *, strict: bool | None = None, **settings: Any) -> LoadResult:
    offering = changed(OFFERING, "backend_settings", settings)
    return site.load({"offerings": [offering]}, strict=strict)


def rules(loaded: LoadResult) -> HomeRules:
    assert loaded.settings is not None
    return loaded.settings.offerings[0].homes


# Which home a umask makes --------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["homedir_umask", "default_homedir_umask"])
def test_no_value_opens_a_home_to_others_or_locks_its_owner_out(key: str, site: Site) -> None:
    values = [f"{value:04o}" for value in range(0o1000)]
    settings = site.load(
        {"offerings": [changed(OFFERING, "backend_settings", {key: each}) for each in values]}
    ).settings
    assert settings is not None
    for value, offering in zip(values, settings.offerings, strict=True):
        made = 0o777 & ~int(offering.homes.umask, 8)
        assert made & 0o700 == 0o700, value
        assert made & 0o022 == 0, value


@pytest.mark.parametrize(
    ("settings", "umask"),
    [
        ({}, "0077"),
        ({"default_homedir_umask": "0022"}, "0022"),
        ({"default_homedir_umask": "0027"}, "0027"),
        ({"default_homedir_umask": "0700"}, "0077"),
        ({"homedir_umask": "0700"}, "0077"),
        ({"homedir_umask": "0750"}, "0027"),
        ({"homedir_umask": "0755"}, "0022"),
        ({"homedir_umask": "0777"}, "0022"),
        ({"homedir_umask": "0500"}, "0077"),
        ({"homedir_umask": "0000"}, "0022"),
        ({"homedir_umask": "0007"}, "0027"),
        ({"default_homedir_umask": "0070"}, "0072"),
        ({"default_homedir_umask": "0027", "homedir_umask": "0777"}, "0027"),
    ],
    ids=str,
)
def test_the_umask_that_is_meant(settings: dict[str, str], umask: str, site: Site) -> None:
    assert rules(load(site, **settings)).umask == umask


@pytest.mark.parametrize(
    ("settings", "place", "sentences"),
    [
        ({"homedir_umask": "0700"}, "homedir_umask", ["0700 as a umask would lock owners", 'umask: "0077"`']),
        ({"homedir_umask": "0777"}, "homedir_umask", ["read as a mode", "never given", 'umask: "0022"`']),
        ({"default_homedir_umask": "0002"}, "default_homedir_umask", ["never given", 'umask: "0022"`']),
    ],
    ids=str,
)
def test_a_changed_umask_is_reported_once(
    settings: dict[str, str], place: str, sentences: list[str], site: Site
) -> None:
    (problem,) = load(site, **settings).problems
    assert (problem.severity, problem.path) == (Severity.WARNING, f"{HERE}.{place}")
    assert all(sentence in problem.message for sentence in sentences), problem.message


@pytest.mark.parametrize(
    "settings",
    [
        {"default_homedir_umask": "0077", "homedir_umask": "0700"},
        {"homedir_umask": "0027"},
        {"homedir_umask": "0022"},
    ],
    ids=str,
)
def test_a_good_umask_needs_no_words(settings: dict[str, str], site: Site) -> None:
    assert load(site, **settings).problems == ()


# Where homes are -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("written", "meant"), [("/srv/home/", "/srv/home"), ("/home", "/home"), ("", "")])
def test_base_path(written: str, meant: str, site: Site) -> None:
    loaded = load(site, homedir_base_path=written)
    assert (rules(loaded).base_path, loaded.problems) == (meant, ())


@pytest.mark.parametrize("written", ["home", "/srv/../etc", "/srv/./home", "/", "//", "/srv/\nhome"])
def test_a_base_path_that_leads_elsewhere_is_not_used(written: str, site: Site) -> None:
    loaded = load(site, homedir_base_path=written)
    assert rules(loaded).base_path == ""
    (problem,) = loaded.problems
    assert problem.path == f"{HERE}.homedir_base_path"
    assert load(site, strict=True, homedir_base_path=written).settings is None


# Quotas --------------------------------------------------------------------------------------------

XFS, LUSTRE, CEPH = QuotaProvider.XFS, QuotaProvider.LUSTRE, QuotaProvider.CEPH_XATTR
QUOTAS: list[tuple[dict[str, Any], HomeQuota | None]] = [
    ({}, None),
    ({"provider": "ceph_xattr", "max_bytes": "1T"}, HomeQuota(CEPH, (("ceph.quota.max_bytes", str(2**40)),))),
    (
        {"max_files": 5, "provider": "ceph_xattr", "max_bytes": "1099511627776"},
        HomeQuota(CEPH, (("ceph.quota.max_bytes", "1099511627776"), ("ceph.quota.max_files", "5"))),
    ),
    ({"provider": "ceph_xattr", "max_bytes": 7}, HomeQuota(CEPH, (("ceph.quota.max_bytes", "7"),))),
    (
        {"provider": "xfs", "mount_point": "/", "inode_hardlimit": 9, "inode_softlimit": 9,
         "block_hardlimit": "20G", "block_softlimit": "1024"},
        HomeQuota(XFS, (("bsoft", "1024"), ("bhard", "20G"), ("isoft", "9"), ("ihard", "9")), "/"),
    ),
    (
        {"provider": "lustre", "mount_point": "/lustre", "block_hardlimit": "300000", "max_bytes": None},
        HomeQuota(LUSTRE, (("bhard", "300000"),), "/lustre"),
    ),
    (
        {"provider": "xfs", "mount_point": "/home", "block_softlimit": "5g", "block_hardlimit": "0"},
        HomeQuota(XFS, (("bsoft", "5g"), ("bhard", "0")), "/home"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), QUOTAS, ids=str)
def test_a_quota_in_the_words_of_its_tool(
    written: dict[str, Any], meant: HomeQuota | None, site: Site
) -> None:
    loaded = load(site, homedir_quota=written)
    assert (rules(loaded).quota, loaded.problems) == (meant, ())


X = {"provider": "xfs", "mount_point": "/home", "block_hardlimit": "20g"}
C = {"provider": "ceph_xattr", "max_bytes": "1T"}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"max_bytes": "1T"}, ".provider", "`provider` is missing"),
    ({**X, "provider": "zfs"}, ".provider", "use one of ceph_xattr, xfs, lustre"),
    ({**X, "block_hard": "1g"}, ".block_hard", "did you mean 'block_hardlimit'?"),
    ({**X, "mount_point": None}, ".mount_point", "`mount_point` is missing"),
    ({**X, "mount_point": "home"}, ".mount_point", "an absolute path is needed"),
    ({**X, "mount_point": "/home/../etc"}, ".mount_point", "without `.`, `..`"),
    ({**X, "block_hardlimit": 20}, ".block_hardlimit", 'is 20; write text such as "20g"'),
    ({**X, "block_hardlimit": "20 GB"}, ".block_hardlimit", "write text"),
    ({**X, "block_hardlimit": "20g ihard=1"}, ".block_hardlimit", "write text"),
    ({**X, "block_hardlimit": "-1"}, ".block_hardlimit", "write text"),
    ({**X, "block_hardlimit": "9999999999999999e"}, ".block_hardlimit", "write text"),
    ({**X, "provider": "lustre", "block_hardlimit": "1.5t"}, ".block_hardlimit", "without one: KiB"),
    ({**X, "inode_softlimit": "many"}, ".inode_softlimit", "use a whole number from 0"),
    ({**X, "inode_softlimit": -1}, ".inode_softlimit", "use a whole number from 0"),
    ({**X, "block_softlimit": "21g"}, ".block_softlimit", "more than `block_hardlimit`, which is '20g'"),
    ({**X, "inode_softlimit": 3, "inode_hardlimit": 2}, ".inode_softlimit", "more than `inode_hardlimit`"),
    ({"provider": "xfs", "mount_point": "/home"}, "", "no limit is set: give one of block_softlimit"),
    ({"provider": "ceph_xattr"}, "", "no limit is set: give one of max_bytes, max_files"),
    ({**C, "max_bytes": "a lot"}, ".max_bytes", 'such as "1T"'),
    ({**C, "max_bytes": True}, ".max_bytes", 'such as "1T"'),
    ({**C, "max_files": "1T"}, ".max_files", "use a whole number from 0"),
]


@pytest.mark.parametrize(("written", "place", "sentence"), REFUSED, ids=str)
def test_a_quota_that_cannot_be_used_stops_no_home(
    written: dict[str, Any], place: str, sentence: str, site: Site
) -> None:
    loaded = load(site, homedir_quota=written)
    assert rules(loaded) == HomeRules()
    (problem,) = loaded.problems
    assert (problem.severity, problem.path) == (Severity.WARNING, f"{HERE}.homedir_quota{place}")
    assert sentence in problem.message
    assert problem.message.endswith("; until then homes are made without a quota")
    checked = load(site, strict=True, homedir_quota=written)
    assert checked.settings is None
    assert [p.severity for p in checked.problems] == [Severity.ERROR]


def test_a_limit_of_another_provider_is_reported_and_the_rest_is_used(site: Site) -> None:
    loaded = load(site, homedir_quota={**X, "max_bytes": "1T"})
    assert rules(loaded).quota == HomeQuota(XFS, (("bhard", "20g"),), "/home")
    (problem,) = loaded.problems
    assert problem.path == f"{HERE}.homedir_quota.max_bytes"
    assert "has no meaning for xfs" in problem.message


# Where homes may be --------------------------------------------------------------------------------

FOLLOWED = {"ldap": {"account_source": "waldur"}}


@pytest.mark.parametrize(
    ("settings", "bases"),
    [
        ({}, ()),
        ({"homedir_base_path": "/data"}, ()),
        ({"ldap": {"account_source": "ldap"}}, ()),
        ({"homedir_bases": ["/home/", "/data/home", "/home"]}, ("/home", "/data/home")),
        ({"homedir_bases": "/home"}, ("/home",)),
        (FOLLOWED, ("/home",)),
        ({**FOLLOWED, "homedir_base_path": "/data/"}, ("/data", "/home")),
        ({"ldap": {**FOLLOWED["ldap"], "default_home_base": "/cfs/home/"}}, ("/cfs/home",)),
        ({"ldap": {**FOLLOWED["ldap"], "default_home_base": "/"}}, ("/home",)),
        ({**FOLLOWED, "homedir_base_path": "/data", "homedir_bases": ["/x"]}, ("/x",)),
    ],
    ids=str,
)
def test_homes_are_below_the_bases_that_are_written_or_where_the_directory_has_them(
    settings: dict[str, Any], bases: tuple[str, ...], site: Site
) -> None:
    assert rules(load(site, **settings)).bases == bases


@pytest.mark.parametrize("written", [["home"], ["/"], ["/home", "/etc/../home"], [5], {"a": 1}], ids=repr)
def test_a_base_that_is_none_is_an_error_of_the_file(written: Any, site: Site) -> None:
    loaded = load(site, homedir_bases=written, **FOLLOWED)
    assert loaded.settings is None
    place = f"{HERE}.homedir_bases"
    place += f"[{len(written) - 1}]" if isinstance(written, list) else ""
    assert [p.path for p in loaded.problems if p.severity is Severity.ERROR] == [place]
