# SPDX-License-Identifier: MIT
"""MOAB backend: one object per offering that reads, checks and changes MOAB Accounting Manager."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import replace

from agent.core.errors import BackendError, BackendUnavailable
from agent.core.model import AllocationSpec, Health, Snapshot
from backends.base import BackendContext
from backends.lock import WriteLock
from backends.moab import columns
from backends.moab.apply import Writer
from backends.moab.canonical import canonical
from backends.moab.ledger import Ledger
from backends.moab.programs import Programs
from backends.moab.reader import Reader
from backends.moab.schema import DEFAULT_CLUSTER, MoabSettings
from backends.moab.usage import Records
from backends.moab.written_funds import WrittenFunds
from backends.process import Runner

VERSION = re.compile(r"\d+(?:\.\d+)+")


class MoabBackend:
    """Accounts, members, deposits and charges by the mam- commands."""

    charged = "what jobs were charged"

    def __init__(self, settings: MoabSettings, context: BackendContext) -> None:
        settings = replace(
            settings, cluster_name=settings.cluster_name or context.seen_cluster or DEFAULT_CLUSTER
        )
        self._settings = settings
        self._programs = Programs(settings.bin_path)
        self._runner = Runner(prefix=settings.command_prefix, keys="moab_bin_path or command_prefix")
        self._reader = Reader(settings, self._runner, self._programs)
        self._records = Records(self._runner, self._programs)
        # One for all with this state_dir, whatever their settings call the cluster: a deposit is read and then made.
        # Those with another state_dir meet at the file of the same programs, in the folder of the host.
        shared = context.lock_dir / f"writes-mam-{_place(settings)}.lock" if context.lock_dir else None
        self._lock = WriteLock(context.state_dir, "mam", shared=shared, is_urgent=context.is_urgent)
        unlisted = context.marks(f"mam-{_place(settings)}", "fund not shown")
        written_funds = WrittenFunds(self._reader.ledger, self._reader.funds_of, unlisted)
        writer = Writer(
            self._runner,
            self._programs,
            self._lock,
            written_funds=written_funds,
            default_account=settings.default_account,
        )
        self.cluster = settings.cluster_name
        self.default_account = settings.default_account
        self.executed = self._runner.executed
        self.observe = self._reader.observe
        self.prepare = self._lock.check
        self.apply = writer.apply
        self.commands = writer.commands
        self.usage = self._records.usage
        self.usage_command = self._records.command

    def canonical(self, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
        return canonical(self._settings, spec, snapshot)

    def check(self) -> Health:
        """Version, and whether each list can be read with all of its columns. Raises BackendUnavailable where MAM does
        not answer at all.
        """
        version = VERSION.search(self._runner.read(self._programs.version).stdout)
        problems: list[str] = []
        ledger = Ledger()
        try:
            self._records.can_be_read()
            ledger = self._reader.ledger()
            self._reader.users()
        except BackendUnavailable:
            problems += columns.missing(self._runner, self._programs)
            if not problems:
                raise
        except BackendError as error:
            problems.append(str(error))
        warnings = [
            f"fund {fund.id} is of account {owner}, which is not there, and holds {fund.balance}"
            for owner, funds in sorted(ledger.funds.items())
            for fund in funds
            if owner not in {account.name for account in ledger.accounts.values()}
        ]
        warnings += filter(None, [self._lock.unshared()])
        return Health(version[0] if version else "", self.cluster, tuple(problems), tuple(warnings))


def _place(settings: MoabSettings) -> str:
    """Where the programs are, as a name: their folder, or the words that lead to them."""
    program = Programs(settings.bin_path).path("mam-deposit")
    if settings.command_prefix:
        words = (*settings.command_prefix, program)
    else:
        words = (os.path.realpath(os.path.dirname(shutil.which(program) or program)),)
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
