# SPDX-License-Identifier: MIT
"""A template of a backend. Its cluster is one JSON file: accounts with their limits and members, default accounts.

Replace what reads and writes the file by what reads and writes your cluster; docs/write-a-backend.md goes through it.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.config.field_types import Text
from agent.config.findings import Findings, has_errors
from agent.config.keys import required
from agent.config.reading import read
from agent.config.secret import Secret
from agent.core.account_names import fold
from agent.core.actions import (
    AddMember,
    AllowSubmission,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
)
from agent.core.errors import BackendError, BackendUnavailable, NotEmpty, PlanRefused, SiteAgentError
from agent.core.model import Account, AccountSpec, AllocationSpec, Association, Health, Part, Snapshot
from agent.core.plans import Outcome
from agent.core.usage import Counts, UsageQuery
from backends.base import BackendContext, MadeKey, Parsed, Scope
from backends.failure_propagation import FailurePropagation
from backends.hierarchy import in_order
from backends.lock import WriteLock

ROOT = "root"
LIMITS = frozenset({"cpu"})
PARTS = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS, Part.TRES})
NAME = re.compile(r"[a-z0-9_][a-z0-9_.@-]*")


class NotInFile(BackendError):
    """The file cluster keeps nothing of the kind; no account is at fault."""

    of_host = True


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Each field that `key` or `required` makes is a key of `backend_settings`, with its meaning for people."""

    file: Path = required("the file of the cluster", name="cluster_file", of=Text(Path))


class FileBackend:
    def __init__(self, settings: FileSettings, context: BackendContext) -> None:
        self._file = settings.file
        self._lock = WriteLock(context.state_dir, f"file-{settings.file.stem}")
        self.executed: Counter[str] = Counter()
        self.keys = FileKeys(settings, self._lock)

    @property
    def cluster(self) -> str:
        return self._file.stem

    @property
    def default_account(self) -> str:
        return ROOT

    def create(self) -> None:
        """Write an empty cluster."""
        root: dict[str, Any] = {"parent": None, "limits": {}, "blocked": False, "members": []}
        self._file.write_text(json.dumps({"accounts": {ROOT: root}, "defaults": {}}))

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        state = self._read()
        accounts = {
            name: Account(name, of["parent"], limits=of["limits"], submit_limit=0 if of["blocked"] else None)
            for name, of in state["accounts"].items()
        }
        members = {Association(a, user) for a, of in state["accounts"].items() for user in of["members"]}
        # Nothing runs here, which is known of every account: other clusters count jobs where scope.jobs_of asks.
        return Snapshot(
            self.cluster,
            accounts=accounts,
            associations=frozenset(members),
            default_accounts=state["defaults"],
            tres=LIMITS,
            active_jobs=dict.fromkeys(scope.jobs_of, 0),
            complete=(PARTS & scope.parts) | ({Part.JOBS} if scope.jobs_of else set()),
        )

    def canonical(self, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
        members = tuple(dict.fromkeys(fold(user) for user in spec.members))
        notes = [f"limit {name} is skipped: unknown here" for name in spec.limits if name not in LIMITS]
        notes += [f"member {user!r} is skipped: no user name" for user in members if not NAME.fullmatch(user)]
        return replace(
            spec,
            account=_placed(spec.account),
            ancestors=tuple(_placed(each) for each in spec.ancestors),
            limits={name: value for name, value in spec.limits.items() if name in LIMITS},
            members=tuple(user for user in members if NAME.fullmatch(user)),
            notes=(*spec.notes, *notes),
        )

    def prepare(self) -> None:
        self._lock.check()

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        failures = FailurePropagation()
        with self._lock:
            state = self._read()
            for action in in_order(actions, {name: of["parent"] for name, of in state["accounts"].items()}):
                error = failures.error_for(action)
                if error is None:
                    try:
                        _carry_out(action, state)
                    except SiteAgentError as refusal:
                        error = refusal
                outcomes.append(Outcome(action, error))
                failures.note(outcomes[-1])
            self.executed["write"] += 1
            self._file.write_text(json.dumps(state))
        return outcomes

    def commands(self, actions: Sequence[ClusterAction]) -> Sequence[str]:
        return [f"# {action.line()}" for action in actions]

    def check(self) -> Health:
        try:
            self._read()
        except BackendUnavailable as error:
            return Health("1", self.cluster, (str(error),))
        return Health("1", self.cluster)

    def _read(self) -> dict[str, Any]:
        """Unknown is never absent: a file that cannot be read whole raises, and is no empty cluster."""
        self.executed["read"] += 1
        try:
            state: dict[str, Any] = json.loads(self._file.read_text())
        except (OSError, ValueError) as error:
            raise BackendUnavailable(f"the file cluster {self._file} cannot be read: {error}") from error
        return state


class FileKeys:
    """Keys of resources, an optional power: digests in a file of their own. Leave it out where a cluster has none."""

    def __init__(self, settings: FileSettings, lock: WriteLock) -> None:
        self._cluster = settings.file
        self._file = settings.file.with_suffix(".keys")
        self._lock = lock

    def issue(self, account: str, client_id: str) -> MadeKey:
        if _checked(account) not in json.loads(self._cluster.read_text())["accounts"]:
            raise BackendError(f"there is no account {account}")
        secret = secrets.token_urlsafe(32)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        self._change(account, client_id, {"digest": digest, "paused": False})
        return MadeKey(client_id, Secret(secret))

    def set_paused(self, account: str, client_id: str, paused: bool) -> None:
        known = self._read().get(f"{account} {client_id}")
        if known is None:
            raise BackendError(f"account {account} has no key {client_id}")
        self._change(account, client_id, {**known, "paused": paused})

    def end(self, account: str, client_id: str) -> None:
        self._change(account, client_id, None)

    def usage(self, query: UsageQuery) -> Mapping[str, Mapping[str, Counts]]:
        return {}

    def _read(self) -> dict[str, Any]:
        return dict(json.loads(self._file.read_text())) if self._file.exists() else {}

    def _change(self, account: str, client_id: str, key: dict[str, Any] | None) -> None:
        with self._lock:
            others = {name: of for name, of in self._read().items() if name != f"{account} {client_id}"}
            self._file.write_text(json.dumps(others | ({f"{account} {client_id}": key} if key else {})))


def _placed(account: AccountSpec) -> AccountSpec:
    return replace(account, name=_checked(fold(account.name)), parent=_checked(fold(account.parent) or ROOT))


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise PlanRefused(f"the file cluster takes no name {name!r}")
    return name


def _carry_out(action: ClusterAction, state: dict[str, Any]) -> None:
    """Change the state; what is so already, or is gone already, is done. Raises BackendError or PlanRefused."""
    accounts, defaults = state["accounts"], state["defaults"]
    name = _checked(action.account)
    account = accounts.get(name)
    match action:
        case CreateAccount(parent=parent):
            if parent not in accounts:
                raise BackendError(f"there is no account {parent}")
            accounts.setdefault(name, {"parent": parent, "limits": {}, "blocked": False, "members": []})
        case DeleteAccount():
            below = [other for other, of in accounts.items() if of["parent"] == name]
            if account and (below or account["members"]):
                raise NotEmpty(f"account {name} is not empty")
            accounts.pop(name, None)
        case RemoveMember(user=user):
            if account and user in account["members"]:
                account["members"].remove(user)
            if defaults.get(user) == name:
                del defaults[user]
        case CancelJobs():
            pass
        case _ if account is None:
            raise BackendError(f"there is no account {name}")
        case _:
            _change(action, account, defaults)


def _change(action: ClusterAction, account: dict[str, Any], defaults: dict[str, str]) -> None:
    """Change an account that is there."""
    match action:
        case AddMember(user=user, partitions=()):
            if _checked(user) not in account["members"]:
                account["members"].append(user)
            defaults.setdefault(user, action.account)
        case MoveDefaultAccount(user=user):
            if user not in account["members"]:
                raise BackendError(f"{user} is no member of {action.account}")
            defaults[user] = action.account
        case SetLimits(after=after):
            if unknown := set(dict(after)) - LIMITS:
                raise BackendError(f"there is no limit {min(unknown)}")
            account["limits"] |= dict(after)
        case BlockSubmission() | AllowSubmission():
            account["blocked"] = isinstance(action, BlockSubmission)
        case _:
            raise NotInFile(f"the file cluster cannot {action.line()}")


class FilePlugin:
    settings = FileSettings

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        findings = Findings()
        settings = read(FileSettings, raw, path, findings, open_ended=True)
        return Parsed(None if has_errors(findings.problems) else settings, findings.problems)

    def missing(self, settings: FileSettings) -> str:
        return "" if settings.file.exists() else f"{settings.file} is not on this host"

    def connect(self, settings: FileSettings, context: BackendContext) -> FileBackend:
        return FileBackend(settings, context)


plugin = FilePlugin()
