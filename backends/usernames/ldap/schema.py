# SPDX-License-Identifier: MIT
"""Schema of `backend_settings.ldap`: the reference's keys, meanings and defaults, and a few of ours for TLS.

A null means "not given", also for the lists of object classes.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from marshmallow import EXCLUDE, Schema, ValidationError, fields, validate, validates_schema

from agent.config.findings import without_effect
from agent.config.homes import home_bases
from agent.config.model import Problem, Severity
from agent.config.secret import Secret
from agent.core.directory import AccountRules, OnMismatch
from backends.base import Parsed
from backends.usernames.candidates import NameFormat, pattern_of
from backends.usernames.ldap import provider_group_schema
from backends.usernames.ldap.provider_group_schema import ProviderGroupSettings, ProviderGroupsSchema
from backends.usernames.sections import NameFormatField, parsed_section

KEY = "ldap"
SETTING_KEYS = frozenset({KEY})
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
# What Debian and Red Hat may have in /etc/shells, and what lets nobody log in.
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
    """Numbers that may be given, both ends included; `key` is the setting without `_start` and `_end`."""

    key: str
    start: int
    end: int

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.start <= number <= self.end


@dataclass(frozen=True, slots=True)
class AccessGroup:
    """A group that every new user joins. `attribute`: `memberUid` holds usernames, `member` DNs."""

    name: str
    attribute: str = "memberUid"


class OnDeparture(StrEnum):
    """What becomes of the entry of a person who has left: kept without a login, or deleted."""

    DISABLE = "disable"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class WelcomeMail:
    """The mail to a new user; `template` is read when a mail is written."""

    smtp_host: str
    from_address: str
    template: Path
    smtp_port: int
    smtp_username: str
    smtp_password: Secret
    use_tls: bool
    use_ssl: bool
    timeout_s: float
    from_name: str
    subject: str
    ca_file: str


@dataclass(frozen=True, slots=True)
class LdapSettings:
    """`people` and `groups` are whole DNs below `base_dn`. `ca_file` empty: the CAs that the system trusts.

    `account_rules`: how the directory follows the accounts that Waldur has; None where these are made here.
    `empty_member`: the DN that stands in a groupOfNames without anybody. `provider_groups`: the groups that Waldur has
    for projects, None where they are not wanted.
    """

    uri: str
    bind_dn: str
    bind_password: Secret
    use_starttls: bool
    verify_certificate: bool
    ca_file: str
    base_dn: str
    people: str
    groups: str
    uids: IdRange
    gids: IdRange
    login_shell: str
    home_base: str
    name_format: NameFormat
    account_rules: AccountRules | None
    remove_user_on_deactivate: bool
    on_departure: OnDeparture
    empty_member: str
    generate_vpn_password: bool
    access_groups: tuple[AccessGroup, ...]
    waldur_username_attribute: str
    user_classes: tuple[str, ...]
    user_group_classes: tuple[str, ...]
    project_group_classes: tuple[str, ...]
    provider_groups: ProviderGroupSettings | None
    welcome: WelcomeMail | None


class _Section(Schema):
    class Meta:
        unknown = EXCLUDE


def _required(**options: Any) -> fields.String:
    wanted = {"validate": validate.Length(1, error="is empty"), **options}
    return fields.String(required=True, error_messages={"required": "is missing"}, **wanted)


def _id(default: int) -> fields.Integer:
    return fields.Integer(
        load_default=default, validate=validate.Range(0, MAX_ID, error="use a number from {min} to {max}")
    )


def _classes(default: tuple[str, ...]) -> fields.List[str]:
    return fields.List(
        fields.String(), load_default=lambda: list(default), validate=validate.Length(1, error="is empty")
    )


def _is_uri(uri: str) -> None:
    scheme, host = _address(uri)
    if scheme not in ("ldap", "ldaps") or not host:
        raise ValidationError("use ldap://host or ldaps://host")


def _is_ca_file(name: str) -> None:
    if not name:
        return
    try:
        ssl.create_default_context(cafile=name)
    except OSError as error:  # ssl.SSLError is one
        raise ValidationError(f"{name} cannot be used: {error.strerror or error}") from error


def _choice(*words: str, default: str | None = "") -> fields.String:
    """Return a key with one of these words; the first one is the default, unless there is one that depends."""
    return fields.String(
        load_default=words[0] if default == "" else default,
        validate=validate.OneOf(words, error="{input!r} is not known; use one of {choices}"),
    )


def _is_nobody(dn: str) -> None:
    if dn.lower().replace(" ", "").startswith("uid="):
        raise ValidationError("is the DN of a user: nobody may be it")


class AccessGroupSchema(_Section):
    name = _required()
    attribute = _choice("memberUid", "member")


class WelcomeMailSchema(_Section):
    smtp_host = _required()
    from_address = _required()
    template_path = _required()
    smtp_port = fields.Integer(
        load_default=587, validate=validate.Range(1, 65535, error="use a port from 1 to 65535")
    )
    smtp_username = fields.String(load_default="")
    smtp_password = fields.String(load_default="")
    use_tls = fields.Boolean(load_default=True)
    use_ssl = fields.Boolean(load_default=False)
    timeout = fields.Float(
        load_default=30.0, validate=validate.Range(0, min_inclusive=False, error="use seconds above 0")
    )
    from_name = fields.String(load_default="")
    subject = fields.String(load_default="Your new account has been created")
    tls_ca_file = fields.String(load_default="", validate=_is_ca_file)


class LdapSchema(_Section):
    uri = _required(validate=_is_uri)
    bind_dn = _required()
    bind_password = _required()
    base_dn = _required()
    use_starttls = fields.Boolean(load_default=False)
    tls_verify = fields.Boolean(load_default=True)
    tls_ca_file = fields.String(load_default="", validate=_is_ca_file)
    people_ou = fields.String(load_default="ou=People")
    groups_ou = fields.String(load_default="ou=Groups")
    uid_range_start = _id(10000)
    uid_range_end = _id(65000)
    gid_range_start = _id(10000)
    gid_range_end = _id(65000)
    default_login_shell = fields.String(load_default="/bin/bash")
    default_home_base = fields.String(load_default="/home")
    login_shells = fields.List(
        fields.String(validate=validate.Regexp(r"/[!-~]+\Z", error="{input!r} is no path of a shell")),
        load_default=lambda: list(SHELLS),
    )
    username_format = NameFormatField(load_default="first_initial_lastname")
    account_source = _choice(*SOURCES)
    on_missing_posix_ids = _choice(*ON_MISSING)
    on_posix_mismatch = _choice(*OnMismatch)
    personal_groups = fields.Boolean(load_default=True)
    on_departure = _choice(*OnDeparture, default=None)
    empty_group_member_dn = fields.String(load_default="", validate=_is_nobody)
    remove_user_on_deactivate = fields.Boolean(load_default=None)
    generate_vpn_password = fields.Boolean(load_default=False)
    access_groups = fields.List(fields.Nested(AccessGroupSchema), load_default=list)
    waldur_username_attribute = fields.String(
        load_default="",
        validate=validate.Regexp(r"([A-Za-z][A-Za-z0-9-]*)?\Z", error="{input!r} is not an attribute name"),
    )
    user_object_classes = _classes(USER_CLASSES)
    user_group_object_classes = _classes(USER_GROUP_CLASSES)
    project_group_object_classes = _classes(PROJECT_GROUP_CLASSES)
    project_groups = fields.Nested(ProviderGroupsSchema, load_default=None)
    welcome_email = fields.Nested(WelcomeMailSchema, load_default=None)

    @validates_schema(skip_on_field_errors=False)
    def _check_pairs(self, data: Mapping[str, Any], **_: Any) -> None:
        """Check pairs of keys. A key that is wrong by itself is missing in `data`."""
        wrong = {}
        for name in RANGES:
            start, end = data.get(f"{name}_start"), data.get(f"{name}_end")
            if start is not None and end is not None and start > end:
                wrong[f"{name}_end"] = [f"is {end}, below {name}_start ({start})"]
        if data.get("account_source") == SOURCES[0] and data.get("personal_groups") is False:
            wrong["personal_groups"] = [
                "users whom the agent makes have a group of their own: true is needed"
            ]
        if data.get("use_starttls") and _address(data.get("uri", ""))[0] == "ldaps":
            wrong["use_starttls"] = ["leave it out: ldaps:// is encrypted anyway"]
        if wrong:
            raise ValidationError(wrong)


def parse(raw: Mapping[str, Any], path: str) -> Parsed:
    """Parse `backend_settings.ldap`: settings, or every problem."""
    place = f"{path}.{KEY}"
    section = raw.get(KEY)
    if section is None:
        return Parsed(None, (Problem(Severity.ERROR, place, "LDAP settings are required: uri, bind_dn, "
                                     "bind_password, base_dn"),))  # fmt: skip
    if isinstance(section, Mapping) and section.get(GROUPS) is False:
        section = {**section, GROUPS: None}
    loaded, problems = parsed_section(LdapSchema(), section, place)
    if loaded is None:
        return Parsed(None, problems)
    base_dn = loaded["base_dn"]
    follows = loaded["account_source"] == "waldur"
    if follows and section.get("username_format") is not None:
        words = "leave it out: with `account_source: waldur` the names are Waldur's"
        return Parsed(None, (*problems, Problem(Severity.ERROR, f"{place}.username_format", words)))
    settings = LdapSettings(
        uri=loaded["uri"],
        bind_dn=loaded["bind_dn"],
        bind_password=Secret(loaded["bind_password"]),
        use_starttls=loaded["use_starttls"],
        verify_certificate=loaded["tls_verify"],
        ca_file=loaded["tls_ca_file"],
        base_dn=base_dn,
        people=",".join(filter(None, (loaded["people_ou"], base_dn))),
        groups=",".join(filter(None, (loaded["groups_ou"], base_dn))),
        uids=IdRange("uid_range", loaded["uid_range_start"], loaded["uid_range_end"]),
        gids=IdRange("gid_range", loaded["gid_range_start"], loaded["gid_range_end"]),
        login_shell=loaded["default_login_shell"],
        home_base=loaded["default_home_base"].rstrip("/"),
        name_format=NameFormat(pattern_of(loaded["username_format"])),
        account_rules=AccountRules(
            skips_missing=loaded["on_missing_posix_ids"] == "skip",
            on_mismatch=OnMismatch(loaded["on_posix_mismatch"]),
            personal_groups=loaded["personal_groups"],
            has_login=bool(loaded["waldur_username_attribute"]),
            home_bases=home_bases(raw),
            login_shells=frozenset({*loaded["login_shells"], loaded["default_login_shell"]}),
        )
        if follows
        else None,
        remove_user_on_deactivate=follows
        if loaded["remove_user_on_deactivate"] is None
        else loaded["remove_user_on_deactivate"],
        on_departure=OnDeparture(loaded["on_departure"] or ("disable" if follows else "delete")),
        empty_member=loaded["empty_group_member_dn"] or f"cn=nobody,{base_dn}",
        generate_vpn_password=loaded["generate_vpn_password"],
        access_groups=tuple(AccessGroup(g["name"], g["attribute"]) for g in loaded["access_groups"]),
        waldur_username_attribute=loaded["waldur_username_attribute"],
        user_classes=tuple(loaded["user_object_classes"]),
        user_group_classes=tuple(loaded["user_group_object_classes"]),
        project_group_classes=tuple(loaded["project_group_object_classes"]),
        provider_groups=provider_group_schema.settings_of(loaded[GROUPS], base_dn),
        welcome=_welcome(loaded["welcome_email"]),
    )
    of_groups = provider_group_schema.warnings(loaded[GROUPS], f"{place}.{GROUPS}")
    idle: Iterable[Problem] = ()
    if not settings.remove_user_on_deactivate:
        why = "without `remove_user_on_deactivate: true` accounts stay as they are"
        idle = without_effect(section, ("on_departure",), place, why)
    return Parsed(settings, (*problems, *_warnings(section, loaded, place), *of_groups, *idle))


def follows_waldur(raw: Mapping[str, Any]) -> bool:
    """Return whether `backend_settings` want a directory that follows Waldur, also where they cannot be used."""
    section = raw.get(KEY)
    return isinstance(section, Mapping) and section.get("account_source") == SOURCES[1]


def wants_provider_groups(raw: Mapping[str, Any]) -> bool:
    """Return whether `backend_settings` want the groups of Waldur's projects, and can be used."""
    settings = parse(raw, "").settings if raw.get(KEY) is not None else None
    return settings is not None and settings.provider_groups is not None


def _welcome(loaded: Mapping[str, Any] | None) -> WelcomeMail | None:
    if loaded is None:
        return None
    return WelcomeMail(
        smtp_host=loaded["smtp_host"],
        from_address=loaded["from_address"],
        template=Path(loaded["template_path"]).absolute(),
        smtp_port=loaded["smtp_port"],
        smtp_username=loaded["smtp_username"],
        smtp_password=Secret(loaded["smtp_password"]),
        use_tls=loaded["use_tls"],
        use_ssl=loaded["use_ssl"],
        timeout_s=loaded["timeout"],
        from_name=loaded["from_name"],
        subject=loaded["subject"],
        ca_file=loaded["tls_ca_file"],
    )


def _warnings(section: Mapping[Any, Any], loaded: Mapping[str, Any], place: str) -> Iterator[Problem]:
    """Yield warnings: settings that are possible and rarely meant."""
    scheme, host = _address(loaded["uri"])
    is_encrypted = scheme == "ldaps" or loaded["use_starttls"]
    warnings = {
        "use_starttls": ""
        if is_encrypted or host in LOCAL_HOSTS
        else "the bind password is sent unencrypted; use ldaps:// or `use_starttls: true`",
        "tls_verify": "the server's certificate is not checked: others may read everything"
        if is_encrypted and not loaded["tls_verify"]
        else "",
    }
    for name in RANGES:
        start = loaded[f"{name}_start"]
        warnings[f"{name}_start"] = (
            f"is {start}: numbers below 1000 belong to the system" if start < 1000 else ""
        )
    if loaded["account_source"] == "waldur":
        concerned = [f"{name}_{end}" for name in RANGES for end in ("start", "end")]
        words = "has no effect: with `account_source: waldur` the numbers are Waldur's"
    else:
        concerned, words = sorted(WALDUR_SOURCE_KEYS), "has a meaning with `account_source: waldur` only"
    warnings |= dict.fromkeys((name for name in concerned if section.get(name) is not None), words)
    mail = loaded["welcome_email"]
    if mail is not None:
        warnings["welcome_email.template_path"] = (
            ""
            if Path(mail["template_path"]).is_file()
            else f"{mail['template_path']} is not there: new users get no mail"
        )
        if mail["smtp_password"] and not (mail["use_tls"] or mail["use_ssl"]):
            warnings["welcome_email.use_tls"] = "without TLS the password is sent unencrypted"
    for key, words in warnings.items():
        if words:
            yield Problem(Severity.WARNING, f"{place}.{key}", words)


def _address(uri: str) -> tuple[str, str]:
    """Return scheme and host, both empty where it is no address."""
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return "", ""
    return parts.scheme, parts.hostname or ""
