# SPDX-License-Identifier: MIT
"""One action of each kind, with the line that it is rendered to."""

from __future__ import annotations

from collections.abc import Iterator

from agent.core.actions import (
    Action,
    AddMember,
    AllowMember,
    AllowSubmission,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    CreateAccount,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    SetQos,
    SetUserLimits,
)
from agent.core.association_actions import (
    KeepDefaultAccount,
    RemovePartition,
    ResetQosUsage,
    SetMemberQos,
)
from agent.core.directory_actions import (
    AddToGroup,
    AdoptGroupNumber,
    AdoptNumbers,
    AskAccountLinking,
    AskValidation,
    AssignUsername,
    BeginDeletion,
    BeginUsername,
    CompleteDeletion,
    CompleteValidation,
    CreateGroup,
    CreateUser,
    DeactivateUser,
    DeleteGroup,
    DelistGroup,
    DescribeGroup,
    EnableUser,
    FailDeletion,
    FailUsername,
    ListGroup,
    MakeUser,
    RemoveFromGroup,
    RenameUser,
    UpdateProfile,
)
from agent.core.host_actions import (
    MakeHome,
    MakeProjectDirectory,
    SetProjectQuota,
    SetQuota,
)
from agent.core.key_actions import (
    ConfirmKey,
    EndKey,
    IssueKey,
    PauseKey,
    ReportKey,
    ReportKeyUsage,
    ResumeKey,
)
from agent.core.periodic_actions import ResetRawUsage, SetFairshare, SetPeriodicLimits
from agent.core.usage_actions import ReportUsage, ReportUserUsage
from agent.core.waldur_actions import (
    ApproveOrder,
    ClaimAccount,
    CompleteOrder,
    ConfirmKeyDeletion,
    FailOrder,
    FailResource,
    MarkAllocationOk,
    MarkResourceOk,
    MemberStatus,
    OfferImport,
    RefreshLastSync,
    RefuseKey,
    RegisterAgent,
    RejectOrder,
    ReleaseAccount,
    RenewService,
    ReportLimits,
    ReportMembers,
    ReportMetadata,
)

ONE_KEY = {"key": "k", "resource": "r", "account": "a", "client_id": "c"}
RENDERED: list[tuple[Action, str]] = [
    (IssueKey(**ONE_KEY), "issue key c of a"),
    (PauseKey(**ONE_KEY), "pause key c of a"),
    (ResumeKey(**ONE_KEY), "resume key c of a"),
    (EndKey(**ONE_KEY), "end key c of a"),
    (ReportKey(key="k"), "report key k"),
    (ConfirmKey(key="k", state="paused"), "confirm key k paused"),
    (
        ReportKeyUsage(**ONE_KEY, month="2024-03", before=(("cpu", "1.00"),), after=(("cpu", "2.00"),)),
        "report usage of key c of a in 2024-03: cpu 1.00 -> 2.00",
    ),
    (CreateAccount(account="a", parent="p"), "create account a below p"),
    (CreateAccount(account="a", parent="p", description="d", organization="o"), "create account a below p"),
    (MoveAccount(account="a", before="p", after="q"), "move account a from p to q"),
    (
        SetLimits(account="a", before=(("cpu", 5),), after=(("cpu", 6), ("mem", 0))),
        "set limits a cpu=5->6 mem=none->0",
    ),
    (
        SetQos(account="a", before=("normal",), after=("a", "b"), default="a"),
        "set QoS a normal -> a,b default a",
    ),
    (SetQos(account="a", after=("a",), default="a"), "set QoS a none -> a default a"),
    (CreateQos(account="a"), "create QoS a"),
    (
        CreateQos(account="a", flags="NoDecay", limits=(("MaxJobs", "5"), ("MaxWall", "60"))),
        "create QoS a NoDecay MaxJobs=5 MaxWall=60",
    ),
    (DeleteQos(account="a"), "delete QoS a"),
    (ResetQosUsage(account="a"), "reset usage of QoS a"),
    (SetLimits(account="a", after=(("cpu", 6),), on_qos=True), "set limits a on its QoS cpu=none->6"),
    (
        SetMemberQos(account="a", user="u", before=("x",), after=("y",), default="y"),
        "set QoS of member u in a x -> y default y",
    ),
    (KeepDefaultAccount(account="a", user="u"), "keep default account a of u"),
    (RemovePartition(account="a", user="u", partition="x"), "remove partition x of u in a"),
    (RemovePartition(account="a", user="u", partition=""), "remove partition without a name of u in a"),
    (AddMember(account="a", user="u"), "add member u to a"),
    (
        AddMember(account="a", user="u", partitions=("x", "y"), qos=("q",), default_qos="q"),
        "add member u to a on x,y",
    ),
    (RemoveMember(account="a", user="u"), "remove member u from a"),
    (MoveDefaultAccount(account="b", user="u", before="a"), "move default account of u from a to b"),
    (BlockSubmission(account="a"), "block submission a"),
    (AllowSubmission(account="a"), "allow submission a"),
    (BlockMember(account="a", user="u"), "block member u in a"),
    (AllowMember(account="a", user="u"), "allow member u in a"),
    (CancelJobs(account="a", user="u", jobs=2), "cancel jobs of u in a (2 active)"),
    (CancelJobs(account="a"), "cancel jobs of a"),
    (CancelJobs(account="a", jobs=0), "cancel jobs of a (0 active)"),
    (DeleteAccount(account="a", parent="p"), "delete account a below p"),
    (ApproveOrder(order="o"), "approve order o"),
    (ClaimAccount(order="o", resource="r", account="a"), "claim account a for resource r"),
    (
        ReportLimits(resource="r", limits=(("cpu", 1.5), ("mem", 2))),
        "report limits of resource r: cpu=1.5 mem=2",
    ),
    (ClaimAccount(resource="r", account="a"), "claim account a for resource r"),
    (
        SetUserLimits(account="a", user="u", before=(("cpu", 5),), after=(("cpu", 6), ("mem", -1))),
        "set limits of user u in a cpu=5->6 mem=none->-1",
    ),
    (SetFairshare(account="a", before=None, after=5), "set fairshare of a parent -> 5"),
    (
        SetPeriodicLimits(account="a", limit_type="GrpTRESMins", before=(("cpu", 5),), after=(("cpu", 6),)),
        "set periodic limits of a GrpTRESMins cpu=5->6",
    ),
    (ResetRawUsage(account="a"), "reset raw usage of a"),
    (ReportMetadata(resource="r", metadata='{"qos": "q"}'), 'report metadata of resource r: {"qos": "q"}'),
    (RefreshLastSync(resource="r"), "refresh last sync of resource r"),
    (MarkResourceOk(resource="r"), "mark resource OK r"),
    (OfferImport(account="a", project="p"), "offer import of a into project p"),
    (FailResource(resource="r", message="why"), "fail resource r: why"),
    (BeginUsername(offering_user="o"), "begin username of offering user o"),
    (AssignUsername(offering_user="o", username="u"), "assign username u to offering user o"),
    (
        AssignUsername(offering_user="o", username=""),
        "assign username yet to be chosen to offering user o",
    ),
    (CompleteValidation(offering_user="o"), "complete validation of offering user o"),
    (
        AskAccountLinking(offering_user="o", comment="why", comment_url="https://x/"),
        "ask for account linking of offering user o: why",
    ),
    (AskValidation(offering_user="o", comment="why"), "ask for validation of offering user o: why"),
    (FailUsername(offering_user="o", message="why"), "fail username of offering user o: why"),
    (MakeUser(user="u"), "make user u"),
    (UpdateProfile(user="u", changes=(("cn", "A B"), ("sn", "B"))), "update profile of u: cn, sn"),
    (BeginDeletion(offering_user="ou", username="u"), "begin deletion of u, offering user ou"),
    (CompleteDeletion(offering_user="ou"), "complete deletion of no username yet, offering user ou"),
    (
        FailDeletion(offering_user="ou", username="u", message="no"),
        "fail deletion of u, offering user ou: no",
    ),
    (DeactivateUser(user="u"), "deactivate user u"),
    (CreateGroup(group="g"), "create group g"),
    (AddToGroup(group="g", user="u"), "add to group g: u"),
    (AdoptGroupNumber(group="g", before=5, after=6), "adopt group number of g: gid 5 -> 6"),
    (DescribeGroup(group="g", after="o"), "describe group g: o"),
    (ListGroup(group="g", parent="p"), "list group g in p"),
    (DelistGroup(group="g", parent="p"), "delist group g in p"),
    (RemoveFromGroup(group="g", user="u"), "remove from group g: u"),
    (DeleteGroup(group="g"), "delete group g"),
    (CreateUser(user="u", uid=5, gid=6), "create user u with uid 5 and gid 6"),
    (RenameUser(before="v", user="u"), "rename user v to u"),
    (AdoptNumbers(user="u", before=(1, 2), after=(5, 6)), "adopt numbers of u: uid and gid 1:2 -> 5:6"),
    (EnableUser(user="u", shell="/bin/sh"), "enable user u"),
    (MakeHome(user="u", path="/home/u", umask="0077"), "make home /home/u of u with umask 0077"),
    (
        SetQuota(user="u", provider="xfs", place="/home", limits=(("bsoft", "9g"), ("bhard", "10g"))),
        "set quota of u on /home (xfs) bsoft=9g bhard=10g",
    ),
    (
        MakeProjectDirectory(
            account="a", path="/p/a", owner="o", group="g", gid=7, mode="2770", has_acl=True, project_id=8
        ),
        "make project directory /p/a of o:g (7) with mode 2770 and rights for g, project 8",
    ),
    (
        SetProjectQuota(account="a", path="/p/a", project_id=8, mount_point="/p", limits=(("bhard", "10"),)),
        "set project quota of /p/a (project 8 on /p) bhard=10",
    ),
    (CompleteOrder(order="o"), "complete order o"),
    (ReleaseAccount(order="o", resource="r", account="a"), "release account a from resource r"),
    (MarkAllocationOk(order="o", resource="r"), "mark allocation OK of resource r"),
    (RefuseKey(key="k", message="none here"), "refuse key k: none here"),
    (ConfirmKeyDeletion(key="k"), "confirm deletion of key k"),
    (
        ReportMembers(resource="r", statuses=(MemberStatus("p", "u", "PROJECT.MEMBER", "synced"),)),
        "report members of resource r: u synced",
    ),
    (RegisterAgent(service="report", backend="slurm"), "register agent with service report on slurm"),
    (RenewService(service="report"), "renew service report"),
    (FailOrder(order="o", message="why"), "fail order o: why"),
    (RejectOrder(order="o", message=""), "reject order o"),
    (RejectOrder(order="o", message="why"), "reject order o: why"),
    (
        OfferImport(account="a", project="p", limits=(("cpu", 10),)),
        "offer import of a into project p",
    ),
    (
        ReportUsage(
            resource="r",
            account="a",
            month="2026-11",
            before=(("cpu", "10.00"), ("mem", None)),
            after=(("cpu", "12.50"), ("mem", "3.00"), ("gpu", "0.00")),
        ),
        "report usage of a in 2026-11: cpu 10.00 -> 12.50, mem 3.00, gpu 0.00",
    ),
    (
        ReportUserUsage(
            resource="r",
            account="a",
            month="2026-11",
            component="cpu",
            before=(("ann", "1.00"),),
            after=(("ann", "0.00"), ("bob", "2.00")),
        ),
        "report usage of users of a in 2026-11, cpu: ann 1.00 -> 0.00, bob 2.00",
    ),
]


def kinds(base: type[Action] = Action) -> Iterator[type[Action]]:
    for kind in base.__subclasses__():
        if "verb" in vars(kind) and kind.__module__.startswith("agent."):
            yield kind
        yield from kinds(kind)


ALL_KINDS = sorted(kinds(), key=lambda kind: kind.__name__)
