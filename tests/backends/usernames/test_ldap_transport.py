# SPDX-License-Identifier: MIT
"""Connections to a real OpenLDAP: encrypted before the password goes out, checked, and one for a pass."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import BackendUnavailable
from backends.usernames.ldap.directory import Directory
from rig.certificate import make_certificate
from rig.parts import require
from rig.slapd import PASSWORD, Slapd
from tests.backends.usernames.conftest import Connect, person, settings

pytestmark = pytest.mark.real_part


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Slapd]:
    """A server that refuses every login that comes without TLS."""
    require("slapd")
    server = Slapd(tmp_path / "slapd", needs_tls=True)
    server.start()
    yield server
    server.stop()


def opened(slapd: Slapd, **options: Any) -> Directory:
    directory = Directory(settings(slapd, **options))
    directory.open()
    return directory


def test_starttls_comes_before_the_password(strict: Slapd) -> None:
    opened(strict, use_starttls=True, tls_ca_file=str(strict.certificate)).close()
    log = strict.log.read_text()
    assert 0 < log.index("STARTTLS") < log.index("BIND dn=")


def test_ldaps_works(strict: Slapd) -> None:
    opened(strict, uri=strict.tls_url, tls_ca_file=str(strict.certificate)).close()


def test_a_server_that_wants_tls_says_so(strict: Slapd) -> None:
    with pytest.raises(BackendUnavailable, match="use ldaps:// or `use_starttls: true`"):
        opened(strict)


@pytest.mark.parametrize("way", ["starttls", "ldaps"])
@pytest.mark.parametrize("fault", ["another CA", "another name"])
def test_a_certificate_that_does_not_fit_gets_no_password(
    strict: Slapd, tmp_path: Path, way: str, fault: str
) -> None:
    options: dict[str, Any] = {"uri": strict.tls_url if way == "ldaps" else strict.url}
    options["use_starttls"] = way == "starttls"
    if fault == "another CA":
        options["tls_ca_file"] = str(make_certificate(tmp_path / "other"))
    else:
        options |= {
            "tls_ca_file": str(strict.certificate),
            "uri": options["uri"].replace("localhost", "127.0.0.1"),
        }
    with pytest.raises(BackendUnavailable, match="certificate") as caught:
        opened(strict, **options)
    assert caught.value.retryable
    assert "BIND dn=" not in strict.log.read_text()


def test_checking_can_be_switched_off(strict: Slapd) -> None:
    opened(strict, use_starttls=True, tls_verify=False).close()
    opened(strict, uri=strict.tls_url, tls_verify=False).close()


FAULTS = {
    "password": ({"bind_password": "wrong"}, "check bind_dn and bind_password"),
    "port": ({"uri": "ldap://localhost:1"}, "cannot be used"),
    "host": ({"uri": "ldap://no-such-host.invalid"}, "cannot be used"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_keeps_us_out_is_an_outage_without_a_secret_in_it(
    slapd: Slapd, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options, words = FAULTS[fault]
    with pytest.raises(BackendUnavailable, match=words) as caught:
        opened(slapd, **options)
    assert caught.value.retryable
    assert PASSWORD not in str(caught.value) + caplog.text
    assert "wrong" not in str(caught.value) + caplog.text


def test_a_base_that_is_not_there_is_no_empty_directory(ldap: Connect) -> None:
    with pytest.raises(BackendUnavailable, match="check base_dn"):
        ldap(people_ou="ou=Nowhere").find(person(email="a@b.c"))


def test_a_pass_is_one_connection(ldap: Connect, slapd: Slapd) -> None:
    before = slapd.operations(" method=128")
    backend = ldap()
    for number in range(1, 6):
        assert backend.find(person(number)) == ""
        backend.make(person(number))
    backend.close()
    backend.close()
    assert slapd.operations(" method=128") - before == 1
    assert slapd.operations(' base="cn=Subschema"') == 0
