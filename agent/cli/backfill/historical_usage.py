# SPDX-License-Identifier: MIT
"""`historical-usage`: usage of past months from the cluster's accounting into Waldur, with a staff token.

Months go to the workers of the offering where there is a queue, else they run here, one after the other. What was
done is written down, so that a run which was stopped in any way goes on with `--resume`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

import beat_schedule as table
from agent.cli.backfill import staff_token
from agent.cli.backfill.view import COMPLETE, SIGNS, ProgressView, closing, has_signs
from agent.cli.options import names_of, print_json, select_offerings, token_in
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.config.model import Offering, Settings
from agent.config.secret import Secret
from agent.core.errors import ConfigError, SiteAgentError
from agent.plan.usage import history as planner
from agent.plan.usage.history import Span
from agent.run.backfill import staff
from agent.run.backfill.month import LoadOptions
from agent.run.backfill.results import Ending, Mark
from agent.run.backfill.runs import Destination, InProcess, Loader, Run, RunRecord
from agent.run.backfill.staff import BackfillRefused
from agent.run.site import Site

STOPPED = 130


@dataclass(frozen=True, kw_only=True)
class Options:
    """As they were given."""

    config_file: Path | None
    offering_uuid: str | None
    user_token: Secret
    user_token_file: Path | None
    start_date: str
    end_date: str
    resource_backend_ids: tuple[str, ...]
    skip_user_usage: bool
    no_staff_check: bool
    reconcile_stale: bool
    allow_decreases: bool
    dry_run: bool
    is_local: bool
    resume: bool
    delay_s: int
    as_json: bool
    months_may_fail: bool

    @property
    def options(self) -> LoadOptions:
        return LoadOptions(
            accounts=tuple(dict.fromkeys(text.strip() for text in self.resource_backend_ids)),
            with_users=not self.skip_user_usage,
            reconcile_stale=self.reconcile_stale,
            dry_run=self.dry_run,
            staff_check=not self.no_staff_check,
            allow_decreases=self.allow_decreases,
        )


def command(**given: Any) -> int:
    options = Options(**given)
    if options.resume and options.dry_run:
        raise click.UsageError("a dry run leaves nothing behind that could be resumed: choose one")
    settings = load_settings(options.config_file)
    try:
        with _loading(options, settings) as loading:
            return loading.load()
    except ConfigError:
        raise
    except SiteAgentError as error:
        if options.as_json:
            print_json({"error": str(error), "months": []})
        if not has_signs(sys.stderr):
            raise
        echo(f"{SIGNS[Mark.ERROR]} {error}", err=True)
        return 1


@contextmanager
def _loading(options: Options, settings: Settings) -> Iterator[Loading]:
    """Check all that must hold before a month is loaded. Raises SiteAgentError."""
    offering = _offering(settings, options.offering_uuid)
    wanted = planner.span(
        planner.parse_date(options.start_date, "--start-date"),
        planner.parse_date(options.end_date, "--end-date"),
        datetime.now(settings.timezone),
    )
    local_reason = "--local" if options.is_local else ""
    if not local_reason and offering.staff_token_file is None:
        local_reason = "the offering has no `staff_token_file`, from which workers would read the staff token"
    if not local_reason:
        # Imported here: only who needs the queue pays for its libraries.
        from tasks.queue import month_queue

        local_reason = month_queue.unavailable_reason(settings)
    token = _token(options, offering, is_needed=bool(local_reason))
    view = ProgressView(
        sys.stderr if options.as_json else sys.stdout, wanted.months, at_once=bool(local_reason)
    )
    view.say(Mark.START, "Starting historical usage loading")
    view.say(None, f"Found offering: {offering.name} ({offering.uuid})")
    site = staff.connect(settings, offering, token)
    try:
        needs_check = token is not None and not options.no_staff_check
        username = staff.check(site, is_staff_needed=needs_check)
        if username:
            view.say(None, f"Staff user validation successful for user: {username}")
        with view:
            yield Loading(options, settings, site, wanted, view, local_reason)
    finally:
        site.client.close()


def _offering(settings: Settings, text: str | None) -> Offering:
    """Return the offering of `--offering-uuid`, or the only one. Raises ConfigError and click's UsageError."""
    if not text and len(settings.offerings) != 1:
        known = names_of(settings.offerings)
        raise click.UsageError(f"--offering-uuid is needed: {settings.source} has {known}")
    (offering,) = select_offerings(settings, text)
    return offering


def _token(options: Options, offering: Offering, *, is_needed: bool) -> Secret | None:
    """Return the staff token; None where the workers have one that this user may not read. Raises SiteAgentError."""
    token = given_token(options.user_token, options.user_token_file, os.environ)
    if token is not None:
        return token
    if offering.staff_token_file is not None:
        try:
            return staff.token_in_file(offering)
        except BackfillRefused:
            if is_needed:
                raise
            return None
    return staff_token.asked()


@dataclass(frozen=True)
class Loading:
    """A run that may begin."""

    options: Options
    settings: Settings
    site: Site
    wanted: Span
    view: ProgressView
    # Why months are loaded in this process, empty where workers load them.
    local_reason: str

    @property
    def run(self) -> Run:
        return Run(self.site.offering.uuid, self.wanted.months, self.options.options)

    def load(self) -> int:
        """Load the months that are not done yet; return the exit code."""
        run, view, options = self.run, self.view, self.options
        self._introduce()
        destination: Destination = InProcess(self.site, run.options, view, options.delay_s)
        if not self.local_reason:
            from tasks.queue.month_queue import on_workers

            queue = table.queue_name(self.site.offering.queue)
            destination = on_workers(run, queue, view, options.delay_s)
        record = RunRecord.read(run, self.settings.state_dir)
        loader = Loader(record, view, destination)
        done = loader.begin(self.settings.timezone, resume=options.resume)
        for month, outcome in done.items():
            view.skipped(month, f"{outcome.at:%Y-%m-%d %H:%MZ}")
        left = tuple(month for month in run.months if month not in done)
        try:
            loader.load(left, resumed=options.resume)
        except KeyboardInterrupt:
            count = sum(outcome.ending is Ending.DONE for outcome in record.months.values())
            sentence = f"Stopped: {count} of {len(run.months)} months are done{destination.under_way()}"
            view.say(Mark.WARNING, f"{sentence}. --resume goes on from here")
            return STOPPED
        return self._print_end(record)

    def _introduce(self) -> None:
        say, wanted = self.view.say, self.wanted
        say(None, f"Date range validated: {wanted.first} to {wanted.last} ({wanted.days} days)")
        if wanted.note:
            say(Mark.WARNING, wanted.note)
        if self.local_reason:
            say(None, f"Months are loaded in this process ({self.local_reason})")
        else:
            queue = table.queue_name(self.site.offering.queue)
            say(
                None,
                f"Months are loaded by the workers of the queue {queue}, with the token of their own node",
            )
        if self.options.dry_run:
            say(None, "[DRY-RUN] Nothing is submitted")
        say(Mark.PLAN, f"Will process {len(wanted.months)} months of data")

    def _print_end(self, record: RunRecord) -> int:
        outcomes = [record.months[str(month)] for month in self.run.months if str(month) in record.months]
        for mark, text in closing(outcomes, dry_run=self.options.dry_run):
            self.view.say(mark, text)
        self.view.say(
            None, f"Processed {len(outcomes)} months from {self.wanted.first} to {self.wanted.last}"
        )
        if self.options.as_json:
            print_json(
                {
                    "offering": self.site.offering.uuid,
                    "name": self.site.offering.name,
                    "start": str(self.wanted.first),
                    "end": str(self.wanted.last),
                    "dry_run": self.options.dry_run,
                    "queued": not self.local_reason,
                    "months": [outcome.as_json(with_lines=False) for outcome in outcomes],
                    "failures": sum(bool(outcome.failures) for outcome in outcomes),
                    "held": sum(bool(outcome.held) for outcome in outcomes),
                    "unknown": sum(outcome.ending is Ending.UNKNOWN for outcome in outcomes),
                }
            )
        is_complete = all(outcome.ending in COMPLETE for outcome in outcomes)
        return 0 if is_complete or self.options.months_may_fail else 1


def given_token(typed: Secret, file: Path | None, environ: MutableMapping[str, str]) -> Secret | None:
    """Return the token that the operator gives, if any. Raises SiteAgentError for a file that has none.

    The variable is taken out of the environment: commands of the cluster need not inherit it.
    """
    variable = environ.pop(staff_token.VARIABLE, "").strip()
    if typed.reveal().strip():
        return Secret(typed.reveal().strip())
    if file is None:
        return Secret(variable) if variable else None
    return token_in(file, "--user-token-file", "staff token")
