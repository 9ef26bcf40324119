# SPDX-License-Identifier: MIT
"""The keys of `backend_settings.ldap.project_groups`: the groups that Waldur has for projects, in the directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marshmallow import ValidationError, validate

from agent.config.field_types import Several, Text, choice
from agent.config.findings import Findings, key_path
from agent.config.keys import idle, key, required
from agent.core.account_names import uuid_hex
from agent.core.directory import GroupParent, ProviderGroupRules

SLUG = "{slug}"
# Classes that hold members by their DN.
BY_DN = frozenset({"groupofnames", "groupofmembers"})


def attribute_name(text: str) -> str:
    if not (text.isascii() and text[:1].isalpha() and text.replace("-", "").isalnum()):
        raise ValidationError("an attribute name is needed")
    return text


def classes() -> Several:
    """Return the type of a list of object classes."""
    return Several(Text(), validate=validate.Length(1, error="it cannot be empty"))


def _uuid(text: str) -> str:
    try:
        return uuid_hex(text)
    except ValueError as error:
        raise ValidationError("a uuid is needed") from error


def _dn(text: str) -> str:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValidationError("a DN is needed")
    return text


def _description(text: str) -> str:
    if text and text.count(SLUG) != 1:
        raise ValidationError(f"use {SLUG} once, such as organization={SLUG}")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentKeys:
    dn: str = required("the entry that lists the groups", of=Text(_dn))
    attribute: str = key("member", "the attribute that lists them", of=Text(attribute_name))
    offering_uuids: tuple[str, ...] = key((), "offerings; this one without any", of=Several(Text(_uuid)))


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderGroupSettings:
    """How the directory follows the groups that Waldur has for projects."""

    enabled: bool = key(False, "make the groups, and keep their members as Waldur has them")
    # In the end as a whole DN.
    base: str = key("ou=projects", "where new groups stand, below `base_dn`; it must exist. Groups that stand deeper "
        "are found as well", name="ou")
    classes: tuple[str, ...] = key(("top", "posixGroup"), "classes of new groups", name="object_classes", of=classes(),
        usual="top, posixGroup")
    attribute: str = key("memberUid", "`member` holds the DNs of people's entries; it needs groupOfNames or "
        "groupOfMembers among the classes", name="member_attribute", of=choice("memberUid", "member"))
    membership: str = key("sync", "`add_only`: no member is removed from a group", of=choice("sync", "add_only"))
    on_gid_mismatch: str = key("report", "`adopt`: a group with another number gets Waldur's",
        of=choice("report", "adopt"))
    parents: tuple[ParentKeys, ...] = key((), "list of entries that list the groups: `dn`, `attribute` (`member`), "
        "`offering_uuids` (this offering)")
    organization_description: str = key("", "a `description` with `{slug}` of the project's organization, such as "
        "`organization={slug}`", of=Text(_description))
    managed_marker: Any = idle("`waldur-site-agent` does not read it either")

    @property
    def rules(self) -> ProviderGroupRules:
        return ProviderGroupRules(
            is_add_only=self.membership == "add_only",
            adopts=self.on_gid_mismatch == "adopt",
            description=self.organization_description,
            parents=tuple(GroupParent(p.dn, p.attribute, frozenset(p.offering_uuids)) for p in self.parents),
        )
# fmt: on


def check_provider_groups(settings: ProviderGroupSettings, place: str, findings: Findings) -> None:
    """Add what does not go together, and settings that are possible and rarely meant."""
    if settings.attribute == "member" and not {word.casefold() for word in settings.classes} & BY_DN:
        words = "`member_attribute: member` needs groupOfNames or groupOfMembers among them"
        findings.error(key_path(place, "object_classes"), words)
    if settings.organization_description == SLUG:
        words = (
            "has no word besides {slug}: a slug that has changed stays, as whose description it is is unknown"
        )
        findings.warn(key_path(place, "organization_description"), words)
