# SPDX-License-Identifier: MIT
"""Three ways to give a secret, and no way to see one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from agent.config.load import load
from agent.config.render import plain
from agent.config.secret import Secret, SecretUrl, is_secret_key, mask_url, mask_words, secrets_in
from agent.run.service import configuration

from .samples import OFFERING, SKIPPED, Site, changed, errors, only_offering, root, warnings

OIDC = {"oidc_token_url": "https://idp/token", "oidc_client_id": "me", "oidc_client_secret": "s3cret"}


def offering_with(**keys: Any) -> dict[str, Any]:
    return root(offerings=[{**changed(OFFERING, "waldur_api_token", SKIPPED), **keys}])


def test_token_from_a_file_next_to_the_configuration(site: Site) -> None:
    site.write("token", " s3cret\n")
    access = only_offering(site.load(offering_with(waldur_api_token_file="token"))).access
    assert access.token == Secret("s3cret")


def test_token_from_a_variable(site: Site) -> None:
    access = only_offering(site.load(offering_with(waldur_api_token_env="MINE"), {"MINE": "s3cret"})).access
    assert access.token == Secret("s3cret")


def test_empty_token_does_not_count_as_given(site: Site) -> None:
    tree = offering_with(waldur_api_token="", waldur_api_token_env="MINE")
    assert only_offering(site.load(tree, {"MINE": "s3cret"})).access.token == Secret("s3cret")


def test_oidc_client(site: Site) -> None:
    access = only_offering(site.load(offering_with(**OIDC))).access
    assert access.token is None
    assert access.oidc is not None
    assert (access.oidc.token_url, access.oidc.client_id) == ("https://idp/token", "me")
    assert access.oidc.client_secret == Secret("s3cret")


def test_static_token_wins(site: Site) -> None:
    access = only_offering(site.load(offering_with(waldur_api_token="t", **OIDC))).access
    assert access.token == Secret("t") and access.oidc is None


def test_root_secrets_from_a_file_and_a_variable(site: Site) -> None:
    site.write("dsn", "https://key@sentry.example.com/1")
    tree = root(sentry_dsn_file="dsn", broker_url_env="MINE")
    settings = site.load(tree, {"MINE": "redis://:pw@host/0"}).settings
    assert settings is not None
    assert settings.sentry_dsn == Secret("https://key@sentry.example.com/1")
    assert settings.broker_url == SecretUrl("redis://:pw@host/0")


REQUIRED = "ssl_cert_reqs=required"
TLS = [
    ("rediss://:pw@host:6380/0", f"rediss://:pw@host:6380/0?{REQUIRED}", False),
    ("rediss://h/0?ssl_ca_certs=/ca;redis://k", f"rediss://h/0?ssl_ca_certs=/ca&{REQUIRED};redis://k", False),
    ("rediss://host/0?ssl_cert_reqs=none", "rediss://host/0?ssl_cert_reqs=none", True),
    ("rediss://host/0?ssl_cert_reqs=CERT_NONE", "rediss://host/0?ssl_cert_reqs=CERT_NONE", True),
    (
        "rediss://host/0?ssl_check_hostname=false",
        f"rediss://host/0?ssl_check_hostname=false&{REQUIRED}",
        True,
    ),
    ("redis://host/0", "redis://host/0", False),
    ("redis://h;redis://h:1/;redis://h//2", "redis://h;redis://h:1/;redis://h//2", False),
    ("redis+socket:///run/a@b.sock", "redis+socket:///run/a@b.sock", False),
    ("amqp://u:1%2F2@127.0.0.1/a%40b", "amqp://u:1%2F2@127.0.0.1/a%40b", False),
    ("amqps://host//", "amqps://host//", False),
]


@pytest.mark.parametrize(("written", "used", "warned"), TLS)
def test_tls_to_the_broker_is_verified_unless_the_site_says_otherwise(
    site: Site, written: str, used: str, warned: bool
) -> None:
    loaded = site.load(root(broker_url=written))
    assert loaded.settings is not None
    assert loaded.settings.broker_url == SecretUrl(used)
    assert ("broker_url" in warnings(loaded)) is warned


AWAY = [
    ({"waldur_api_url": "http://waldur.example.com/api/"}, ["waldur_api_url"]),
    ({"waldur_api_url": "HTTP://10.0.0.7:8000/api/"}, ["waldur_api_url"]),
    ({"waldur_api_url": "http://[2001:db8::1]/api/"}, ["waldur_api_url"]),
    ({"waldur_api_url": "https://waldur.example.com/api/"}, []),
    *(
        (
            {"waldur_api_url": f"http://{host}:8000/api/", "stomp_enabled": True, "websocket_use_tls": False},
            [],
        )
        for host in ("localhost", "127.0.0.1", "127.9.9.9", "[::1]", "waldur.localhost")
    ),
    ({**OIDC, "waldur_api_token": "", "oidc_token_url": "http://idp/token"}, ["oidc_token_url"]),
    ({"mqtt_enabled": True, "websocket_use_tls": False}, ["websocket_use_tls"]),
    ({"mqtt_enabled": True}, []),
]


@pytest.mark.parametrize(("keys", "warned"), AWAY)
def test_secrets_that_would_cross_a_network_unencrypted_are_a_warning(
    site: Site, keys: dict[str, Any], warned: list[str]
) -> None:
    loaded = site.load(offering_with(**{"waldur_api_token": "t", **keys}), strict=True)
    assert loaded.settings is not None, "a warning also where unknown keys are errors"
    found = {path: text for path, text in warnings(loaded).items() if "unencrypted" in text}
    assert list(found) == [f"offerings[0].{key}" for key in warned]


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("redis://:s3cret@10.0.0.7/0", True),
        ("sentinel://:s3cret@a:1;sentinel://:s3cret@b:2", True),
        ("sentinel://:s3cret@a:1/0?master_name=m&ssl_ca_certs=/ca.pem;sentinel://b:2", False),
        ("amqp://me:s3cret@mq.example.com//", True),
        ("rediss://:s3cret@10.0.0.7/0", False),
        ("redis://:s3cret@127.0.0.1/0", False),
        ("redis+socket://:s3cret@/run/redis.sock", False),
        ("redis://10.0.0.7/0", False),
    ],
)
def test_a_password_of_the_broker_that_would_cross_a_network_unencrypted_is_a_warning(
    site: Site, url: str, warned: bool
) -> None:
    found = warnings(site.load(root(broker_url=url)))
    assert ("unencrypted" in found.get("broker_url", "")) is warned
    assert "s3cret" not in str(found)


REFUSED = [
    ({"waldur_api_token_file": "gone"}, "waldur_api_token_file", "cannot read"),
    ({"waldur_api_token_file": "empty"}, "waldur_api_token_file", "is empty"),
    ({"waldur_api_token_file": "lines"}, "waldur_api_token_file", "has more than one line"),
    ({"waldur_api_token_file": "a\0b"}, "waldur_api_token_file", "it has a control character"),
    ({"waldur_api_token_env": "NOT_SET"}, "waldur_api_token_env", "variable NOT_SET is not set"),
    (
        {"waldur_api_token": "s3cret", "waldur_api_token_file": "lines"},
        "waldur_api_token",
        "give only one of `waldur_api_token`, `waldur_api_token_file`",
    ),
    ({**OIDC, "oidc_client_id": ""}, "oidc_client_id", "cannot log in without `oidc_client_id`"),
    ({**OIDC, "oidc_client_secret_env": "MINE"}, "oidc_client_secret", "give only one of"),
]


@pytest.mark.parametrize(("keys", "place", "sentence"), REFUSED)
def test_refused(site: Site, keys: dict[str, str], place: str, sentence: str) -> None:
    site.write("empty", " \n")
    site.write("lines", "s3cret\nand more\n")
    loaded = site.load(offering_with(**keys))
    assert loaded.settings is None
    assert list(errors(loaded)) == [f"offerings[0].{place}"]
    assert sentence in errors(loaded)[f"offerings[0].{place}"]
    assert "s3cret" not in str(loaded.problems)


def test_a_process_without_logins_looks_at_no_secret_of_an_offering(site: Site) -> None:
    """beat and Flower: the files are for root only, the variables are set for the worker only."""
    site.write("broker", "redis://:pw@host/0")
    tree = offering_with(waldur_api_token_file="gone") | {"broker_url_file": "broker"}
    oidc = {**OIDC, "oidc_client_secret": "", "oidc_client_secret_env": "NOT_SET"}
    tree["offerings"] += offering_with(waldur_offering_uuid="f" * 32, **oidc)["offerings"]
    site.load(tree)
    assert len(errors(load(site.file, {}))) == 2
    loaded = load(site.file, {}, with_logins=False)
    assert loaded.settings is not None and not errors(loaded)
    assert loaded.settings.broker_url == SecretUrl("redis://:pw@host/0")
    assert [offering.access.token is None for offering in loaded.settings.offerings] == [False, True]


def test_a_process_without_logins_keeps_none_that_is_written_out(site: Site) -> None:
    """beat and Flower: tokens, passwords of backends and proxies, and those among the words of a command."""
    tree = offering_with(
        **{**OIDC, "waldur_api_token": "s3cret"},
        backend_settings={
            "command_prefix": "sshpass -p s3cret ssh head",
            "target_api_token": "s3cret",
            "ldap": {
                "uri": "ldap://u:s3cret@h",
                "bind_password": "s3cret",
                "mail": [{"smtp_password": "s3cret"}],
            },
        },
    ) | {"global_proxy": "socks5://me:s3cret@proxy:1", "broker_url": "redis://:pw@host/0"}
    site.load(tree)
    loaded = configuration.checked(site.file, {"CREDENTIALS_DIRECTORY": ""}, with_logins=False)
    assert loaded.settings is not None and not errors(loaded)
    assert loaded.settings.broker_url == SecretUrl("redis://:pw@host/0")
    assert "s3cret" not in "".join(_texts_within(loaded.offerings))
    assert "s3cret" not in "".join(_texts_within(loaded.settings))
    known = load(site.file, {}).settings
    assert known is not None
    assert "".join(_texts_within(known)).count("s3cret") >= 7


def _texts_within(value: object) -> list[str]:
    """Every text that can be reached from a value, secrets revealed."""
    if isinstance(value, Secret):
        return [value.reveal()]
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.items() for text in _texts_within(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts_within(item)]
    if is_dataclass(value):
        return [text for field in fields(value) for text in _texts_within(getattr(value, field.name))]
    return []


def test_a_process_without_logins_still_says_that_there_is_no_way_to_log_in(site: Site) -> None:
    site.load(offering_with())
    assert "offerings[0].waldur_api_token" in errors(load(site.file, {}, with_logins=False))


def test_a_credential_of_systemd_is_read_where_the_file_itself_cannot_be(site: Site) -> None:
    granted = site.folder / "granted"
    granted.mkdir()
    (granted / "broker-url").write_text("redis://:pw@host/0")
    tree = root(broker_url_file="/etc/nowhere/broker-url")
    assert "cannot read" in errors(site.load(tree))["broker_url_file"]
    settings = site.load(tree, {"CREDENTIALS_DIRECTORY": str(granted)}).settings
    assert settings is not None
    assert settings.broker_url == SecretUrl("redis://:pw@host/0")
    site.write("broker-url", "redis://:mine@host/0")
    mine = site.load(root(broker_url_file="broker-url"), {"CREDENTIALS_DIRECTORY": str(granted)}).settings
    assert mine is not None and mine.broker_url == SecretUrl("redis://:mine@host/0")


def test_secret_file_that_everybody_may_read(site: Site) -> None:
    file = site.write("token", "s3cret", 0o644)
    loaded = site.load(offering_with(waldur_api_token_file="token"))
    assert f"chmod 600 {file}" in warnings(loaded)["offerings[0].waldur_api_token_file"]


def test_nothing_secret_is_rendered_or_printed(site: Site) -> None:
    tree = offering_with(
        **OIDC,
        backend_settings={
            "target_api_token": "s3cret",
            "ldap": {"bind_password": "s3cret", "uri": "ldap://u:s3cret@h"},
        },
    )
    tree |= {
        "broker_url": "redis://user:s3cret@host:6379/0?password=s3cret",
        "sentry_dsn": "https://s3cret@sentry.example.com/1",
        "global_proxy": "socks5://me:s3cret@proxy:1",
    }
    settings = site.load(tree).settings
    assert settings is not None
    rendered = plain(settings)
    assert "s3cret" not in json.dumps(rendered)
    assert "s3cret" not in repr(settings) + str(settings)
    assert rendered["broker_url"] == "redis://user:***@host:6379/0?password=***"
    assert rendered["offerings"][0]["backend_settings"]["ldap"] == {
        "bind_password": "***",
        "uri": "ldap://u:***@h",
    }
    assert rendered["offerings"][0]["access"]["oidc"]["client_id"] == "me"


URLS = [
    ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
    ("redis://:pw@host/0", "redis://:***@host/0"),
    ("redis://pw@host/0", "redis://***@host/0"),
    ("redis://u:p/w?#[@host/0", "redis://u:***@host/0"),
    ("redis://u:p@w@host", "redis://u:***@host"),
    ("redis://u:p;w@host", "redis://u:***@host"),
    ("sentinel://:pw@a:1;sentinel://:pw@b:2", "sentinel://:***@a:1;sentinel://:***@b:2"),
    ("sentinel://a:1/0?master=m&pw", "sentinel://a:1/0?master=***&***"),
    ("redis+socket:///run/redis.sock", "redis+socket:///run/redis.sock"),
    ("user:pw@host", "***"),
]


@pytest.mark.parametrize(("url", "masked"), URLS)
def test_mask_url(url: str, masked: str) -> None:
    assert mask_url(url) == masked
    assert repr(SecretUrl(url)) == masked


PREFIXES = [
    ("sshpass -p s3cret ssh -p 2222 head", "sshpass -p *** ssh -p 2222 head"),
    ("/usr/bin/sshpass -ps3cret ssh head", "/usr/bin/sshpass '-p***' ssh head"),
    ("sudo sshpass -v -P assword: -vp s3cret ssh", "sudo sshpass -v -P assword: -vp *** ssh"),
    ("sshpass -f /etc/s3cret ssh -i key", "sshpass -f /etc/s3cret ssh -i key"),
    ("sshpass -d 3 -p s3cret", "sshpass -d 3 -p ***"),
    ("env SSHPASS=s3cret sshpass -e ssh", "env 'SSHPASS=***' sshpass -e ssh"),
    ("docker exec --env=API_TOKEN=s3cret slurm", "docker exec '--env=API_TOKEN=***' slurm"),
    ("plink -pw s3cret head", "plink -pw *** head"),
    ("wrap --password s3cret --token=s3cret head", "wrap --password *** '--token=***' head"),
    ("sh -c 'sshpass -p s3cret ssh head \"$@\"' --", "sh -c 'sshpass -p *** ssh head \"$@\"' --"),
    (
        "ssh -o 'ProxyCommand=sshpass -p s3cret ssh j -W %h:%p' head",
        "ssh -o 'ProxyCommand=sshpass -p *** ssh j -W %h:%p' head",
    ),
    (
        "ssh '-oProxyCommand=/usr/bin/sshpass -ps3cret ssh -p 22 j' head",
        "ssh '-oProxyCommand=/usr/bin/sshpass '-p***' ssh -p 22 j' head",
    ),
    ("ssh '-oProxyCommand=sshpass -p s3cret ssh j' head", "ssh '-oProxyCommand=sshpass -p *** ssh j' head"),
    ("env MYSQL_PWD=s3cret --env=DB_PWD=s3cret x", "env 'MYSQL_PWD=***' '--env=DB_PWD=***' x"),
    ("env PWD=/srv apptainer exec --pwd /srv image", "env PWD=/srv apptainer exec --pwd /srv image"),
    ("wget http://me:s3cret@host/", "wget 'http://me:***@host/'"),
    ("docker exec slurmctld", "docker exec slurmctld"),
    ("sudo -p prompt -u waldur env A=b", "sudo -p prompt -u waldur env A=b"),
]


@pytest.mark.parametrize(("prefix", "masked"), PREFIXES)
def test_words_of_a_command_are_printed_without_their_passwords(prefix: str, masked: str) -> None:
    words = tuple(shlex.split(prefix))
    assert [shlex.split(w) for w in mask_words(words)] == [shlex.split(w) for w in shlex.split(masked)]
    has_secret = masked != prefix and "://" not in prefix
    assert secrets_in(words) == ("s3cret",) * (masked.count("***") if has_secret else 0)


def test_a_password_within_quotes_within_a_word_is_not_printed() -> None:
    words = ("ssh", "-o", 'ProxyCommand="sshpass -p s3cret ssh j"', "head")
    assert "s3cret" not in repr(mask_words(words))
    assert "sshpass -p" in repr(mask_words(words))
    assert secrets_in(words) == ("s3cret",)


@pytest.mark.parametrize("prefix", ["sshpass -p s3cret ssh head", ["sshpass", "-p", "s3cret", "ssh", "head"]])
def test_a_password_in_the_command_prefix_is_a_warning_and_is_not_printed(site: Site, prefix: object) -> None:
    loaded = site.load(offering_with(waldur_api_token="t", backend_settings={"command_prefix": prefix}))
    place = "offerings[0].backend_settings.command_prefix"
    assert "sshpass -f FILE" in warnings(loaded)[place]
    assert loaded.settings is not None
    rendered = plain(loaded.settings)["offerings"][0]
    masked = ["sshpass", "-p", "***", "ssh", "head"]
    assert rendered["command_prefix"] == rendered["backend_settings"]["command_prefix"] == masked
    assert "s3cret" not in json.dumps(rendered) + repr(loaded.settings) + str(loaded.problems)


def test_a_command_prefix_that_cannot_be_split_is_refused_without_showing_it(site: Site) -> None:
    settings = {"command_prefix": "sshpass -p 's3cret ssh head"}
    loaded = site.load(offering_with(waldur_api_token="t", backend_settings=settings))
    assert "a quote in it is not closed" in str(loaded.problems)
    assert "s3cret" not in str(loaded.problems)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("waldur_api_token", True),
        ("BIND_PASSWORD", True),
        ("sentry_dsn", True),
        ("token_file", False),
        ("name", False),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret_key(name) == secret
