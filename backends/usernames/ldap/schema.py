# SPDX-License-Identifier: MIT
"""The keys of `backend_settings.ldap`: the reference's names, meanings and defaults, and a few of ours for TLS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from marshmallow import ValidationError

from agent.config.field_types import Several, Text, choice, needed, number, whole
from agent.config.findings import Findings, has_errors, key_path, without_effect
from agent.config.homes import home_bases
from agent.config.keys import key, required
from agent.config.reading import read
from agent.config.secret import Secret
from agent.core.directory import AccountRules, OnMismatch
from backends.base import Parsed
from backends.usernames.candidates import FORMATS, NameFormat, pattern_of
from backends.usernames.ldap.provider_group_schema import (
    ProviderGroupSettings,
    attribute_name,
    check_provider_groups,
    classes,
)

KEY = "ldap"
GROUPS = "project_groups"
USER_CLASSES = ("inetOrgPerson", "organizationalPerson", "person", "posixAccount", "top")
USER_GROUP_CLASSES = ("groupOfNames", "nsMemberOf", "organizationalUnit", "posixGroup", "top")
PROJECT_GROUP_CLASSES = ("posixGroup", "top")
RANGES = ("uid_range", "gid_range")
SOURCES = ("ldap", "waldur")
ON_MISSING = ("error", "skip")
WALDUR_SOURCE_KEYS = frozenset(
    {"on_missing_posix_ids", "on_posix_mismatch", "personal_groups", "login_shells"}
)
# What Debian and Red Hat may have in /etc/shells, and what allows no login.
SHELL_NAMES = (
    "bash", "csh", "dash", "false", "fish", "ksh", "ksh93", "mksh", "rbash", "sh", "tcsh", "zsh",
)  # fmt: skip
SHELLS = (
    *(f"/bin/{name}" for name in SHELL_NAMES),
    *(f"/usr/bin/{name}" for name in SHELL_NAMES),
    "/sbin/nologin",
    "/usr/sbin/nologin",
)
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
# 65534 and 65535 are nobody and "unchanged"; numbers above 2**32 - 2 are none.
MAX_ID = 2**32 - 2


@dataclass(frozen=True, slots=True)
class IdRange:
    """Numbers that may be given, both ends included."""

    # The setting without `_start` and `_end`.
    key: str
    start: int
    end: int

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.start <= number <= self.end


class OnDeparture(StrEnum):
    """What becomes of the entry of a person who has left: kept without a login, or deleted."""

    DISABLE = "disable"
    DELETE = "delete"


def _uri(uri: str) -> str:
    scheme, host = _address(uri)
    if scheme not in ("ldap", "ldaps") or not host:
        raise ValidationError("use ldap://host or ldaps://host")
    return uri


def _ca_file(name: str) -> str:
    try:
        if name:
            ssl.create_default_context(cafile=name)
    except OSError as error:  # ssl.SSLError is one
        raise ValidationError(f"it cannot be used: {error.strerror or error}") from error
    return name


def _no_user_dn(dn: str) -> str:
    if dn.lower().replace(" ", "").startswith("uid="):
        raise ValidationError("it is the DN of a user: no user may have it")
    return dn


def _shell(path: str) -> str:
    if (
        not path.startswith("/")
        or len(path) < 2
        or not path.isascii()
        or " " in path
        or not path.isprintable()
    ):
        raise ValidationError("the path of a shell is needed")
    return path


def _number() -> Any:
    return whole(0, MAX_ID)


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class AccessGroup:
    """A group that every new user joins."""

    name: str = required("the group", of=Text(needed))
    attribute: str = key("memberUid", "`memberUid` holds usernames, `member` DNs", of=choice("memberUid", "member"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WelcomeMail:
    """The mail to a new user."""

    smtp_host: str = required("the mail server", of=Text(needed))
    from_address: str = required("the sender", of=Text(needed))
    # Read when a mail is written.
    template: Path = required("a relative path starts at the working folder", name="template_path",
        of=Text(lambda name: Path(needed(name)).absolute()))
    smtp_port: int = key(587, "the port", of=whole(1, 65535))
    smtp_username: str = key("", "a login needs name and password")
    smtp_password: Secret = key(Secret(""), "the password of the login")
    use_tls: bool = key(True, "STARTTLS; a server without it gets no mail")
    use_ssl: bool = key(False, "TLS from the first byte; overrides `use_tls`")
    timeout_s: float = key(30.0, "seconds", name="timeout", of=number(above=0))
    from_name: str = key("", "the name of the sender")
    subject: str = key("Your new account has been created", "a template, too")
    ca_file: str = key("", "the CA of the mail server's certificate, which is always checked", name="tls_ca_file",
        of=Text(_ca_file), usual="the system's CAs")


@dataclass(frozen=True, slots=True, kw_only=True)
class LdapSettings:
    """Settings of one directory."""

    uri: str = required("`ldap://host` or `ldaps://host`; the host as the certificate names it", of=Text(_uri))
    bind_dn: str = required("the login; it must be allowed to write below `people_ou` and `groups_ou`", of=Text(needed))
    bind_password: Secret = required("the password of the login",
        of=Text(lambda text: Secret(needed(text)), strip=False))
    base_dn: str = required("the part of the directory that is read and written", of=Text(needed))
    use_starttls: bool = key(False, "encrypt `ldap://` before the password is sent")
    ca_file: str = key("", "the CA of the server's certificate", name="tls_ca_file", of=Text(_ca_file),
        usual="the system's CAs")
    verify_certificate: bool = key(True, "false: the certificate is not checked", name="tls_verify")
    # Like the groups a whole DN below the base in the end.
    people: str = key("ou=People", "below `base_dn`", name="people_ou")
    groups: str = key("ou=Groups", "below `base_dn`", name="groups_ou")
    uid_range_start: int = key(10000, "the first number of new users", of=_number())
    uid_range_end: int = key(65000, "the last number of new users", of=_number())
    gid_range_start: int = key(10000, "the first number of new groups", of=_number())
    gid_range_end: int = key(65000, "the last number of new groups", of=_number())
    login_shell: str = key("/bin/bash", "the shell of new users", name="default_login_shell")
    home_base: str = key("/home", "where new users have their homes", name="default_home_base",
        of=Text(lambda path: path.rstrip("/")))
    login_shells: tuple[str, ...] = key(SHELLS, "with `waldur`: the shells that Waldur may name",
        of=Several(Text(_shell, strip=False)), usual="`bash`, `csh`, `dash`, `false`, `fish`, `ksh`, `ksh93`, `mksh`, "
        "`rbash`, `sh`, `tcsh`, `zsh` of `/bin` and `/usr/bin`; `/sbin/nologin`, `/usr/sbin/nologin`")
    username_format: str = key(FORMATS["first_initial_lastname"], "how names are made, a word or a pattern, see above",
        of=Text(pattern_of),
        usual_value="first_initial_lastname")
    account_source: str = key(SOURCES[0], "`waldur`: usernames, numbers, homes and shells are Waldur's: "
        "[below](#a-directory-that-follows-waldur)", of=choice(*SOURCES))
    on_missing_posix_ids: str = key(ON_MISSING[0], "with `waldur`: `skip` says nothing about users without numbers",
        of=choice(*ON_MISSING))
    on_posix_mismatch: OnMismatch = key(OnMismatch.REPORT, "with `waldur`: what is done about an entry with other "
        "numbers: `report`, `fail`, `adopt`")
    personal_groups: bool = key(True, "with `waldur`: false where people share their primary groups")
    remove_user_on_deactivate: bool | None = key(None, "release people who have left, as `on_departure` says",
        usual="false; with `waldur` true")
    on_departure: OnDeparture | None = key(None, "`disable` keeps the entry and blocks the login",
        usual="`delete`; with `waldur` `disable`")
    empty_member: str = key("", "stands in a groupOfNames without other members; not the DN of a user",
        name="empty_group_member_dn", of=Text(_no_user_dn), usual="`cn=nobody,BASE_DN`")
    provider_groups: ProviderGroupSettings | None = key(None, "groups that Waldur has for its projects: "
        "[below](#groups-that-waldur-has-for-projects)", name=GROUPS, usual="off",
        may_be_false=True)
    generate_vpn_password: bool = key(False, "16 random characters in `userPassword`")
    access_groups: tuple[AccessGroup, ...] = key((), "list of `name`, `attribute` (`memberUid`, the default, or "
        "`member`) that new users join")
    waldur_username_attribute: str = key("", "where the login in Waldur is kept, such as `employeeNumber`",
        of=Text(lambda text: text and attribute_name(text), strip=False))
    user_classes: tuple[str, ...] = key(USER_CLASSES, "classes of new users", name="user_object_classes", of=classes(),
        usual=", ".join(USER_CLASSES))
    user_group_classes: tuple[str, ...] = key(USER_GROUP_CLASSES, "389 Directory Server takes these; OpenLDAP with its "
        "`nis` schema wants `[posixGroup, top]`", name="user_group_object_classes", of=classes(),
        usual=", ".join(USER_GROUP_CLASSES))
    project_group_classes: tuple[str, ...] = key(PROJECT_GROUP_CLASSES, "classes of groups of projects",
        name="project_group_object_classes", of=classes(), usual=", ".join(PROJECT_GROUP_CLASSES))
    welcome: WelcomeMail | None = key(None, "a mail to each new user, see below", name="welcome_email")
    # How the directory follows the accounts that Waldur has; None where these are made here.
    account_rules: AccountRules | None = None

    @property
    def uids(self) -> IdRange:
        return IdRange("uid_range", self.uid_range_start, self.uid_range_end)

    @property
    def gids(self) -> IdRange:
        return IdRange("gid_range", self.gid_range_start, self.gid_range_end)

    @property
    def name_format(self) -> NameFormat:
        return NameFormat(self.username_format)


@dataclass(frozen=True, slots=True)
class LdapKeys:
    ldap: LdapSettings | None = key(None, "the site's directory: [usernames](usernames.md)")
# fmt: on


def parse(raw: Mapping[str, Any], path: str) -> Parsed:
    """Parse `backend_settings.ldap`: settings, or every problem."""
    place, findings = f"{path}.{KEY}", Findings()
    section = raw.get(KEY)
    if section is None:
        findings.error(place, "LDAP settings are required: uri, bind_dn, bind_password, base_dn")
        return Parsed(None, findings.problems)
    settings = read(LdapSettings, section, place, findings)
    if isinstance(section, Mapping):
        _check(settings, section, place, findings)
    if has_errors(findings.problems):
        return Parsed(None, findings.problems)
    base_dn, groups = settings.base_dn, settings.provider_groups
    follows = settings.account_source == SOURCES[1]
    rules = AccountRules(
        skips_missing=settings.on_missing_posix_ids == "skip",
        on_mismatch=settings.on_posix_mismatch,
        personal_groups=settings.personal_groups,
        has_login=bool(settings.waldur_username_attribute),
        home_bases=home_bases(raw),
        login_shells=frozenset({*settings.login_shells, settings.login_shell}),
    )
    removes = settings.remove_user_on_deactivate
    settings = replace(
        settings,
        people=",".join(filter(None, (settings.people, base_dn))),
        groups=",".join(filter(None, (settings.groups, base_dn))),
        account_rules=rules if follows else None,
        remove_user_on_deactivate=follows if removes is None else removes,
        on_departure=settings.on_departure or (OnDeparture.DISABLE if follows else OnDeparture.DELETE),
        empty_member=settings.empty_member or f"cn=nobody,{base_dn}",
        provider_groups=replace(groups, base=",".join(filter(None, (groups.base, base_dn))))
        if groups and groups.enabled
        else None,
    )
    if not settings.remove_user_on_deactivate:
        why = "without `remove_user_on_deactivate: true` accounts stay as they are"
        findings.add(without_effect(section, ("on_departure",), place, why))
    return Parsed(settings, findings.problems)


def _check(settings: LdapSettings, section: Mapping[Any, Any], place: str, findings: Findings) -> None:
    """Add keys that do not go together, and settings that are possible and rarely meant."""
    for ids in (settings.uids, settings.gids):
        if ids.start > ids.end:
            words = f"is {ids.end}, below {ids.key}_start ({ids.start})"
            findings.error(key_path(place, f"{ids.key}_end"), words)
        if ids.start < 1000:
            words = f"is {ids.start}: numbers below 1000 belong to the system"
            findings.warn(key_path(place, f"{ids.key}_start"), words)
    follows = settings.account_source == SOURCES[1]
    if not follows and not settings.personal_groups:
        words = "users whom the agent makes have a group of their own: true is needed"
        findings.error(key_path(place, "personal_groups"), words)
    if follows and section.get("username_format") is not None:
        words = "leave it out: with `account_source: waldur` the names are Waldur's"
        findings.error(key_path(place, "username_format"), words)
    idle, words = sorted(WALDUR_SOURCE_KEYS), "has a meaning with `account_source: waldur` only"
    if follows:
        idle = [f"{name}_{end}" for name in RANGES for end in ("start", "end")]
        words = "has no effect: with `account_source: waldur` the numbers are Waldur's"
    for name in idle:
        if section.get(name) is not None:
            findings.warn(key_path(place, name), words)
    _check_connection(settings, place, findings)
    if settings.welcome:
        _check_mail(settings.welcome, key_path(place, "welcome_email"), findings)
    if settings.provider_groups:
        check_provider_groups(settings.provider_groups, key_path(place, GROUPS), findings)


def _check_connection(settings: LdapSettings, place: str, findings: Findings) -> None:
    scheme, host = _address(settings.uri)
    is_encrypted = scheme == "ldaps" or settings.use_starttls
    if settings.use_starttls and scheme == "ldaps":
        findings.error(key_path(place, "use_starttls"), "leave it out: ldaps:// is encrypted anyway")
    if scheme and not is_encrypted and host not in LOCAL_HOSTS:
        words = "the bind password is sent unencrypted; use ldaps:// or `use_starttls: true`"
        findings.warn(key_path(place, "use_starttls"), words)
    if is_encrypted and not settings.verify_certificate:
        words = "the server's certificate is not checked: others may read everything"
        findings.warn(key_path(place, "tls_verify"), words)


def _check_mail(mail: WelcomeMail, place: str, findings: Findings) -> None:
    if mail.template and not mail.template.is_file():
        words = f"{mail.template} is not there: new users get no mail"
        findings.warn(key_path(place, "template_path"), words)
    if mail.smtp_password and not (mail.use_tls or mail.use_ssl):
        findings.warn(key_path(place, "use_tls"), "without TLS the password is sent unencrypted")


def wants_provider_groups(raw: Mapping[str, Any]) -> bool:
    """Return whether `backend_settings` want the groups of Waldur's projects, and can be used."""
    settings = parse(raw, "").settings if raw.get(KEY) is not None else None
    return settings is not None and settings.provider_groups is not None


def _address(uri: str) -> tuple[str, str]:
    """Return scheme and host, both empty where it is no address."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return "", ""
    return parts.scheme, parts.hostname or ""
