# SPDX-License-Identifier: MIT
"""The only module that imports ldap3: one bound connection per pass, searches that are whole or raise, and changes.

StartTLS comes before the bind, and the certificate is checked before that: the password never goes in clear or
to a server without that certificate. Errors of ldap3 become ours here. An error that says nothing about the request
itself (no connection, a refused bind, a busy server) is BackendUnavailable.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ldap3
from ldap3.core import exceptions as errors
from ldap3.core.results import RESULT_SUCCESS
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import escape_rdn, parse_dn

from agent.core.errors import BackendError, BackendUnavailable
from backends.command_output import is_whole
from backends.usernames.ldap.schema import LdapSettings

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10
ANSWER_TIMEOUT_S = 30
PAGE_SIZE = 500
PAGED_RESULTS = "1.2.840.113556.1.4.319"
# Values in one filter: some tens of kilobytes.
FILTER_VALUES = 500

ADD = ldap3.MODIFY_ADD
DELETE = ldap3.MODIFY_DELETE
REPLACE = ldap3.MODIFY_REPLACE

Changes = Mapping[str, Sequence[tuple[Any, Sequence[str]]]]

# Results that are about the server or our account, never about the entry of the request.
_SERVER_RESULTS = (
    errors.LDAPBusyResult,
    errors.LDAPUnavailableResult,
    errors.LDAPTimeLimitExceededResult,
    errors.LDAPAdminLimitExceededResult,
    errors.LDAPSizeLimitExceededResult,
    errors.LDAPInvalidCredentialsResult,
    errors.LDAPInappropriateAuthenticationResult,
    errors.LDAPConfidentialityRequiredResult,
    errors.LDAPStrongerAuthRequiredResult,
    errors.LDAPOperationsErrorResult,
    errors.LDAPReferralResult,
)
_HINTS: Mapping[type[Exception], str] = {
    errors.LDAPInvalidCredentialsResult: "check bind_dn and bind_password",
    errors.LDAPConfidentialityRequiredResult: "the server wants TLS: use ldaps:// or `use_starttls: true`",
    errors.LDAPStrongerAuthRequiredResult: "the server wants TLS: use ldaps:// or `use_starttls: true`",
    errors.LDAPSizeLimitExceededResult: "the listing was cut off: raise the server's size limit for bind_dn",
    errors.LDAPInsufficientAccessRightsResult: "bind_dn must be allowed to write below people_ou and groups_ou",
    errors.LDAPNoSuchObjectResult: "check base_dn, people_ou and groups_ou",
    errors.LDAPObjectClassViolationResult: "the server's schema does not allow it: check the *_object_classes "
    "(OpenLDAP: [posixGroup, top] for groups, one structural class only)",
    errors.LDAPInvalidAttributeSyntaxResult: "the server's schema has no such object class or attribute: check the "
    "*_object_classes",
    errors.LDAPUndefinedAttributeTypeResult: "the server's schema lacks an attribute: check the *_object_classes",
}


class AlreadyThere(BackendError):
    """An entry of this DN, or the value, exists."""


class NotThere(BackendError):
    """No entry of this DN, or no such value."""


@dataclass(frozen=True, slots=True)
class LdapEntry:
    """An entry of a search. Attribute names are in small letters, for servers differ in their spelling."""

    dn: str
    values: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> LdapEntry:
        """Return the entry of one item of ldap3's response."""
        raw: Mapping[str, Sequence[bytes]] = item["raw_attributes"]
        texts = {name.lower(): tuple(v.decode("utf-8", "replace") for v in raw[name]) for name in raw}
        return cls(item["dn"], texts)

    def all(self, name: str) -> tuple[str, ...]:
        """Return all values of an attribute."""
        return self.values.get(name.lower(), ())

    def first(self, name: str) -> str:
        """Return the first value of an attribute, empty where it has none."""
        return next(iter(self.all(name)), "")

    def number(self, name: str) -> int | None:
        """Return the first value of an attribute as a number, None where it is none."""
        text = self.first(name)
        return int(text) if is_whole(text) else None


class ClassViolation(BackendError):
    """The server's schema does not allow the entry to be so: an attribute that it needs would be gone."""


class Directory:
    """A connection that is made when it is first needed and used until `close`."""

    def __init__(self, settings: LdapSettings) -> None:
        self._settings = settings
        self._connection: ldap3.Connection | None = None
        self.connections = 0

    def user_rdn(self, username: str) -> str:
        return f"uid={escape_rdn(username)}"

    def user_dn(self, username: str) -> str:
        return f"{self.user_rdn(username)},{self._settings.people}"

    def group_rdn(self, name: str) -> str:
        return f"cn={escape_rdn(name)}"

    def group_dn(self, name: str) -> str:
        return f"{self.group_rdn(name)},{self._settings.groups}"

    def open(self) -> None:
        """Connect, encrypt and bind. Raises BackendUnavailable with what to check."""
        if self._connection is not None:
            return
        settings = self._settings
        with self._translated("connect"):
            tls = ldap3.Tls(
                validate=ssl.CERT_REQUIRED if settings.verify_certificate else ssl.CERT_NONE,
                ca_certs_file=settings.ca_file or None,
            )
            connection = ldap3.Connection(
                ldap3.Server(settings.uri, tls=tls, connect_timeout=CONNECT_TIMEOUT_S, get_info=ldap3.NONE),
                user=settings.bind_dn,
                password=settings.bind_password.reveal(),
                receive_timeout=ANSWER_TIMEOUT_S,
                raise_exceptions=True,
                auto_referrals=False,
                check_names=False,
            )
            try:
                connection.open()
                if settings.use_starttls and not connection.start_tls():
                    raise errors.LDAPStartTLSError("the server did not start TLS")
                connection.bind()
                _require_success(connection)
            except (errors.LDAPException, OSError):
                _shut(connection)
                raise
            self._connection = connection
            self.connections += 1

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.unbind()
        except (errors.LDAPException, OSError) as error:
            log.debug("LDAP: the connection ended with %s", error)

    def search(self, base: str, clauses: str, attributes: Sequence[str]) -> list[LdapEntry]:
        """Return all entries below `base` that match. Raises BackendUnavailable where the result is not whole."""
        found: list[LdapEntry] = []
        cookie: bytes | None = None
        try:
            while cookie is None or cookie:
                with self._translated(f"search below {base}"):
                    connection = self._bound()
                    connection.search(
                        base, clauses, attributes=list(attributes), paged_size=PAGE_SIZE, paged_cookie=cookie
                    )
                    _require_success(connection)
                found += [
                    LdapEntry.of(item) for item in connection.response or () if "raw_attributes" in item
                ]
                paged = (connection.result.get("controls") or {}).get(PAGED_RESULTS, {})
                cookie = bytes(paged.get("value", {}).get("cookie") or b"")  # empty after the last page
        except NotThere as error:
            raise BackendUnavailable(
                f"LDAP: there is no {base}: check base_dn, people_ou and groups_ou"
            ) from error
        return found

    def add(self, dn: str, classes: Sequence[str], attributes: Mapping[str, Sequence[str]]) -> None:
        """Add an entry. Raises AlreadyThere where an entry of this DN exists."""
        with self._translated(f"add {dn}"):
            connection = self._bound()
            connection.add(dn, list(classes), {name: list(v) for name, v in attributes.items() if v})
            _require_success(connection)

    def modify(self, dn: str, changes: Changes) -> None:
        """Change an entry, all or nothing. Raises AlreadyThere or NotThere where a value is, or is not, in it."""
        with self._translated(f"modify {dn}"):
            connection = self._bound()
            connection.modify(dn, {name: [(how, list(v)) for how, v in c] for name, c in changes.items()})
            _require_success(connection)

    def rename(self, dn: str, rdn: str) -> None:
        """Give an entry another name in its place. Raises AlreadyThere where that is taken, NotThere."""
        with self._translated(f"rename {dn}"):
            connection = self._bound()
            connection.modify_dn(dn, rdn)
            _require_success(connection)

    def delete(self, dn: str) -> None:
        """Delete an entry. Raises NotThere where there is none."""
        with self._translated(f"delete {dn}"):
            connection = self._bound()
            connection.delete(dn)
            _require_success(connection)

    def _bound(self) -> ldap3.Connection:
        self.open()
        assert self._connection is not None
        return self._connection

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """Turn errors of ldap3, and those of sockets and TLS that it lets through, into ours."""
        try:
            yield
        except (errors.LDAPEntryAlreadyExistsResult, errors.LDAPAttributeOrValueExistsResult) as error:
            raise AlreadyThere(_said(doing, error)) from error
        except (errors.LDAPNoSuchObjectResult, errors.LDAPNoSuchAttributeResult) as error:
            raise NotThere(_said(doing, error)) from error
        except errors.LDAPObjectClassViolationResult as error:
            raise ClassViolation(f"LDAP {self._settings.uri}: {_said(doing, error)}") from error
        except _SERVER_RESULTS as error:
            raise BackendUnavailable(f"LDAP {self._settings.uri}: {_said(doing, error)}") from error
        except errors.LDAPOperationResult as error:
            raise BackendError(f"LDAP {self._settings.uri}: {_said(doing, error)}") from error
        except (errors.LDAPException, OSError) as error:
            # After a broken connection the next call makes a new one.
            connection, self._connection = self._connection, None
            if connection is not None:
                _shut(connection)
            cause = str(error) or type(error).__name__
            if "certificate" in cause.lower() or isinstance(error, errors.LDAPCertificateError):
                cause += (
                    ". Is the name in uri the one of the certificate, and tls_ca_file the CA that signed it?"
                )
            raise BackendUnavailable(
                f"LDAP {self._settings.uri} cannot be used ({doing}): {cause}"
            ) from error


def sibling_dn(dn: str, rdn: str) -> str:
    """Return the DN of an entry with this RDN in the place where `dn` is."""
    parent = "".join(f"{name}={value}{separator}" for name, value, separator in parse_dn(dn)[1:])
    return f"{rdn},{parent}"


def normal(dn: str) -> tuple[tuple[str, str], ...]:
    """Return what two spellings of one DN have in common."""
    try:
        return tuple((name.lower(), value.strip().lower()) for name, value, _ in parse_dn(dn, strip=True))
    except errors.LDAPInvalidDnError:
        return (("", dn.lower()),)


def name_of(dn: str, attribute: str) -> str:
    """Return the value of this attribute in an entry's own name; empty where it is named by another one."""
    first = next(iter(normal(dn)), ("", ""))
    return first[1] if first[0] == attribute.lower() else ""


def any_of(attribute: str, values: Iterable[str]) -> Iterator[str]:
    """Yield filters that match entries with one of these values, FILTER_VALUES in each."""
    return one_of(equals(attribute, value) for value in values)


def one_of(terms: Iterable[str]) -> Iterator[str]:
    """Yield filters that match entries for which one of these holds, FILTER_VALUES in each."""
    listed = list(dict.fromkeys(terms))
    for begin in range(0, len(listed), FILTER_VALUES):
        yield f"(|{''.join(listed[begin : begin + FILTER_VALUES])})"


def equals(attribute: str, value: str) -> str:
    """Return a filter for one value, whatever characters it has."""
    return f"({attribute}={escape_filter_chars(value)})"


def _require_success(connection: ldap3.Connection) -> None:
    """Raise for a result that ldap3 lets pass as success: a listing that was cut off, a referral (2.9.1)."""
    result = connection.result
    if result["result"] != RESULT_SUCCESS:
        raise errors.LDAPOperationResult(
            result=result["result"], description=result["description"], message=result["message"]
        )


def _shut(connection: ldap3.Connection) -> None:
    """Close the socket without a word to the server."""
    try:
        connection.strategy.close()
    except (errors.LDAPException, OSError) as error:
        log.debug("LDAP: the connection ended with %s", error)


def _said(doing: str, error: errors.LDAPOperationResult) -> str:
    words = getattr(error, "message", "") or ""
    description = getattr(error, "description", "") or type(error).__name__
    hint = next((text for kind, text in _HINTS.items() if isinstance(error, kind)), "")
    return ". ".join(filter(None, (f"{doing}: {description} {words}".strip().rstrip("."), hint)))
