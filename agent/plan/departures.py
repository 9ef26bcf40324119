# SPDX-License-Identifier: MIT
"""How the account of an offering user ends: which users leave now, what is reported to Waldur, and what the
directory changes.

state                 on the cluster             calls                                         then
Requested deletion    in accounts                BeginDeletion, before any removal             Deleting
Requested deletion    in accounts, none is left  none: it waits until a removal is possible    stays
Requested deletion    in no account              BeginDeletion, then as Deleting; none of it   Deleted
                                                 where the directory may not release them
Deleting              in accounts                none: the members' plan removes them          stays
Deleting              removal refused finally    FailDeletion                                  Error deleting
Deleting              in no account              DeactivateUser (directory), CompleteDeletion  Deleted
Error deleting        in accounts                none: their removal is tried again            stays
Deleting, Requested   an entry may be theirs     FailDeletion, once they are in no account     Error deleting
Error deleting        in no account              BeginDeletion, then as Deleting               Deleted
Deleted               in accounts                none: the members' plan removes them          stays

Whom Waldur takes back before `BeginDeletion` keeps everything. Homes, files and the username stay in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from agent.core.account_names import fold
from agent.core.actions import Action, ObjectKind, objects_ended
from agent.core.directory_actions import BeginDeletion, CompleteDeletion, DeactivateUser, FailDeletion
from agent.core.errors import BackendError, SiteAgentError
from agent.core.model import Deletion, OfferingUser
from agent.plan.posix_accounts import possible_entries

WHY = "Waldur wants the account deleted"
UNDER_WAY = (Deletion.REQUESTED, Deletion.DELETING, Deletion.FAILED)


@dataclass(frozen=True, slots=True)
class Departure:
    """One person on the way out."""

    user: OfferingUser
    # Accounts of the offering that they are still in.
    inside: Set[str] = frozenset()
    # Why they cannot be removed from one, or from the directory, where time will not change that.
    fault: SiteAgentError | None = None
    # Another person who stays has the same name here, so the entry in the directory is theirs too.
    is_shared: bool = False
    # The directory releases them as well.
    is_released: bool = False


def departing(users: Iterable[OfferingUser], readmitted: Set[str] = frozenset()) -> list[OfferingUser]:
    """Return users who leave all accounts now, also those whom Waldur has as deleted and who were put back.
    `readmitted`: those whom Waldur did not let begin, by uuid.
    """
    return [user for user in users if user.is_on_the_way_out and user.uuid not in readmitted]


def staying_names(users: Iterable[OfferingUser], readmitted: Set[str] = frozenset()) -> frozenset[str]:
    """Return the names of those whose account is neither deleted nor being deleted: of two logins of one person that
    have the same name, one may leave while the other stays. Whose name is another person's in the directory has none.
    """
    gone = (Deletion.DELETING, Deletion.FAILED, Deletion.DELETED)
    return frozenset(
        fold(user.cluster_name)
        for user in users
        if user.username and not user.is_name_taken and (user.state not in gone or user.uuid in readmitted)
    )


def openings(users: Iterable[OfferingUser]) -> list[BeginDeletion]:
    """Return what is reported to Waldur before these users are removed from anything. Of those who are in nothing
    `closing` reports it, with the rest of their end: where that may not happen, nothing begins.
    """
    return [
        BeginDeletion(offering_user=user.uuid, username=user.cluster_name, reason=WHY)
        for user in users
        if user.state == Deletion.REQUESTED
    ]


def due(opening: BeginDeletion, planned: Iterable[Action], allowed: Set[Action]) -> bool:
    """Return whether a deletion begins now: the person may be removed from something."""
    removed = objects_ended((action for action in planned if action in allowed), ObjectKind.MEMBER)
    return fold(opening.username) in {fold(thing.of) for thing in removed}


def unknown_entry(user: OfferingUser) -> BackendError | None:
    """Return why the directory cannot release a person who is in no account any more: which entry is theirs is not
    known, and some may be.
    """
    if user.directory_name is not None or not user.possible_names:
        return None
    return BackendError(
        f"{user.username} is not deleted: {possible_entries(user.possible_names)}. Correct that entry, "
        "or the account in Waldur"
    )


def closing(departures: Iterable[Departure]) -> Iterator[Action]:
    """Yield what ends the deletion of those who are in no account any more, or reports why it cannot go on."""
    for each in departures:
        uuid, name, state = each.user.uuid, each.user.cluster_name, each.user.state
        if each.fault is not None:
            if state == Deletion.DELETING or (state == Deletion.REQUESTED and not each.inside):
                yield FailDeletion(offering_user=uuid, username=name, message=str(each.fault), reason=WHY)
        elif not each.inside:
            if state != Deletion.DELETING:
                yield BeginDeletion(offering_user=uuid, username=name, reason=WHY)
            if each.is_released and not each.is_shared and name:
                uid = each.user.posix.uid if each.user.posix else None
                yield DeactivateUser(user=name, login=each.user.waldur_username, uid=uid, reason=WHY)
            yield CompleteDeletion(offering_user=uuid, username=name, reason=WHY)
