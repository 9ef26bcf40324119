# SPDX-License-Identifier: MIT
"""`console` of the root: files by their place, proxies, and what would send logins unencrypted."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from agent.config.model import ConsoleSettings, OidcLogin

from .samples import Site, root, warnings

OIDC = {
    "issuer": "https://login.example.org",
    "client_id": "console",
    "url": "https://console.example.org",
    "role_claim": "groups",
    "operators": "hpc-admins",
}


def test_files_start_at_the_folder_of_the_configuration_and_one_value_is_a_list(site: Site) -> None:
    written = {
        "certificate": "console.pem",
        "proxies": ["192.0.2.7", "2001:db8::/64"],
        "oidc": {**OIDC, "client_secret_file": "secret"},
    }
    loaded = site.load(root(console=written))
    assert loaded.settings is not None
    found = loaded.settings.console
    folder = Path(found.certificate).parent
    assert folder.is_absolute()
    assert found == ConsoleSettings(
        certificate=str(folder / "console.pem"),
        proxies=(ip_network("192.0.2.7"), ip_network("2001:db8::/64")),
        oidc=OidcLogin(**{**OIDC, "operators": ("hpc-admins",)}, client_secret_file=str(folder / "secret")),  # type: ignore[arg-type]
    )
    loaded = site.load(root())
    assert loaded.settings is not None and loaded.settings.console == ConsoleSettings()


@pytest.mark.parametrize(
    ("written", "path", "said"),
    [
        ({"certificate_key": "x.key"}, "console.certificate", "is missing"),
        ({"proxies": ["proxy.example.org"]}, "console.proxies", "use addresses or networks"),
        ({"proxies": ["192.0.2.7/28"]}, "console.proxies", "use addresses or networks"),
        ({"oidc": {**OIDC, "issuer": "http://login.example.org"}}, "console.oidc.issuer", "use https://"),
        ({"oidc": {**OIDC, "url": "http://console.example.org"}}, "console.oidc.url", "use https://"),
        ({"oidc": {"issuer": "https://login.example.org"}}, "console.oidc.client_id", "is missing"),
    ],
)
def test_what_cannot_be_used_leaves_loopback_and_passwords_and_stops_no_worker(
    written: dict[str, object], path: str, said: str, site: Site
) -> None:
    loaded = site.load(root(console={"listen": "0.0.0.0:9466", **written}))
    assert loaded.settings is not None and loaded.settings.console == ConsoleSettings()
    found = warnings(loaded)
    assert any(place.startswith(path) and said in message for place, message in found.items()), found
