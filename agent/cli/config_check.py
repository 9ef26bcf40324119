# SPDX-License-Identifier: MIT
"""`config-check`: the configuration as a start reads it, and stricter: unknown keys are errors here."""

from __future__ import annotations

import os
from pathlib import Path

from agent.cli.options import print_json
from agent.cli.output import echo
from agent.config.render import plain
from agent.host import running
from agent.run.service import configuration, services


def command(config_file: Path | None, as_json: bool) -> int:
    loaded = configuration.checked(config_file, os.environ, strict=True)
    problems, failed = loaded.problems, loaded.settings is None
    advice = configuration.advice(loaded.settings) if loaded.settings else ()
    needed = services.needed(loaded.settings) if loaded.settings else {}
    clashes = services.clashes(loaded.settings, running.agents()) if loaded.settings else ()
    if as_json:
        print_json({
            "ok": not failed,
            "problems": [{"severity": p.severity, "path": p.path, "message": p.message} for p in problems],
            "advice": [{"path": path, "message": message} for path, message in advice],
            "services": {service: list(names) for service, names in needed.items()},
            "running": list(clashes),
            "settings": plain(loaded.settings),
        })  # fmt: skip
    else:
        for problem in problems:
            echo(str(problem))
        for path, message in advice:
            echo(f"advice: {path} {message}")
        for service, names in needed.items():
            echo(f"service: waldur_site_agent -m {service}: {', '.join(names)}")
        for sentence in clashes:
            echo(f"running: {sentence}")
        echo("the configuration cannot be used" if failed else "the configuration is good")
    return 2 if failed else 0
