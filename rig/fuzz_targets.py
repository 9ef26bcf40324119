# SPDX-License-Identifier: MIT
"""Readers of text from outside, with samples of what they read: commands, messages, configuration, Waldur's JSON."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from agent.bridge import decode
from agent.bridge.decode import Undecodable
from agent.config.load import load
from agent.core.errors import ParseError, WaldurAnswerError
from agent.core.events import ObjectType
from agent.core.periods import Month
from agent.core.usage import UsageQuery
from agent.run.preview import files
from agent.run.preview.files import PlanFileError
from agent.waldur import records
from backends.moab import parse as moab
from backends.moab import usage as moab_usage
from backends.slurm import parse, sreport
from backends.slurm.tally import Tally
from rig.fuzzing import Target
from rig.processes import REPOSITORY

TRANSCRIPTS = REPOSITORY / "tests" / "backends" / "slurm" / "transcripts"
UUID = "0123456789abcdef0123456789abcdef"
MONTH = Month(2026, 5)
SACCT = (
    "lab|ann|billing=4,cpu=4,gres/gpu=1,mem=16000M,node=1|COMPLETED|3600|00:00:00|1777600000|1777590000|17\n"
    "lab|bob|cpu=2,mem=2G|SUSPENDED|86400|00:10:00|2026-05-03T10:00:00|2026-05-03T09:00:00|18\n"
    "|root|cpu=1|RUNNING|0|1-00:00:00|Unknown|1777590000|19\n"
)
SREPORT = "lab|ann|cpu|3600\nlab||cpu|3600\nlab|bob|mem|77\n"
MAM = (
    "a_lab|True|ann,-bob,^eve|uni\na_two|False||\n",
    "1|100.00|40.00|Account=a_lab\n2|0.00|-3.50|Account=a_two,User=ann\n",
    "ann|a_lab\nbob|\n",
    "a_lab|ann|12.50\na_two|bob|0.00\n",
)
MESSAGES: tuple[dict[str, Any], ...] = (
    {"order_uuid": UUID, "order_state": "executing", "object_type": "order", "offering_uuid": UUID},
    {"user_uuid": UUID, "project_uuid": UUID, "granted": True, "object_type": "user_role"},
    {"resource_uuid": UUID, "object_type": "resource"},
    {"offering_user_uuid": UUID, "username": "ann", "object_type": "offering_user"},
    {
        "policy_uuid": UUID,
        "resource_uuid": UUID,
        "settings": {"fairshare": 3},
        "object_type": "resource_periodic_limits",
    },
)
RECORDS: dict[str, Any] = {
    "order": {
        "uuid": UUID, "type": "Create", "state": "executing", "marketplace_resource_uuid": UUID,
        "resource_name": "Lab", "project_slug": "p", "plan_uuid": UUID, "limits": {"cpu": 10},
        "attributes": {"name": "x"}, "created": "2026-05-01T10:00:00Z",
    },
    "resource": {
        "uuid": UUID, "name": "Lab", "slug": "lab", "state": "OK", "backend_id": "a_lab", "project_uuid": UUID,
        "project_slug": "p", "customer_slug": "c", "limits": {"cpu": 10, "mem": 2.5}, "paused": False,
        "offering_plugin_options": {"a": 1}, "backend_metadata": {}, "end_date": "2027-01-31", "offering_uuid": UUID,
    },
    "team_member": {"uuid": UUID, "offering_user_username": "ann", "offering_user_state": "OK"},
    "offering_user": {"uuid": UUID, "user_uuid": UUID, "username": "ann", "state": "OK", "user_full_name": "Ann Lee"},
    "offering": {
        "customer_uuid": UUID, "components": [{"uuid": UUID, "type": "cpu"}], "partitions": [{"partition_name": "p"}],
        "plugin_options": {},
    },
    "quotas": {"quotas": {"cpu": 10, "mem": 2.5}},
}  # fmt: skip


def targets() -> list[Target]:
    """Return all readers."""
    return [*_commands(), *_messages(), *_records(), _configuration(), _plan_files()]


def _commands() -> Iterable[Target]:
    refuses = (ParseError,)
    for name, read in (
        ("assoc", parse.associations),
        ("tres", parse.tres_names),
        ("user", parse.default_accounts),
        ("squeue", parse.job_counts),
        ("assoc_mgr", parse.limit_usage),
    ):
        samples = [path.read_text() for path in sorted(TRANSCRIPTS.glob(f"*/{name}.txt"))]
        yield Target(f"slurm {name}", samples, read, refuses)
    yield Target("slurm clusters", ["c1|9728\nc2|0\n"], parse.clusters, refuses)
    yield Target("sacct", [SACCT], _sacct, refuses)
    yield Target("sreport", [SREPORT], lambda text: sreport._sums(text.split("\n")), refuses)
    readers = (
        moab.accounts,
        moab.funds,
        moab.default_accounts,
        lambda text: moab_usage._summed(UsageQuery(MONTH), text.split("\n")),
    )
    for name, sample, read in zip(("accounts", "funds", "users", "usage"), MAM, readers, strict=True):
        yield Target(f"mam {name}", [sample], read, refuses)


def _sacct(text: str) -> object:
    query = UsageQuery(MONTH)
    tally = Tally(query, (1777593600, 1780272000))
    tally.add(text.split("\n"))
    return tally.usage()


def _messages() -> Iterable[Target]:
    def read(document: Any, kind: ObjectType | None) -> object:
        body = (
            document.encode("utf-8", "surrogatepass")
            if isinstance(document, str)
            else json.dumps(document).encode()
        )
        return decode.jobs(body, len(body), offering_uuid=UUID, object_type=kind)

    texts = [json.dumps(message) for message in MESSAGES]
    yield Target("message", [*MESSAGES, *texts], lambda document: read(document, None), (Undecodable,))
    for kind in (ObjectType.ORDER, ObjectType.USER_ROLE, ObjectType.PERIODIC_LIMITS):
        yield Target(
            f"message {kind}",
            [*MESSAGES, *texts],
            lambda document, kind=kind: read(document, kind),
            (Undecodable,),
        )


def _records() -> Iterable[Target]:
    """JSON of Waldur comes as an object; anything else is refused by the client before."""

    def reading(name: str) -> Any:
        reader = getattr(records, name)
        if name == "offering":
            return lambda record: reader(record, UUID) if isinstance(record, dict) else None
        return lambda record: reader(record) if isinstance(record, dict) else None

    for name, sample in RECORDS.items():
        yield Target(f"waldur {name}", [sample], reading(name), (WaldurAnswerError,))


def _configuration() -> Target:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    file = folder / "site.yaml"
    texts = [path.read_text() for path in sorted((REPOSITORY / "examples").glob("*.yaml"))]

    def read(given: Any) -> object:
        text = given if isinstance(given, str) else yaml.safe_dump(given, allow_unicode=True)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        return load(file, {})

    return Target("configuration", [*texts, *map(yaml.safe_load, texts)], read, ())


def _plan_files() -> Target:
    file = Path(tempfile.mkdtemp(prefix="fuzz-")) / "plan.json"
    sample = {
        "format": files.FORMAT, "offering": UUID, "mode": "order_process", "made": "2026-05-01T10:00:00+00:00",
        "expires": "2026-05-02T10:00:00+00:00",
        "actions": [{"action": "RemoveMember", "account": "lab", "user": "ann", "reason": "left"}],
    }  # fmt: skip

    def read(given: Any) -> object:
        text = given if isinstance(given, str) else json.dumps(given)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        return files.read(file)

    return Target("plan file", [sample, json.dumps(sample)], read, (PlanFileError,))
