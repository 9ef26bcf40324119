# SPDX-License-Identifier: MIT
"""The welcome mail, taken by a mail server of our own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config.secret import Secret
from agent.core.errors import BackendError
from agent.core.model import OfferingUser
from backends.usernames.ldap import schema, welcome
from backends.usernames.ldap.schema import LdapSettings
from backends.usernames.ldap.user_writer import NewUser
from rig.certificate import make_certificate
from rig.slapd import Slapd
from tests.backends.usernames.conftest import Connect, Looker, person
from tests.backends.usernames.mail_server import MailServer

TEXT = """Dear {{ first_name }} {{ last_name }},
{% if vpn_password %}
your password is {{ vpn_password }}
{% endif %}
{{ username }} {{ uid_number }} {{ home_directory }} {{ login_shell }} {{ email }}{{ unknown.thing }}
"""
PASSWORD = "a&b<c>\"'"
JOHN = NewUser("jsmith", 10000, "/home/jsmith", Secret(PASSWORD))

Settings = Callable[..., LdapSettings]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificate(tmp_path / "tls")


@pytest.fixture
def server(certificate: Path) -> Iterator[MailServer]:
    with MailServer(certificate.parent) as server:
        yield server


@pytest.fixture
def mail(server: MailServer, certificate: Path, tmp_path: Path) -> Settings:
    """Settings with a welcome mail, its template's text and these keys."""

    def make(text: str = TEXT, **options: Any) -> LdapSettings:
        template = tmp_path / "welcome.txt"
        template.write_text(text)
        section = {
            "smtp_host": "localhost",
            "smtp_port": server.port,
            "from_address": "hpc@example.org",
            "template_path": str(template),
            "tls_ca_file": str(certificate),
            **options,
        }
        wanted = {"uri": "ldap://localhost", "bind_dn": "x", "bind_password": "x", "base_dn": "x"}
        parsed = schema.parse({"ldap": {**wanted, "welcome_email": section}}, "test")
        assert isinstance(parsed.settings, LdapSettings), parsed.problems
        return parsed.settings

    return make


def send(settings: LdapSettings, user: OfferingUser | None = None) -> None:
    welcome.send(settings, user or person(email="john@example.org"), JOHN)


def test_a_text_says_what_the_template_says_and_escapes_nothing(server: MailServer, mail: Settings) -> None:
    send(mail(from_name="The site", subject="Welcome {{ username }}"))
    (seen,) = server.mails
    assert (seen["From"], seen["To"], seen["Subject"]) == (
        "The site <hpc@example.org>", "john@example.org", "Welcome jsmith",
    )  # fmt: skip
    assert seen.get_content_type() == "text/plain"
    assert seen.get_content().split("\n") == [
        "Dear John Smith,",
        f"your password is {PASSWORD}",
        "jsmith 10000 /home/jsmith /bin/bash john@example.org",
        "",
    ]


def test_html_escapes_what_people_call_themselves(server: MailServer, mail: Settings) -> None:
    send(mail("<html><body>{{ first_name }}</body></html>"), person(first="<b>&", email="john@example.org"))
    (seen,) = server.mails
    assert seen.get_content_type() == "text/html"
    assert "<body>&lt;b&gt;&amp;</body>" in seen.get_content()


def test_no_text_adds_headers(server: MailServer, mail: Settings) -> None:
    user = person(
        first="John\r\nBcc: all@example.org", last="\nX-Evil: 1\x0b\u2028Y: 2", email="john@example.org"
    )
    send(mail(subject="For {{ first_name }} {{ last_name }}", from_name="A\r\nReply-To: evil@x.org"), user)
    (seen,) = server.mails
    assert sorted(seen.keys()) == sorted(
        ["From", "To", "Subject", "Content-Type", "Content-Transfer-Encoding", "MIME-Version"]
    )
    assert seen["Subject"] == "For John Bcc: all@example.org X-Evil: 1 Y: 2"
    assert [line for line in server.heard if line.startswith("rcpt")] == ["rcpt TO:<john@example.org>"]


@pytest.mark.parametrize(
    "address", ["a@b.c\r\nBcc: x@y.z", "a@b.c, x@y.z", "nobody", "<a@b.c>", "refused@b.c"]
)
def test_an_address_that_is_none_gets_no_mail(server: MailServer, mail: Settings, address: str) -> None:
    with pytest.raises(BackendError, match="no mail to"):
        send(mail(), person(email=address))
    assert server.mails == []


TEMPLATES = [
    "{{ ''.__class__.__mro__ }}",
    "{% include '/etc/passwd' %}",
    "{{ username",
    "{% for i in range(10**9) %}x{% endfor %}",
    "{{ first_name.__init__.__globals__ }}",
]


@pytest.mark.parametrize("text", TEMPLATES)
def test_a_template_cannot_leave_its_sandbox(server: MailServer, mail: Settings, text: str) -> None:
    try:
        send(mail(text))
    except BackendError as error:
        assert "template" in str(error)  # noqa: PT017
        return
    assert server.mails[0].get_content().strip() == ""


def test_tls_begins_before_the_login(server: MailServer, mail: Settings) -> None:
    send(mail(smtp_username="u", smtp_password="p"))
    words = [line.split(" ")[0].upper() for line in server.heard]
    assert words.index("STARTTLS") < words.index("AUTH")


def test_a_login_needs_both_name_and_password(server: MailServer, mail: Settings) -> None:
    send(mail(smtp_username="u"))
    assert not any(line.upper().startswith("AUTH") for line in server.heard)


def test_implicit_tls_wins(certificate: Path, mail: Settings) -> None:
    with MailServer(certificate.parent, is_encrypted=True) as server:
        send(mail(smtp_port=server.port, use_ssl=True))
        assert len(server.mails) == 1
        assert "STARTTLS" not in server.heard


@pytest.mark.parametrize("way", [{}, {"use_ssl": True}])
def test_a_certificate_that_does_not_fit_gets_no_mail(
    certificate: Path, mail: Settings, tmp_path: Path, way: dict[str, bool]
) -> None:
    other = make_certificate(tmp_path / "other")
    with MailServer(certificate.parent, is_encrypted=bool(way)) as server:
        with pytest.raises(BackendError, match="certificate"):
            send(mail(smtp_port=server.port, tls_ca_file=str(other), **way))
        assert server.mails == []


def test_a_server_without_tls_gets_nothing_unless_the_site_says_so(mail: Settings) -> None:
    with MailServer() as server:
        with pytest.raises(BackendError, match="STARTTLS"):
            send(mail(smtp_port=server.port))
        assert server.mails == []
        send(mail(smtp_port=server.port, use_tls=False))
        assert len(server.mails) == 1


def test_without_an_address_no_mail_is_sent(server: MailServer, mail: Settings) -> None:
    send(mail(), person(email=""))
    assert server.heard == []


def test_a_new_user_is_sent_the_password_that_is_in_the_directory_and_no_log(
    ldap: Connect, looker: Looker, server: MailServer, certificate: Path, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    (tmp_path / "mail.txt").write_text("{{ vpn_password }}")
    section = {
        "smtp_host": "localhost", "smtp_port": server.port, "from_address": "hpc@example.org",
        "template_path": str(tmp_path / "mail.txt"), "tls_ca_file": str(certificate),
    }  # fmt: skip
    backend = ldap(generate_vpn_password=True, welcome_email=section)
    assert backend.make(person(email="john@example.org")) == "jsmith"
    entry = looker.user("jsmith")
    assert entry is not None
    password = entry.first("userPassword")
    assert server.mails[0].get_content().rstrip("\n") == password
    assert password not in caplog.text


def test_a_mail_that_fails_costs_no_user_the_account(
    ldap: Connect, slapd: Slapd, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    section = {
        "smtp_host": "localhost", "smtp_port": 1, "from_address": "hpc@example.org",
        "template_path": str(tmp_path / "missing"),
    }  # fmt: skip
    assert ldap(welcome_email=section).make(person(email="john@example.org")) == "jsmith"
    (tmp_path / "missing").write_text("x")
    assert ldap(welcome_email=section).make(person(2, email="jane@example.org")) == "jsmith2"
    assert caplog.text.count("got no welcome mail") == 2
