# SPDX-License-Identifier: MIT
"""The protocols of username backends and group directories.

Third parties implement `UsernameBackend` and register a `UsernamePlugin`. A backend may raise
`AccountLinkingRequired` or `AdditionalValidationRequired` where the person must act first, `BackendUnavailable` where
nothing can be known now, and an error with `of_host` for a fault of the site: then the state of no person is
changed. Any other `BackendError` is a fault that concerns one person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from agent.core.directory import (
    AccountRules,
    DirectoryGroup,
    DirectoryPeople,
    ProviderGroup,
    ProviderGroupRules,
    SeenProviderGroups,
)
from agent.core.model import OfferingUser
from agent.core.plans import Outcome
from backends.base import Parsed

if TYPE_CHECKING:
    from agent.core.directory_actions import DirectoryAction


@dataclass(frozen=True, slots=True)
class UsernameContext:
    """What the agent gives a username backend."""

    offering_uuid: str
    state_dir: Path
    # Who has which name in Waldur already (username to user uuid).
    owners: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # Names that the cluster knows; asked for only where a new name is made, and raises BackendError.
    on_cluster: Callable[[], frozenset[str]] = frozenset


class UsernameBackend(Protocol):
    def open(self) -> None:
        """Connect and log in. Raises BackendUnavailable, before anything is written to Waldur."""
        ...

    def close(self) -> None:
        """Release what `open` took. Safe to repeat."""
        ...

    def find(self, user: OfferingUser) -> str:
        """Return the name that the person has already; empty when there is none. Changes nothing."""
        ...

    def propose(self, user: OfferingUser) -> str:
        """Return the name that `make` would give now; empty where that is not known. Changes nothing."""
        ...

    def make(self, user: OfferingUser) -> str:
        """Make a name for a person who has none; empty where names are not made here. Repeated, it is the same."""
        ...

    def stale_profiles(self, users: Sequence[OfferingUser]) -> Sequence[DirectoryAction]:
        """Return what differs between Waldur and here about people who have a name. Changes nothing."""
        ...

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        """Carry out profile updates and deactivations. Return one outcome for each."""
        ...


@runtime_checkable
class UserDirectory(Protocol):
    """A username backend that keeps people in a directory."""

    # The users that it has made, oldest first.
    made: list[str]

    def require_room(self) -> None:
        """Raise a BackendError with `of_host` where no new user can be made. Changes nothing."""
        ...


@runtime_checkable
class AccountDirectory(Protocol):
    """A username backend whose directory may follow the accounts that Waldur has, instead of making names."""

    @property
    def account_rules(self) -> AccountRules | None:
        """Return how it follows them; None where it makes names itself."""
        ...

    def read_accounts(self, users: Sequence[OfferingUser]) -> DirectoryPeople:
        """Return the entries that these users have, or that are in their way. Raises BackendError."""
        ...

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        """Carry the actions out for users who were read. Return one outcome for each."""
        ...


class UsernamePlugin(Protocol):
    """The object that an entry point of the group `waldur_site_cluster.username_backends` names."""

    @property
    def settings(self) -> type:
        """Return the frozen dataclass whose fields declare the keys of `backend_settings` that this backend reads."""
        ...

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        """Parse `backend_settings`, found at `path` of the configuration, to the backend's settings."""
        ...

    def connect(self, settings: Any, context: UsernameContext) -> UsernameBackend:
        """Return the backend, not yet opened."""
        ...


class GroupDirectory(Protocol):
    """Groups that are named like accounts."""

    def open(self) -> None:
        """Connect and log in. Raises BackendUnavailable."""
        ...

    def close(self) -> None:
        """Release what `open` took. Safe to repeat."""
        ...

    def read(self, names: Iterable[str]) -> Mapping[str, DirectoryGroup]:
        """Return the groups of these names, and an obstacle for each name that cannot be a group's.

        Raises BackendError.
        """
        ...

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        """Carry the actions out, those of one group together. Return one outcome for each."""
        ...


@runtime_checkable
class GroupPlugin(Protocol):
    """A username plugin whose directory holds groups as well."""

    def groups(self, settings: Any) -> GroupDirectory:
        """Return the directory's groups, not yet opened."""
        ...


class ProviderGroupDirectory(Protocol):
    """Groups that Waldur has for projects of the provider."""

    def open(self) -> None:
        """Connect and log in. Raises BackendUnavailable."""
        ...

    def close(self) -> None:
        """Release what `open` took. Safe to repeat."""
        ...

    @property
    def rules(self) -> ProviderGroupRules:
        """Return how the directory follows them."""
        ...

    def read(self, groups: Sequence[ProviderGroup]) -> SeenProviderGroups:
        """Return what there is of these groups, and what is in their way. Raises BackendError."""
        ...

    def apply(self, actions: Sequence[DirectoryAction]) -> Sequence[Outcome]:
        """Carry the actions out for groups that were read. Return one outcome for each."""
        ...


@runtime_checkable
class ProviderGroupPlugin(Protocol):
    """A username plugin whose directory may hold groups that Waldur has for projects."""

    def provider_groups(self, settings: Any) -> ProviderGroupDirectory | None:
        """Return these groups, not yet opened; None where the settings want none."""
        ...
