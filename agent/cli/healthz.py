# SPDX-License-Identifier: MIT
"""`healthz`: do the parts of the agent on this host give signs of life? Asks neither Waldur nor the broker."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import click

from agent.cli.options import config_option, json_option, print_json
from agent.cli.output import echo
from agent.config.environment import HEARTBEAT_PATH
from agent.core.errors import ConfigError, SiteAgentError
from agent.host import heartbeat
from agent.host.heartbeat import MAX_AGE_S, Part, Sign
from agent.run import configuration


@dataclass(frozen=True, slots=True)
class Health:
    """One thing that was looked at, and what is wrong with it; nothing where it is well."""

    name: str
    age_s: float | None
    problem: str = ""

    def as_json(self) -> dict[str, object]:
        age_s = None if self.age_s is None else round(self.age_s, 1)
        return {"name": self.name, "age_s": age_s, "ok": not self.problem, "problem": self.problem}

    def line(self) -> str:
        return f"{self.name}: {self.problem or f'ok, {self.age_s or 0:.0f} s ago'}"


@click.command()
@click.argument("parts", nargs=-1, metavar="[PART]...", type=click.Choice([part.value for part in Part]))
@config_option
@click.option(
    "--max-age",
    type=click.FloatRange(min=1),
    default=MAX_AGE_S,
    show_default=True,
    metavar="SECONDS",
    help="An older sign of life is a failure.",
)
@click.option(
    "--heartbeat-path",
    "path",
    metavar="FILE",
    help="Look at this file only. Default: $WALDUR_SITE_AGENT_HEARTBEAT_PATH, which a part touches beside its own.",
)
@json_option
def command(
    parts: tuple[str, ...], config_file: Path | None, max_age: float, path: str | None, as_json: bool
) -> int:
    """Tell whether each PART on this host (worker, beat, bridge; default: all that are here) has given a sign of life:
    for probes of containers. Asks neither Waldur nor the broker. Exit code 1 when one has not, or none is here.
    """
    own_file = path or os.environ.get(HEARTBEAT_PATH, "").strip()
    if own_file and not parts:
        found = [of_file(Path(own_file), max_age)]
    else:
        try:
            settings, _ = configuration.usable(config_file, os.environ, with_logins=False)
        except ConfigError as error:
            echo(*str(error).split("\n"), err=True)
            return 1
        found = of_parts(settings.state_dir, tuple(map(Part, parts)), max_age)
    if as_json:
        print_json({"ok": all(not each.problem for each in found), "parts": [e.as_json() for e in found]})
    else:
        for each in found:
            echo(each.line(), err=bool(each.problem))
    return 1 if any(each.problem for each in found) else 0


def of_parts(state_dir: Path, parts: tuple[Part, ...], max_age_s: float) -> list[Health]:
    """Return the health of these parts of this host; without any named, of all that have been seen here."""
    try:
        signs = heartbeat.signs(state_dir)
    except (OSError, SiteAgentError) as error:
        return [Health("healthz", None, f"the signs of life in {state_dir} cannot be read: {error}")]
    here = [sign for sign in signs if not parts or sign.part in parts]
    silent = [part for part in parts if part not in {sign.part for sign in here}]
    if not parts and not here:
        return [
            Health(
                "agent",
                None,
                f"no part has given a sign of life on this host in {state_dir / heartbeat.FOLDER}: start one, or "
                "name the configuration that it was started with",
            )
        ]
    missing = [
        Health(
            part,
            None,
            f"no sign of life on this host in {state_dir / heartbeat.FOLDER}: it does not run, or with another "
            "state_dir",
        )
        for part in silent
    ]
    return [*(_of_sign(sign, max_age_s) for sign in here), *missing]


def of_file(path: Path, max_age_s: float) -> Health:
    """Return the health of whoever touches a file."""
    try:
        age_s = max(0.0, time.time() - path.stat().st_mtime)
    except OSError as error:
        return Health(str(path), None, f"no sign of life: {error.strerror}")
    problem = f"the last sign of life is {age_s:.0f} s old" if age_s > max_age_s else ""
    return Health(str(path), age_s, problem)


def _of_sign(sign: Sign, max_age_s: float) -> Health:
    name = sign.part if sign.name == sign.part else f"{sign.part} {sign.name}"
    if sign.age_s <= max_age_s:
        return Health(name, sign.age_s)
    return Health(
        name,
        sign.age_s,
        f"the last sign of life is {sign.age_s:.0f} s old (process {sign.pid}): it hangs, was killed, or waits for its "
        f"broker; look at its log. Where it is gone for good, delete {sign.path}",
    )
