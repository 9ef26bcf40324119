# SPDX-License-Identifier: MIT
"""A program that sets logs and Sentry up as every process of ours does, and then speaks: `speaker.py FILE WHAT`.

A process of its own, because Sentry's SDK changes the one that it is started in.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path

from agent.observability import apm, logs, sentry
from agent.run.service import configuration

log = logging.getLogger("speaker")


def main(file: str, what: str) -> None:
    settings, _ = configuration.usable(Path(file), os.environ)
    logs.set_up(settings.log_level, settings.log_format)
    sentry.set_up(settings)
    apm.set_up(settings)
    if what == "trouble":
        log.info("a crumb with token=%s in it", os.environ["HUSH"])
        log.warning("%s", f"https://user:{os.environ['HUSH']}@proxy:3128/?api_key={os.environ['HUSH']}&a=1")
        log.error("order %s is stuck: %s", "abc", os.environ["HUSH"], extra={"secret_key": "of-a-plugin"})
        crash(os.environ["HUSH"])
    elif what == "task":
        speak_in_a_task()
    elif what == "warn":
        warnings.warn("careful", stacklevel=1)
    elif what == "idle":
        log.info("nothing happens")
    print("sentry_sdk" in sys.modules)
    if settings.sentry_dsn:
        # How long the end of the process waits for what is on its way.
        sys.modules["sentry_sdk"].get_client().options["shutdown_timeout"] = 600


def speak_in_a_task() -> None:
    """As a worker does: a line of a pass, and an unforeseen error, which Celery's integration sends."""
    from celery import Celery

    from tasks import arguments
    from tasks.base import SiteTask

    arguments.CHECKS = {**arguments.CHECKS, "offering_uuid": str, "resource_uuid": str}  # type: ignore[misc]

    class Part(SiteTask):
        name = "membership_sync.part"

        def run(self, offering_uuid: str, resource_uuid: str = "") -> None:
            hush = os.environ["HUSH"]
            with logs.about(mode="membership_sync"):
                log.error("no such QoS")
            raise RuntimeError(f"unforeseen {len(hush)}")

    app = Celery("speaker", broker="memory://", set_as_current=False)
    app.register_task(Part())
    app.tasks["membership_sync.part"].apply(("o1",), {"resource_uuid": "r1"}, task_id="t1")
    for monitor, is_well in (("waldur-site-beat", True), ("report-o1", False)):
        sentry.check_in(monitor, is_well=is_well, every_minutes=4.5, seconds=2.0)


def crash(password_in_a_variable: str) -> None:
    unseen = f"{password_in_a_variable}-and-more"
    try:
        raise ValueError("broker redis://:br0ker-pass@127.0.0.1/0 is away")
    except ValueError:
        log.exception("internal error of the agent, %d letters", len(unseen))


if __name__ == "__main__":
    main(*sys.argv[1:])
