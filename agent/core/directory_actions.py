# SPDX-License-Identifier: MIT
"""What is done about names: in Waldur for one offering user, and in the site's directory for people and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from agent.core.account_names import fold
from agent.core.actions import FREE, NO_PARTS, Action, Effect, Target, Where
from agent.core.model import Part, Snapshot
from agent.core.policy import Charge, Cost, PolicyRules
from agent.core.waldur_actions import WaldurAction

NO_IDENTIFIERS: Mapping[str, str] = {}
USER_ID: Mapping[str, str] = {"user": "user"}
# What people log in with. Homes and shells are the directory's words, in lower case.
LOGIN_ATTRIBUTES = frozenset({"homedirectory", "loginshell"})
# A group is named like its account, and known by that.
GROUP_ID: Mapping[str, str] = {"account": "group"}


@dataclass(frozen=True, kw_only=True)
class BeginUsername(WaldurAction):
    """Report to Waldur that the account of an offering user is being made (`begin_creating`)."""

    subject = "of offering user {offering_user}"
    target, identifiers = Target.USER, NO_IDENTIFIERS
    offering_user: str


@dataclass(frozen=True, kw_only=True)
class AssignUsername(WaldurAction):
    """Give an offering user the name on the cluster; Waldur moves it to OK. A person who has had none here gets a user
    in the directory, where the site has one.
    """

    subject = "{username:yet to be chosen} to offering user {offering_user}"
    effect, target, identifiers = Effect.ADD, Target.USER, {"user": "username"}
    costs = frozenset({Cost.PEOPLE_MADE, Cost.PEOPLE_RENAMED})
    offering_user: str
    # Empty in a plan: not known before.
    username: str
    # The person has had none here.
    is_new: bool = field(default=False, compare=False)
    # The one that the person had.
    before: str = field(default="", compare=False)

    def charges(self, snapshot: Snapshot, rules: PolicyRules) -> tuple[Charge, ...]:
        """Return one charge for the offering user: the name may be known later only."""
        if self.is_new:
            return (Charge(Cost.PEOPLE_MADE, "", self.offering_user),)
        is_another = self.before and self.username and fold(self.before) != fold(self.username)
        return (Charge(Cost.PEOPLE_RENAMED, "", fold(self.before)),) if is_another else ()


@dataclass(frozen=True, kw_only=True)
class CompleteValidation(WaldurAction):
    """What Waldur waited for has been done by the person; comes before the name."""

    subject = "of offering user {offering_user}"
    target, identifiers = Target.USER, NO_IDENTIFIERS
    offering_user: str


@dataclass(frozen=True, kw_only=True)
class AskAccountLinking(WaldurAction):
    """Let Waldur ask the person to link an account, and show a comment with a link."""

    verb = "ask for account linking"
    subject = "of offering user {offering_user}: {comment}"
    target, identifiers = Target.USER, NO_IDENTIFIERS
    offering_user: str
    comment: str = ""
    comment_url: str = ""


@dataclass(frozen=True, kw_only=True)
class AskValidation(WaldurAction):
    """Let Waldur ask the person for an additional validation, and show a comment with a link."""

    verb = "ask for validation"
    subject = "of offering user {offering_user}: {comment}"
    target, identifiers = Target.USER, NO_IDENTIFIERS
    offering_user: str
    comment: str = ""
    comment_url: str = ""


@dataclass(frozen=True, kw_only=True)
class FailUsername(WaldurAction):
    """Set an offering user to `Error creating`. The reason goes to the log, Waldur takes none."""

    subject = "of offering user {offering_user}: {message}"
    target, identifiers = Target.USER, NO_IDENTIFIERS
    offering_user: str
    message: str


@dataclass(frozen=True, kw_only=True)
class BeginDeletion(WaldurAction):
    """Report to Waldur that the account of an offering user is being deleted; it cannot be undone from then on."""

    subject = "of {username:no username yet}, offering user {offering_user}"
    target, identifiers, feature = Target.USER, {"user": "username"}, "set_deleting"
    offering_user: str
    username: str = ""


@dataclass(frozen=True, kw_only=True)
class CompleteDeletion(WaldurAction):
    """Report to Waldur that an offering user is in no account any more. Homes and files stay."""

    subject = "of {username:no username yet}, offering user {offering_user}"
    target, identifiers, feature = Target.USER, {"user": "username"}, "set_deleted"
    offering_user: str
    username: str = ""


@dataclass(frozen=True, kw_only=True)
class FailDeletion(WaldurAction):
    """Set an offering user to `Error deleting`. The reason goes to the log and journal, Waldur takes none."""

    subject = "of {username:no username yet}, offering user {offering_user}: {message}"
    target, identifiers, feature = Target.USER, {"user": "username"}, "set_error_deleting"
    offering_user: str
    username: str = ""
    message: str = field(compare=False)


class DirectoryAction(Action):
    """Done in the site's directory (LDAP), of which a snapshot shows nothing."""

    where: ClassVar[Where] = Where.DIRECTORY
    parts: ClassVar[frozenset[Part]] = NO_PARTS


@dataclass(frozen=True, kw_only=True)
class MakeUser(DirectoryAction):
    """A person's user made in the directory; in the journal only, for a plan shows the name that is assigned."""

    subject = "{user}"
    effect, target = Effect.ADD, Target.USER
    costs, identifiers = FREE, USER_ID
    user: str


@dataclass(frozen=True, kw_only=True)
class UpdateProfile(DirectoryAction):
    """Write what Waldur says of a person to the directory: name, e-mail, login, home and shell. With another home or
    shell a person may be unable to work: that costs what a removal does.
    """

    subject = "of {user}: {changed}"
    effect, target = Effect.CHANGE, Target.USER
    costs, identifiers = frozenset({Cost.MEMBERS_REMOVED}), USER_ID
    user: str
    # Attribute and new value.
    changes: tuple[tuple[str, str], ...]

    @property
    def changed(self) -> str:
        return ", ".join(name for name, _ in self.changes)

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return not LOGIN_ATTRIBUTES.isdisjoint(name.lower() for name, _ in self.changes)


@dataclass(frozen=True, kw_only=True)
class DeactivateUser(DirectoryAction):
    """A person who has left: disabled in the directory or removed from it where the site wants that, else kept."""

    subject = "{user}"
    effect, target = Effect.REMOVE, Target.USER
    costs, identifiers = frozenset({Cost.MEMBERS_REMOVED}), USER_ID
    user: str
    # The person's in Waldur, by which the directory knows its entry; empty where unknown.
    login: str = ""
    # The same; None where unknown.
    uid: int | None = None


@dataclass(frozen=True, kw_only=True)
class CreateUser(DirectoryAction):
    """Make a person's user in the directory with the name and the numbers that Waldur has for it."""

    subject = "{user} with uid {uid} and gid {gid}"
    effect, target = Effect.ADD, Target.USER
    costs, identifiers = frozenset({Cost.PEOPLE_MADE}), USER_ID
    user: str
    uid: int
    gid: int

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class RenameUser(DirectoryAction):
    """Give a person's user, its group and its places in groups the name that Waldur has now. Homes stay as they are.
    The old name is no login from then on: that costs what a removal does.
    """

    subject = "{before} to {user}"
    effect, target = Effect.CHANGE, Target.USER
    costs, identifiers = frozenset({Cost.MEMBERS_REMOVED, Cost.PEOPLE_RENAMED}), USER_ID
    before: str
    user: str

    def charges(self, snapshot: Snapshot, rules: PolicyRules) -> tuple[Charge, ...]:
        renamed = Charge(Cost.PEOPLE_RENAMED, "", fold(self.before))
        return Charge(Cost.MEMBERS_REMOVED, "", self.user), renamed


@dataclass(frozen=True, kw_only=True)
class AdoptNumbers(DirectoryAction):
    """Give a person's user the numbers that Waldur has: files on disk keep the old ones, and the person loses them."""

    subject = "of {user}: uid and gid {before[0]}:{before[1]} -> {after[0]}:{after[1]}"
    effect, target = Effect.CHANGE, Target.USER
    costs, identifiers = frozenset({Cost.MEMBERS_REMOVED}), USER_ID
    user: str
    before: tuple[int, int]
    after: tuple[int, int]

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class EnableUser(DirectoryAction):
    """Let a person who has come back log in again: the agent had disabled the entry when they left."""

    subject = "{user}"
    effect, target = Effect.ADD, Target.USER
    costs, identifiers = FREE, USER_ID
    user: str
    shell: str = ""


@dataclass(frozen=True, kw_only=True)
class CreateGroup(DirectoryAction):
    """Make the group of an allocation, named like its account, or of a project with the number that Waldur has."""

    subject = "{group}{number}"
    effect, target = Effect.ADD, Target.GROUP
    costs, identifiers = FREE, GROUP_ID
    group: str
    gid: int | None = None

    @property
    def number(self) -> str:
        return "" if self.gid is None else f" with gid {self.gid}"


@dataclass(frozen=True, kw_only=True)
class AddToGroup(DirectoryAction):
    subject = "{group}: {user}"
    effect, target = Effect.ADD, Target.GROUP
    costs, identifiers = FREE, {**GROUP_ID, **USER_ID}
    group: str
    user: str


@dataclass(frozen=True, kw_only=True)
class RemoveFromGroup(DirectoryAction):
    subject = "{group}: {user}"
    effect, target = Effect.REMOVE, Target.GROUP
    costs, identifiers = frozenset({Cost.GROUP_MEMBERS_REMOVED}), {**GROUP_ID, **USER_ID}
    group: str
    user: str


@dataclass(frozen=True, kw_only=True)
class DeleteGroup(DirectoryAction):
    """Delete the group of an allocation, together with its account."""

    subject = "{group}"
    effect, target = Effect.REMOVE, Target.GROUP
    costs, identifiers = frozenset({Cost.ACCOUNTS_EMPTIED}), GROUP_ID
    group: str


@dataclass(frozen=True, kw_only=True)
class AdoptGroupNumber(DirectoryAction):
    """Give a project's group the number that Waldur has: files on disk keep the old one, and its members lose them."""

    subject = "of {group}: gid {before} -> {after}"
    effect, target = Effect.CHANGE, Target.GROUP
    costs, identifiers = frozenset({Cost.GROUP_MEMBERS_REMOVED}), GROUP_ID
    group: str
    before: int
    after: int

    def takes_away(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class DescribeGroup(DirectoryAction):
    """Let a project's group name its organization."""

    subject = "{group}: {after}"
    effect, target = Effect.CHANGE, Target.GROUP
    costs, identifiers = FREE, GROUP_ID
    group: str
    # What it says of that now, and will not any more.
    before: tuple[str, ...] = ()
    after: str


@dataclass(frozen=True, kw_only=True)
class ListGroup(DirectoryAction):
    """List a project's group in another entry of the directory (`project_groups.parents`)."""

    subject = "{group} in {parent}"
    effect, target = Effect.ADD, Target.GROUP
    costs, identifiers = FREE, GROUP_ID
    group: str
    parent: str


@dataclass(frozen=True, kw_only=True)
class DelistGroup(DirectoryAction):
    """Take a project's group out of an entry that lists it."""

    subject = "{group} in {parent}"
    effect, target = Effect.REMOVE, Target.GROUP
    costs, identifiers = frozenset({Cost.GROUP_MEMBERS_REMOVED}), GROUP_ID
    group: str
    parent: str
    # Who may lose something by that.
    members: tuple[str, ...] = field(default=(), compare=False)

    def charges(self, snapshot: Snapshot, rules: PolicyRules) -> tuple[Charge, ...]:
        whose = self.members or ("",)
        return tuple(Charge(Cost.GROUP_MEMBERS_REMOVED, self.group, user) for user in whose)
