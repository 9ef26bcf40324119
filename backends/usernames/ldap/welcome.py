# SPDX-License-Identifier: MIT
"""The mail to a new user: a template of the site, sent by SMTP.

The template runs in a sandbox and sees a few texts only. Values are escaped in a text that is HTML and in no other:
passwords hold `&` and `<`. Names of people never start a new header line, and TLS certificates are checked.
"""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Mapping
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent.core.errors import BackendError
from agent.core.model import OfferingUser
from backends.usernames.ldap.schema import LdapSettings, WelcomeMail
from backends.usernames.ldap.user_writer import NewUser

# What reading and running a site's template can raise.
_TEMPLATE_FAULTS = (
    jinja2.TemplateError, OSError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
_HTML = re.compile(r"<(html|body)\b", re.IGNORECASE)


def send(settings: LdapSettings, user: OfferingUser, made: NewUser) -> None:
    """Send the mail where the site wants one and the person has an address. Raises BackendError."""
    mail = settings.welcome
    if mail is None or not user.email:
        return
    values = {
        "username": made.username,
        "vpn_password": made.password.reveal(),
        "first_name": user.first_name,
        "last_name": user.last_name,
        "email": user.email,
        "home_directory": made.home,
        "login_shell": settings.login_shell,
        "uid_number": str(made.uid_number),
    }
    message = written(mail, user, values)
    try:
        _deliver(mail, message)
    except (smtplib.SMTPException, OSError) as error:
        raise BackendError(
            f"no mail to {user.email} by {mail.smtp_host}:{mail.smtp_port}: {error}"
        ) from error


def written(mail: WelcomeMail, user: OfferingUser, values: Mapping[str, str]) -> EmailMessage:
    """Return the mail. Raises BackendError where the template or an address cannot be used."""
    try:
        source = mail.template.read_text(encoding="utf-8")
        is_html = _HTML.search(source) is not None
        text = _environment(escapes=is_html).from_string(source).render(values)
        subject = _environment(escapes=False).from_string(mail.subject).render(values)
    except _TEMPLATE_FAULTS as error:
        raise BackendError(f"the welcome mail's template {mail.template} cannot be used: {error}") from error
    message = EmailMessage()
    try:
        message["From"] = Address(
            display_name=_one_line(mail.from_name), addr_spec=_one_line(mail.from_address)
        )
        message["To"] = Address(addr_spec=user.email)
    except (MessageError, ValueError, IndexError) as error:
        raise BackendError(f"no mail to {user.email!r}: {error}") from error
    message["Subject"] = _one_line(subject)
    message.set_content(text, subtype="html" if is_html else "plain")
    return message


def _environment(*, escapes: bool) -> jinja2.Environment:
    return ImmutableSandboxedEnvironment(
        autoescape=escapes, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.ChainableUndefined
    )


def _one_line(text: str) -> str:
    """Return text without line breaks and other control characters: they would begin another header."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", " ", text).split())


def _deliver(mail: WelcomeMail, message: EmailMessage) -> None:
    context = ssl.create_default_context(cafile=mail.ca_file or None)
    if mail.use_ssl:
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            mail.smtp_host, mail.smtp_port, timeout=mail.timeout_s, context=context
        )
    else:
        server = smtplib.SMTP(mail.smtp_host, mail.smtp_port, timeout=mail.timeout_s)
    with server:
        if mail.use_tls and not mail.use_ssl:
            server.starttls(context=context)
        if mail.smtp_username and mail.smtp_password:
            server.login(mail.smtp_username, mail.smtp_password.reveal())
        server.send_message(message)
