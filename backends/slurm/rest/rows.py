# SPDX-License-Identifier: MIT
"""Association rows of slurmrestd: read with what they inherit, kept with what is their own.

slurmdbd fills the Max limits, the QoS and the default QoS that a row has not from the rows above it. What equals the
value above counts as inherited here: to set it again would change nothing. A row is written whole: slurmrestd takes
away every list of TRES that a change omits, and makes the inherited QoS the row's own (24.11 to 26.05).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from agent.core.account_names import fold
from agent.core.associations import Association, Associations
from agent.core.errors import BackendError, ParseError
from agent.core.model import Account, MemberQos, Part, Snapshot
from backends.slurm.rest.client import items

ASSOCIATIONS = "slurmdb/associations/"
READ = f"GET {ASSOCIATIONS}"
GROUP_MINUTES = ("group", "minutes")
GROUP_TRES = ("total",)
JOB_MINUTES = ("minutes", "per", "job")
# The lists of TRES below `max.tres`; the second ones are inherited.
OWN_LISTS = (GROUP_TRES, GROUP_MINUTES, ("group", "active"))
INHERITED_LISTS = (("minutes", "total"), JOB_MINUTES, ("per", "job"), ("per", "node"))
SHARE_OF_PARENT = 0x7FFFFFFF
UNLIMITED = {"set": False, "infinite": True, "number": 0}
# More is slurmdbd's way of saying that there is no limit.
COUNT_AT_MOST = 2**63 - 1

Path = tuple[str, ...]
Limits = Mapping[str, int]
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the tree of associations."""

    account: str
    # Empty: the row of the account.
    user: str = ""
    partition: str = ""
    parent: str = ""
    is_default: bool = False
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    tres: Mapping[Path, Limits] = field(default_factory=dict)
    submit_limit: int | None = None
    # Of each user (MaxSubmitJobs).
    user_submit_limit: int | None = None
    # None: the account's above.
    share: int | None = None
    # Its own QoS, or those that it inherits.
    counted_qos: MemberQos | None = None

    @property
    def key(self) -> Key:
        return self.account, self.user, self.partition

    def lacks(self, qos: str) -> bool:
        """Return whether it has QoS of its own, of which none is its default, without this one."""
        return bool(self.qos) and not self.default_qos and fold(qos) not in map(fold, self.qos)

    def body(self, cluster: str, **changes: Any) -> dict[str, Any]:
        """Return the row as it is written, `changes` in addition to or instead of what it has of its own."""
        lists: dict[str, Any] = {}
        for path, limits in self.tres.items():
            below = lists
            for step in path[:-1]:
                below = below.setdefault(step, {})
            below[path[-1]] = [_entry(name, count) for name, count in limits.items()]
        own: dict[str, Any] = {"account": self.account, "cluster": cluster, "user": self.user}
        if self.partition:
            own["partition"] = self.partition
        limits_of_jobs = changes.pop("jobs", None)
        maximum = {"tres": lists, **({"jobs": limits_of_jobs} if limits_of_jobs else {})}
        return {**own, "qos": list(self.qos), "max": maximum, **changes}

    def with_limits(self, path: Path, values: Iterable[tuple[str, int]]) -> Row:
        """Return the row with these limits of one list changed; -1 takes one away."""
        limits = {**self.tres.get(path, {}), **dict(values)}
        return replace(
            self, tres={**self.tres, path: {name: count for name, count in limits.items() if count >= 0}}
        )


@dataclass(frozen=True)
class Rows:
    """The rows of one cluster by key, with their own values only."""

    by_key: Mapping[Key, Row]

    @cached_property
    def folded(self) -> Mapping[Key, Key]:
        """Return the keys by themselves with the partition in lower case, as snapshots have it."""
        return {(account, user, fold(name)): (account, user, name) for account, user, name in self.by_key}

    def account(self, name: str) -> Row | None:
        return self.by_key.get((name, "", ""))

    def of_user(self, account: str, user: str) -> Sequence[Row]:
        return self._of_users.get((account, user), ())

    @cached_property
    def _of_users(self) -> Mapping[tuple[str, str], list[Row]]:
        """Return the rows by account and user, one for each partition."""
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.by_key.values():
            found.setdefault((row.account, row.user), []).append(row)
        return found

    def snapshot(self, cluster: str, *, with_inherited_qos: bool = False) -> Snapshot:
        """Return the accounts, associations, default accounts and limits of users. `with_inherited_qos`: the QoS that
        count for members. What equals the account's may be their own; SLURM does not show the difference.
        """
        accounts, found, defaults, user_limits, member_qos = {}, set(), {}, {}, {}
        closed, put_aside = set(), set()
        for row in self.by_key.values():
            if row.user:
                place = Association(row.account, row.user, fold(row.partition))
                found.add(place)
                if row.submit_limit == 0:
                    closed.add(place)
                    if row.user_submit_limit == 0 and row.share is None:
                        put_aside.add(place)
                if with_inherited_qos and row.counted_qos:
                    member_qos[place] = row.counted_qos
                elif row.qos or row.default_qos:
                    member_qos[place] = _folded(row)
                if row.is_default:
                    defaults[row.user] = row.account
                if limits := row.tres.get(JOB_MINUTES):
                    user_limits[row.account, row.user] = limits
                continue
            accounts[row.account] = Account(
                name=row.account,
                parent=row.parent or None,
                limits=row.tres.get(GROUP_MINUTES, {}),
                qos=frozenset(map(fold, row.qos)),
                default_qos=fold(row.default_qos),
                submit_limit=row.submit_limit,
            )
        parts = (Part.ACCOUNTS, Part.ASSOCIATIONS, Part.USER_LIMITS, Part.DEFAULT_ACCOUNTS)
        return Snapshot(
            cluster=cluster,
            accounts=accounts,
            associations=Associations(found),
            default_accounts=defaults,
            user_limits=user_limits,
            member_qos=member_qos,
            closed=frozenset(closed),
            put_aside=frozenset(put_aside),
            complete=frozenset(parts),
        )


def parse(document: Mapping[str, Any], cluster: str) -> Rows:
    """Return the rows of an answer, which has the accounts above each. The root account is always there: without it,
    nothing was read.

    Raises ParseError; BackendError for rows of another cluster.
    """
    effective: dict[Key, Row] = {}
    for item in items(document, "associations"):
        if _text(item, "cluster").lower() != cluster.lower():
            raise BackendError(
                f"{READ}: it shows the cluster {_text(item, 'cluster')!r}, and {cluster!r} was asked for"
            )
        row = _row(item)
        effective[row.key] = row
    if ("root", "", "") not in effective:
        raise ParseError(READ, "", "the root account is missing, the answer is not complete")
    own = {}
    for row in effective.values():
        above = effective.get((row.account if row.user else row.parent, "", ""))
        if above is None and (row.user or row.parent):
            raise ParseError(
                READ, row.user or row.account, f"its account {row.parent or row.account} is missing"
            )
        counted = replace(row, counted_qos=_folded(row)) if row.user else row
        own[row.key] = _own(counted, above) if above else counted
    return Rows(own)


def unread_above(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the accounts right above the rows of an answer that are not in it. Raises ParseError."""
    rows = [_row(item) for item in items(document, "associations")]
    above = {row.account if row.user else row.parent for row in rows} - {""}
    return frozenset(above.difference(row.account for row in rows if not row.user))


def children(document: Mapping[str, Any], accounts: Collection[str]) -> frozenset[str]:
    """Return the accounts in an answer that are right below these; it may have others. Raises ParseError."""
    rows = map(_row, items(document, "associations"))
    return frozenset(row.account for row in rows if not row.user and row.parent in accounts)


def default_accounts(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the default accounts of users by what an answer has of them. Raises ParseError."""
    rows = map(_row, items(document, "associations"))
    return {row.user: row.account for row in rows if row.user and row.is_default}


def users_of_qos(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the accounts, with their cluster, that have each QoS, their own or inherited. Raises ParseError."""
    found: dict[str, list[str]] = {}
    for item in items(document, "associations"):
        default = _text(below(item, "default"), "qos")
        where = f"account {_text(item, 'account')} on cluster {_text(item, 'cluster')}"
        for name in {*map(fold, _texts(item.get("qos"))), fold(default)} - {""}:
            found.setdefault(name, []).append(where)
    return found


def _folded(row: Row) -> MemberQos:
    return MemberQos(frozenset(map(fold, row.qos)), fold(row.default_qos))


def _own(row: Row, above: Row) -> Row:
    """Return the row without what it inherits."""
    tres = dict(row.tres)
    for path in INHERITED_LISTS:
        inherited = above.tres.get(path, {})
        kept = {name: count for name, count in row.tres.get(path, {}).items() if inherited.get(name) != count}
        tres[path] = kept
    return replace(
        row,
        tres={path: limits for path, limits in tres.items() if limits},
        qos=() if set(row.qos) == set(above.qos) else row.qos,
        default_qos="" if row.default_qos == above.default_qos else row.default_qos,
        user_submit_limit=None if row.user_submit_limit == above.user_submit_limit else row.user_submit_limit,
    )


def _row(item: Mapping[str, Any]) -> Row:
    share = _number(item.get("shares_raw"))
    return Row(
        account=_text(item, "account"),
        user=_text(item, "user"),
        partition=_text(item, "partition"),
        parent=_text(item, "parent_account") if not _text(item, "user") else "",
        is_default=item.get("is_default") is True,
        qos=tuple(_texts(item.get("qos"))),
        default_qos=_text(below(item, "default"), "qos"),
        tres={path: limits for path in (*OWN_LISTS, *INHERITED_LISTS) if (limits := _limits(item, path))},
        submit_limit=_number(below(item, "max", "jobs", "per").get("submitted")),
        user_submit_limit=_number(below(item, "max", "jobs").get("total")),
        share=None if share == SHARE_OF_PARENT else share,
    )


def tres_name(entry: Mapping[str, Any]) -> str:
    """Return the name of a TRES: `cpu`, `gres/gpu`. Raises ParseError."""
    kind, name = _text(entry, "type"), _text(entry, "name")
    if not kind:
        raise ParseError("slurmrestd", str(entry), "a TRES has no type")
    return f"{kind}/{name}" if name else kind


def counts(found: Any) -> dict[str, int]:
    """Parse a list of TRES with counts, memory in MiB; what has no limit is skipped. Raises ParseError."""
    if found is None:
        return {}
    if not isinstance(found, list) or not all(isinstance(entry, Mapping) for entry in found):
        raise ParseError("slurmrestd", str(found), "a list of TRES is not one")
    values = {}
    for entry in found:
        count = entry.get("count")
        if isinstance(count, bool) or not isinstance(count, int):
            raise ParseError("slurmrestd", str(entry), "a TRES has no count")
        if 0 <= count <= COUNT_AT_MOST:
            values[tres_name(entry)] = count
    return values


def _limits(item: Mapping[str, Any], path: Path) -> dict[str, int]:
    return counts(below(item, "max", "tres", *path[:-1]).get(path[-1]))


def _entry(name: str, count: int) -> dict[str, Any]:
    kind, _, rest = name.partition("/")
    return {"type": kind, "name": rest, "count": count}


def below(item: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return the object at a path. Raises ParseError: limits that are not in the answer are unknown."""
    for step in path:
        inner = item.get(step)
        if not isinstance(inner, Mapping):
            raise ParseError(READ, str(item)[:80], f"{step!r} is missing")
        item = inner
    return item


def _number(value: Any) -> int | None:
    """Parse a number that may be unset or infinite. Raises ParseError."""
    if isinstance(value, Mapping):
        if value.get("infinite") is True or value.get("set") is not True:
            return None
        value = value.get("number")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ParseError(READ, str(value), "it should be a whole number")
    return int(value)


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if value is not None and not isinstance(value, str):
        raise ParseError("slurmrestd", str(value), f"{name!r} should be a text")
    return value or ""


def _texts(value: Any) -> Iterator[str]:
    if not isinstance(value, list):
        raise ParseError(READ, str(value), "the QoS are not a list")
    for name in value:
        if not isinstance(name, str):
            raise ParseError(READ, str(name), "a QoS is no name")
        yield name
