# SPDX-License-Identifier: MIT
"""The environment variables that work besides a YAML file, and the folders that follow from them.

A variable wins over the same thing in YAML; only `REQUESTS_VERIFY_SSL` is a default that a key overrides.
An empty variable counts as not set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from agent.config.field_types import Text, choice, log_level, optional_url
from agent.config.field_types import broker_url as parse_broker
from agent.config.findings import Findings
from agent.config.keys import idle, key
from agent.config.model import Periods
from agent.config.reading import read

STATE_FOLDER = Path("/var/lib/waldur-site-cluster")
# Gone with the next start of the host, as the locks in it are.
LOCK_FOLDER = Path("/run/waldur-site-cluster")
CONFIG = "WALDUR_SITE_AGENT_CONFIG"
BROKER_URL = "WALDUR_SITE_AGENT_BROKER_URL"
CELERY_BROKER_URL = "CELERY_BROKER_URL"
STATE_DIR = "WALDUR_SITE_AGENT_STATE_DIR"
HEARTBEAT_PATH = "WALDUR_SITE_AGENT_HEARTBEAT_PATH"

T = TypeVar("T")


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """What the environment says; None or empty where it says nothing. A wrong value is an error."""

    config: str = key("", "the configuration file", name=CONFIG, usual="")
    broker_url: str = key("", "the broker", name=BROKER_URL, of=Text(parse_broker), hidden=True, usual="`broker_url`")
    celery_broker_url: str = key("", "the broker, when the one above is not set", name=CELERY_BROKER_URL,
        of=Text(parse_broker), hidden=True, usual="`broker_url`")
    state_dir: str = key("", "the folder for locks, the journal and the [state file](state.md), on a local disk",
        name=STATE_DIR, usual="`state_dir`")
    lock_dir: str = key("", "a folder of this host for the lock of deposits ([moab.md](moab.md#deposits)), for agents "
        "whose `state_dir` differs", name="WALDUR_SITE_AGENT_LOCK_DIR", usual=f"`{LOCK_FOLDER}` for root, else none")
    state_dirs_of_systemd: str = key("", "set by systemd for a unit with `StateDirectory=`; counts when neither the "
        "variable above nor `state_dir` is given", name="STATE_DIRECTORY", usual="")
    log_level: str | None = key(None, "the level of the log", name="WALDUR_SITE_AGENT_LOG_LEVEL", of=log_level(),
        usual="`log_level`")
    log_format: str = key("", "`json` or `text`: how lines of the log look; without it readable lines on a terminal, "
        "JSON everywhere else", name="WALDUR_SITE_AGENT_LOG_FORMAT", of=choice("json", "text"), usual="")
    verify_ssl: bool = key(True, "the default of `verify_ssl`; a key in YAML wins", name="REQUESTS_VERIFY_SSL")
    # Sites with an authority of their own set it for the reference, whose HTTP library reads it.
    ca_file: str = key("", "a file with the certificates of the authorities that Waldur's is checked by",
        name="SSL_CERT_FILE", usual="the system's CAs")
    sentry_dsn: str = key("", "where errors are reported to", name="SENTRY_DSN", of=Text(optional_url),
        usual="`sentry_dsn`")
    sentry_environment: str = key("", "the name of the environment in Sentry", name="SENTRY_ENVIRONMENT", usual="")
    flower_url: str = key("", "Flower's address for browsers: the [console](console.md) has links into it",
        name="WALDUR_SITE_AGENT_FLOWER_URL", of=Text(optional_url), usual="")
    heartbeat_path: str = key("", "a file that this worker, beat or bridge touches as a heartbeat, for `healthz`; "
        "without it each leaves one in `state_dir/health`", name=HEARTBEAT_PATH, usual="")
    # Of the reference, whose loops and watchdog they are for.
    waldur_verify_ssl: Any = idle("use `verify_ssl` in YAML, or REQUESTS_VERIFY_SSL", name="WALDUR_VERIFY_SSL")
    unhealthy_after: Any = idle("the bridge connects again by itself; until then polls go on",
        name="WALDUR_SITE_AGENT_STOMP_UNHEALTHY_AFTER_MINUTES")
    handler_stuck_after: Any = idle("tasks have time limits of their own",
        name="WALDUR_SITE_AGENT_STOMP_HANDLER_STUCK_AFTER_MINUTES")
    state_reconciliation: Any = idle("each pass over members looks at the states as well; "
        "WALDUR_SITE_AGENT_RECONCILIATION_PERIOD_MINUTES says how often, with events",
        name="WALDUR_SITE_AGENT_RESOURCE_STATUS_RECONCILIATION_MINUTES")
    periods: Periods = field(default_factory=Periods)
# fmt: on


def read_variables(environ: Mapping[str, str], findings: Findings) -> Variables:
    """Read all variables; one that cannot be used is a problem under its own name."""
    if environ.get(BROKER_URL, "").strip():
        environ = {**environ, CELERY_BROKER_URL: ""}
    variables = declared(Variables, environ, findings)
    return replace(variables, periods=declared(Periods, environ, findings))


def declared(kind: type[T], environ: Mapping[str, str], findings: Findings) -> T:
    """Return the variables that a dataclass declares."""
    written = {name: value.strip() for name, value in environ.items() if value.strip()}
    return read(kind, written, "", findings, open_ended=True)


def default_state_dir(
    variables: Variables, environ: Mapping[str, str], *, is_root: bool, system: Path = STATE_FOLDER
) -> Path:
    """Return where state lives when no setting names it: systemd's StateDirectory, the system's folder, the user's own.

    The user's own only on hosts without the system's folder: where it exists, an operator who may not write there
    must get an error, for with another folder he would hold other locks than the workers.
    """
    if granted := variables.state_dirs_of_systemd.split(":")[0]:
        return Path(granted)
    if is_root or os.path.isdir(system):
        return system
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    own = Path(environ.get("XDG_STATE_HOME", ""))
    return (own if own.is_absolute() else home / ".local" / "state") / system.name


def shared_lock_dir(variables: Variables, *, is_root: bool) -> Path | None:
    """Return where agents with different state_dirs lock each other out; None where nothing says so, but for root."""
    if variables.lock_dir:
        return Path(variables.lock_dir).absolute()
    return LOCK_FOLDER if is_root else None
