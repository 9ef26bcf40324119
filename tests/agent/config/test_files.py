# SPDX-License-Identifier: MIT
"""Which file is taken, and files that cannot be read as a configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent.config.load import find_config, load, require
from agent.core.errors import ConfigError
from tests import REPOSITORY

from .samples import OFFERING, Site, errors, root, warnings

API = {"WALDUR_API_URL": "http://w/api/", "WALDUR_API_TOKEN": "t", "WALDUR_OFFERING_UUID": "u"}
NAMED = {"WALDUR_SITE_AGENT_CONFIG": "named.yaml"}
OLD = {"WALDUR_CONFIG_FILE_PATH": "old.yaml"}
DEFAULT = "waldur-site-agent-config.yaml"

PRECEDENCE = [
    ("given.yaml", {**NAMED, **API, **OLD}, "given.yaml"),
    (None, {**NAMED, **API, **OLD}, "named.yaml"),
    (None, {**API, **OLD}, None),
    (None, {**API, "WALDUR_API_TOKEN": "", **OLD}, "old.yaml"),
    (None, {"WALDUR_SITE_AGENT_CONFIG": ""}, DEFAULT),
    (None, {}, DEFAULT),
]


@pytest.mark.parametrize(("explicit", "environ", "found"), PRECEDENCE)
def test_precedence(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    explicit: str | None,
    environ: dict[str, str],
    found: str | None,
) -> None:
    monkeypatch.chdir(site.folder)
    site.write(DEFAULT, "offerings: []")
    result = find_config(Path(explicit) if explicit else None, environ)
    assert result == (Path(found) if found else None)


def test_no_file_anywhere(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.folder)
    if find_config(None, {}):
        pytest.skip("this machine has a configuration of its own")
    sentence = errors(load(None, {"WALDUR_API_URL": "http://w/api/"}))[""]
    assert "no configuration file at waldur-site-agent-config.yaml or /etc/waldur/" in sentence
    assert "-c or WALDUR_SITE_AGENT_CONFIG" in sentence
    assert "WALDUR_API_TOKEN, WALDUR_OFFERING_UUID is not set" in sentence


def test_named_file_that_is_not_there(site: Site) -> None:
    sentence = errors(load(site.folder / "gone.yaml", API))[""]
    assert "gone.yaml does not exist" in sentence


NOT_YAML = [
    ("", "the file is empty"),
    ("# nothing\n", "the file is empty"),
    ("~", "the file is empty"),
    ("- a\n- b\n", "a map of keys is needed at the top"),
    ("just words", "a map of keys is needed at the top"),
    ("a: [1, 2\nb: 3\n", "line 2, column 2"),
    ("a: b: c\n", "line 1, column 5"),
    ("\ta: 1\n", "line 1, column 1"),
    ("a: 1\n---\nb: 2\n", "line 2, column 1"),
    ("a: 2024-13-45\n", "a number, date or tag in it cannot be read"),
    ("a: !!int ''\n", "a number, date or tag in it cannot be read"),
    ("a: !!python/object:os.system x\n", "could not determine a constructor"),
    ("{[1]: 2}", "unhashable key"),
    ("a: \x07\n", "character that YAML does not allow"),
    ("[" * 600, "nested too deeply"),
    ("[" * 100_000, "nested too deeply"),  # libyaml's own composer would end the process
]


@pytest.mark.parametrize(("text", "sentence"), NOT_YAML)
def test_not_a_configuration(site: Site, text: str, sentence: str) -> None:
    loaded = site.load_text(text)
    assert loaded.settings is None
    assert sentence in errors(loaded)[str(site.file)]


def test_a_pyyaml_without_libyaml_reads_the_same(site: Site) -> None:
    file = site.write("site.yaml", "state_dir: /s\nstate_dir: /t\n")
    code = (
        "import sys; sys.modules['yaml._yaml'] = None; import yaml, pathlib; assert not yaml.__with_libyaml__;"
        "from agent.config.findings import Findings; from agent.config.sources import read_yaml;"
        "found = Findings(); print(read_yaml(pathlib.Path(sys.argv[1]), found)['state_dir'], *found.problems)"
    )
    words = [sys.executable, "-c", code, file]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("/t ") and "given again in line 2" in done.stdout


@pytest.mark.parametrize(
    "text", ["waldur_api_token: *s3cret\n", "waldur_api_token: !s3cret x\n", "a: [s3cret\n"]
)
def test_message_shows_nothing_of_the_line(site: Site, text: str) -> None:
    assert "s3cret" not in errors(site.load_text(text))[str(site.file)]


def test_number_too_long_to_print(site: Site) -> None:
    number = "0x" + "f" * 5000
    loaded = site.load_text(f"reporting_periods: {number}\n? {number}\n: 1\nofferings: [{number}]\n")
    assert "is a very long number" in errors(loaded)["reporting_periods"]
    assert "a very long number" in errors(loaded)["offerings[0]"]
    assert "a very long number" in warnings(loaded)


def test_not_utf8(site: Site) -> None:
    site.file.write_bytes(b"a: \xff\n")
    assert "is not UTF-8" in errors(load(site.file, {}))[str(site.file)]


def test_byte_order_mark_is_fine(site: Site) -> None:
    assert site.load_text("\ufeffofferings: []\n").settings is not None


def test_folder(site: Site) -> None:
    assert "cannot read" in errors(load(site.folder, {}))[str(site.folder)]


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True)])
def test_secret_that_everybody_may_read(site: Site, mode: int, warned: bool) -> None:
    file = site.write("open.yaml", yaml.safe_dump(root()), mode)
    message = warnings(load(file, {})).get(str(file), "")
    assert (f"chmod 600 {file}" in message) == warned


@pytest.mark.parametrize(
    ("tree", "warned"),
    [
        ({"offerings": []}, False),
        ({"offerings": [], "broker_url": "redis://host/0"}, False),
        ({"offerings": [], "broker_url": "redis://:pw@host/0"}, True),
        ({"offerings": [{"backend_settings": {"ldap": {"bind_password": "pw"}}}]}, True),
        ({"offerings": [{"waldur_api_token": ""}]}, False),
        ({"offerings": [{"waldur_api_token_file": "/x"}]}, False),
    ],
)
def test_what_counts_as_a_secret(site: Site, tree: dict[str, object], warned: bool) -> None:
    file = site.write("open.yaml", yaml.safe_dump(tree), 0o644)
    assert (str(file) in warnings(load(file, {}))) == warned


def test_require_lists_every_error(site: Site) -> None:
    site.load({"timezone": "Mars", "offerings": [{**OFFERING, "waldur_api_token": ""}]})
    with pytest.raises(ConfigError) as refusal:
        require(site.file, {})
    first, *lines = str(refusal.value).splitlines()
    assert first.startswith("Configuration validation failed: ")
    assert [line.split(":")[0].strip() for line in lines] == ["timezone", "offerings[0].waldur_api_token"]


def test_require_gives_settings(site: Site) -> None:
    site.load(root())
    settings = require(site.file, {})
    assert settings.source == str(site.file)
    assert settings.offering(settings.offerings[0].uuid) is settings.offerings[0]
