# SPDX-License-Identifier: MIT
"""Schema of `backend_settings.ldap.project_groups`: the groups that Waldur has for projects, in the directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import EXCLUDE, Schema, ValidationError, fields, validate, validates_schema

from agent.config.model import Problem, Severity
from agent.core.account_names import uuid_hex
from agent.core.directory import GroupParent, ProviderGroupRules

SLUG = "{slug}"
# Classes that hold members by their DN.
BY_DN = frozenset({"groupofnames", "groupofmembers"})
ATTRIBUTE = r"[A-Za-z][A-Za-z0-9-]*\Z"


@dataclass(frozen=True, slots=True)
class ProviderGroupSettings:
    """`base`: the whole DN of the place of new groups; `attribute`: `memberUid` holds usernames, `member` DNs."""

    base: str
    classes: tuple[str, ...]
    attribute: str
    rules: ProviderGroupRules


def _is_uuid(text: str) -> None:
    try:
        uuid_hex(text)
    except ValueError as error:
        raise ValidationError(f"{text!r} is no uuid") from error


def _is_description(text: str) -> None:
    if text and text.count(SLUG) != 1:
        raise ValidationError(f"use {SLUG} once, such as organization={SLUG}")


def _word(*words: str) -> fields.String:
    """Return a key with one of these words, the first by default."""
    return fields.String(
        load_default=words[0],
        validate=validate.OneOf(words, error="{input!r} is not known; use one of {choices}"),
    )


class ParentSchema(Schema):
    class Meta:
        unknown = EXCLUDE

    dn = fields.String(
        required=True,
        validate=validate.Regexp(r"[^=]+=.+", error="is no DN"),
        error_messages={"required": "is missing"},
    )
    attribute = fields.String(
        load_default="member", validate=validate.Regexp(ATTRIBUTE, error="{input!r} is not an attribute name")
    )
    offering_uuids = fields.List(fields.String(validate=_is_uuid), load_default=list)


class ProviderGroupsSchema(Schema):
    class Meta:
        unknown = EXCLUDE

    enabled = fields.Boolean(load_default=False)
    ou = fields.String(load_default="ou=projects")
    object_classes = fields.List(
        fields.String(),
        load_default=lambda: ["top", "posixGroup"],
        validate=validate.Length(1, error="is empty"),
    )
    member_attribute = _word("memberUid", "member")
    membership = _word("sync", "add_only")
    on_gid_mismatch = _word("report", "adopt")
    parents = fields.List(fields.Nested(ParentSchema), load_default=list)
    organization_description = fields.String(load_default="", validate=_is_description)
    managed_marker = fields.String(load_default="")

    @validates_schema(skip_on_field_errors=True)
    def _check_classes(self, data: Mapping[str, Any], **_: Any) -> None:
        classes = {word.casefold() for word in data["object_classes"]}
        if data["member_attribute"] == "member" and not classes & BY_DN:
            raise ValidationError(
                {
                    "object_classes": [
                        "`member_attribute: member` needs groupOfNames or groupOfMembers among them"
                    ]
                }
            )


def settings_of(loaded: Mapping[str, Any] | None, base_dn: str) -> ProviderGroupSettings | None:
    """Return the settings; None where the groups are not wanted."""
    if loaded is None or not loaded["enabled"]:
        return None
    parents = (
        GroupParent(each["dn"], each["attribute"], frozenset(map(uuid_hex, each["offering_uuids"])))
        for each in loaded["parents"]
    )
    return ProviderGroupSettings(
        base=",".join(filter(None, (loaded["ou"], base_dn))),
        classes=tuple(loaded["object_classes"]),
        attribute=loaded["member_attribute"],
        rules=ProviderGroupRules(
            is_add_only=loaded["membership"] == "add_only",
            adopts=loaded["on_gid_mismatch"] == "adopt",
            description=loaded["organization_description"],
            parents=tuple(parents),
        ),
    )


def warnings(loaded: Mapping[str, Any] | None, place: str) -> Iterator[Problem]:
    """Yield warnings: settings that are possible and rarely meant."""
    if loaded is None:
        return
    if loaded["organization_description"] == SLUG:
        words = "has no word beside {slug}: a slug that has changed stays, for nobody can tell whose description it is"
        yield Problem(Severity.WARNING, f"{place}.organization_description", words)
    if loaded["managed_marker"]:
        words = "has no effect, as in `waldur-site-agent`"
        yield Problem(Severity.WARNING, f"{place}.managed_marker", words)
