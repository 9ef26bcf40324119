# SPDX-License-Identifier: MIT
"""`backend_settings.ldap`: defaults, nulls, and every problem at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.config.keys import keys_of
from agent.config.model import Severity
from backends.usernames.candidates import FORMATS
from backends.usernames.ldap import schema
from backends.usernames.ldap.schema import LdapSettings, WelcomeMail

REQUIRED = {
    "uri": "ldaps://ldap.example.org", "bind_dn": "cn=agent", "bind_password": "s3cret", "base_dn": "dc=example,dc=org",
}  # fmt: skip
MAIL = {"smtp_host": "localhost", "from_address": "a@b.c", "template_path": __file__}


def parse(**options: Any) -> tuple[LdapSettings | None, dict[str, tuple[Severity, str]]]:
    parsed = schema.parse({"ldap": {**REQUIRED, **options}}, "s")
    return parsed.settings, {p.path: (p.severity, p.message) for p in parsed.problems}


def test_defaults_are_those_of_the_reference() -> None:
    settings, problems = parse()
    assert problems == {}
    assert settings is not None
    assert (settings.people, settings.groups) == (
        "ou=People,dc=example,dc=org",
        "ou=Groups,dc=example,dc=org",
    )
    assert [(r.start, r.end) for r in (settings.uids, settings.gids)] == [(10000, 65000)] * 2
    assert (settings.login_shell, settings.home_base) == ("/bin/bash", "/home")
    assert settings.name_format.pattern == FORMATS["first_initial_lastname"]
    assert settings.user_classes == ("inetOrgPerson", "organizationalPerson", "person", "posixAccount", "top")
    assert settings.user_group_classes == (
        "groupOfNames", "nsMemberOf", "organizationalUnit", "posixGroup", "top",
    )  # fmt: skip
    assert settings.project_group_classes == ("posixGroup", "top")
    assert (settings.use_starttls, settings.verify_certificate, settings.remove_user_on_deactivate) == (
        False, True, False,
    )  # fmt: skip
    assert (settings.generate_vpn_password, settings.access_groups, settings.welcome) == (False, (), None)
    assert settings.waldur_username_attribute == ""


def test_a_null_is_not_given() -> None:
    optional = keys_of(LdapSettings).keys() - set(REQUIRED)
    assert parse(**dict.fromkeys(optional)) == parse()
    mail = dict.fromkeys(keys_of(WelcomeMail).keys() - set(MAIL))
    assert parse(welcome_email={**MAIL, **mail}) == parse(welcome_email=MAIL)
    assert parse(access_groups=[{"name": "vpn", "attribute": None}]) == parse(access_groups=[{"name": "vpn"}])


def test_the_mail_has_the_references_defaults() -> None:
    settings, _ = parse(welcome_email=MAIL)
    assert settings is not None and settings.welcome is not None
    mail = settings.welcome
    assert (mail.smtp_port, mail.use_tls, mail.use_ssl, mail.timeout_s) == (587, True, False, 30)
    assert (mail.subject, mail.from_name) == ("Your new account has been created", "")


def test_secrets_do_not_show() -> None:
    settings, _ = parse(welcome_email={**MAIL, "smtp_password": "s3cret"})
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize("raw", [{}, {"ldap": None}])
def test_without_the_section_its_needs_are_named(raw: dict[str, Any]) -> None:
    parsed = schema.parse(raw, "s")
    assert parsed.settings is None
    assert "LDAP settings are required" in parsed.problems[0].message


def test_all_problems_come_at_once() -> None:
    parsed = schema.parse(
        {
            "ldap": {
                "uri": "", "bind_dn": 5, "use_starttls": "perhaps", "uid_range_start": -1, "gid_range_end": "x",
                "username_format": "{x}", "access_groups": [{"name": "a"}, {"attribute": "uid", "nam": 1}],
                "welcome_email": {"smtp_port": 0, "smtp_hots": "x"}, "user_object_classes": [],
                "waldur_username_attribute": "a b", "usr": 1,
            }
        },
        "s",
    )  # fmt: skip
    assert parsed.settings is None
    errors = {p.path.removeprefix("s.ldap.") for p in parsed.problems if p.severity is Severity.ERROR}
    assert errors == {
        "uri", "bind_dn", "bind_password", "base_dn", "use_starttls", "uid_range_start", "gid_range_end",
        "username_format", "access_groups[1].name", "access_groups[1].attribute", "welcome_email.smtp_host",
        "welcome_email.from_address", "welcome_email.template_path", "welcome_email.smtp_port",
        "user_object_classes", "waldur_username_attribute",
    }  # fmt: skip
    strange = {p.path: p.message for p in parsed.problems if p.strict_error}
    assert set(strange) == {"s.ldap.usr", "s.ldap.access_groups[1].nam", "s.ldap.welcome_email.smtp_hots"}
    assert "did you mean 'name'" in strange["s.ldap.access_groups[1].nam"]


CONFLICTS: list[tuple[dict[str, Any], str, Severity, str]] = [
    ({"uri": "http://x"}, "uri", Severity.ERROR, "use ldap://"),
    ({"uri": "ldap://"}, "uri", Severity.ERROR, "use ldap://"),
    ({"uri": "ldap://x:port"}, "uri", Severity.ERROR, "use ldap://"),
    ({"use_starttls": True}, "use_starttls", Severity.ERROR, "leave it out"),
    ({"uri": "ldap://x"}, "use_starttls", Severity.WARNING, "unencrypted"),
    ({"tls_verify": False}, "tls_verify", Severity.WARNING, "not checked"),
    ({"tls_ca_file": "/nowhere"}, "tls_ca_file", Severity.ERROR, "cannot be used"),
    ({"tls_ca_file": __file__}, "tls_ca_file", Severity.ERROR, "cannot be used"),
    (
        {"uid_range_start": 5000, "uid_range_end": 4000},
        "uid_range_end",
        Severity.ERROR,
        "below uid_range_start",
    ),
    ({"gid_range_start": 500}, "gid_range_start", Severity.WARNING, "belong to the system"),
    (
        {"welcome_email": {**MAIL, "template_path": "/x"}},
        "welcome_email.template_path",
        Severity.WARNING,
        "not there",
    ),
    (
        {"welcome_email": {**MAIL, "smtp_password": "p", "use_tls": False}},
        "welcome_email.use_tls",
        Severity.WARNING,
        "unencrypted",
    ),
]


@pytest.mark.parametrize(("options", "key", "severity", "words"), CONFLICTS)
def test_keys_that_do_not_go_together(
    options: dict[str, Any], key: str, severity: Severity, words: str
) -> None:
    settings, problems = parse(**options)
    assert (settings is None) == (severity is Severity.ERROR)
    assert problems.keys() == {f"s.ldap.{key}"}
    found, message = problems[f"s.ldap.{key}"]
    assert found is severity
    assert words in message


def test_no_warning_for_a_server_on_this_host() -> None:
    assert parse(uri="ldap://localhost:389")[1] == {}


def test_a_relative_template_is_found_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mail.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    settings, problems = parse(welcome_email={**MAIL, "template_path": "mail.txt"})
    assert problems == {}
    assert settings is not None and settings.welcome is not None
    assert settings.welcome.template == tmp_path / "mail.txt"


def test_shells_and_folders_of_homes_that_waldur_may_name() -> None:
    followed, _ = parse(
        account_source="waldur", default_login_shell="/opt/site/sh", default_home_base="/data/"
    )
    assert followed is not None and followed.account_rules is not None
    assert {
        "/bin/bash",
        "/usr/bin/zsh",
        "/usr/sbin/nologin",
        "/opt/site/sh",
    } <= followed.account_rules.login_shells
    assert followed.account_rules.home_bases == ("/data",)
    own, _ = parse(account_source="waldur", login_shells=["/bin/rsh"])
    assert own is not None and own.account_rules is not None
    assert own.account_rules.login_shells == {"/bin/rsh", "/bin/bash"}
    assert own.account_rules.home_bases == ("/home",)
    for shell in ("bash", "/bin/sh -c id", "", "/bin/sh\n"):
        assert parse(account_source="waldur", login_shells=[shell])[0] is None
