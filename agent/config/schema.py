# SPDX-License-Identifier: MIT
"""Every key of the configuration that is not one backend's own: one dataclass per map.

They check single values only. Rules between keys are in `offering`, `backend_settings`, `components`. The tables of
docs/configuration.md are made of them (`make docs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from marshmallow import fields

from agent.config import field_types
from agent.config.field_types import Command, Octal, Text, choice, name_text, names, number, whole
from agent.config.homes import NO_QUOTA, HomeQuotaKeys, folder_of_homes, home_folders
from agent.config.keys import WrongValue, idle, key, required
from agent.config.model import FINAL_REPORT_DAYS, ConsoleSettings, LogShipping, Mode, OrderHookSettings
from agent.config.project_directories import NONE_MADE, ProjectDirectoryKeys
from agent.core.account_names import NameRules, fold
from agent.core.components import UsageSource
from agent.core.periodic import LimitType
from agent.core.policy import (
    JournalFailures,
    LimitCuts,
    LimitsSource,
    PolicyMode,
    PolicyRules,
    UsageDecreases,
)

COMPUTED_BY_WALDUR = "Waldur's periodic usage policy computes this now, set it there"
ROOT = "root"
ACCOUNTING_TYPES = ("usage", "limit", "one")
STOMP_PATH = "/rmqws-stomp"
# Versions with MQTT used this path and port 443, whatever verify_ssl said.
MQTT_PATH = "/rmqws"
EVENT_TRANSPORTS = ("websocket", "tcp")
# A slip there stops no worker.
LOOPBACK_ONLY = WrongValue(fallback="the console is as if nothing stood there: loopback, and passwords only")
STOPS_ALL = WrongValue(frozenset(Mode))
STOPS_ORDERS = WrongValue(frozenset({Mode.ORDER_PROCESS}))
STOPS_MEMBERS = WrongValue(frozenset({Mode.MEMBERSHIP_SYNC}))
STOPS_REPORTS = WrongValue(frozenset({Mode.REPORT}))
EMULATOR_URL = "http://localhost:8080"
DEFAULT_BROKER_URL = "redis://127.0.0.1:6379/0"
UMASK = 'write octal digits in quotes, from "0000" to "0777"'
USUAL_UMASK = WrongValue(fallback="homes are private, as without this key")
NOT_USED = WrongValue(fallback="it is not used")
USUAL = PolicyRules()


# Not formatted: one or two lines for a key read as a table.
# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetKeys:
    """How much of one cost to people may come about without an approval."""

    hour: int | None = key(None, "1 or more", of=whole(1))
    day: int | None = key(None, "1 or more, never less than `hour`", of=whole(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyKeys:
    """How far passes may go; at the root for all offerings, and in each offering. None: as above it."""

    mode: PolicyMode | None = key(None, "`sync`; `upsert-only`: nothing is removed, deleted, blocked or lowered; "
        "`create-only`: only accounts that do not exist yet; `observe`: nothing", usual_value=USUAL.mode)
    paused: bool | None = key(None, "true: as `observe`, for a while; the command `pause` does the same without a "
        "change of the file", usual_value=False)
    max_removed_members: int | None = key(None, "more members than this, removed from one account or from the "
        "cluster at once, wait for `approve`", of=whole(0), usual_value=USUAL.max_removed_members)
    max_removed_percent: int | None = key(None, "more percent than this of an account's or the cluster's members "
        "wait; 0 to 100", of=whole(0, 100), usual_value=USUAL.max_removed_percent)
    small_removal: int | None = key(None, "so many may always leave at once, whatever percentage they are",
        of=whole(0), usual_value=USUAL.small_removal)
    max_removed_accounts: int | None = key(None, "more accounts than this, deleted or emptied at once, wait",
        of=whole(0), usual_value=USUAL.max_removed_accounts)
    budgets: Mapping[Any, Any] = key(dict, "how much of each cost to people may come about in an hour and a day",
        each=BudgetKeys, usual="see [below](#budgets)")
    limit_cuts: LimitCuts | None = key(None, "a limit below what is used waits (`hold`), or is set (`allow`) and "
        "ends running jobs", usual_value=USUAL.limit_cuts)
    journal_failures: JournalFailures | None = key(None, "while the [journal](safety.md#the-journal) cannot be "
        "written (a full disk): passes warn and go on (`go_on`), or change nothing (`stop`)",
        usual_value=USUAL.journal_failures)
    usage_decreases: UsageDecreases | None = key(None, "usage below what was reported to Waldur before waits "
        "(`hold`), or is reported (`allow`): [reports](reports.md)", usual_value=USUAL.usage_decreases)
    protected_users: tuple[str, ...] | None = key(None, "users whom no pass adds or removes",
        of=names(), usual="see below")
    protected_accounts: tuple[str, ...] | None = key(None, "accounts that no pass changes, moves or deletes",
        of=names(), usual="see below")
    ignore_users: tuple[str, ...] | None = key(None, "the same, as patterns (`svc-*`), in any case", of=names())
    ignore_accounts: tuple[str, ...] | None = key(None, "the same, as patterns", of=names())


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedKeys:
    """What Waldur's periodic usage policy owns; old files have these in components and in `periodic_limits`."""

    carryover_enabled: Any = idle(COMPUTED_BY_WALDUR)
    carryover_factor: Any = idle(COMPUTED_BY_WALDUR)
    default_carryover_factor: Any = idle(COMPUTED_BY_WALDUR)
    default_grace_ratio: Any = idle(COMPUTED_BY_WALDUR)
    fairshare_decay_half_life: Any = idle(COMPUTED_BY_WALDUR)
    grace_ratio: Any = idle(COMPUTED_BY_WALDUR)
    period_type: Any = idle(COMPUTED_BY_WALDUR)
    qos_levels: Any = idle(COMPUTED_BY_WALDUR)
    qos_strategy: Any = idle(COMPUTED_BY_WALDUR)
    qos_threshold: Any = idle(COMPUTED_BY_WALDUR)
    raw_usage_reset: Any = idle(COMPUTED_BY_WALDUR)
    tres_billing_enabled: Any = idle(COMPUTED_BY_WALDUR)
    tres_billing_weights: Any = idle(COMPUTED_BY_WALDUR)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicLimitsKeys(ComputedKeys):
    enabled: bool = key(False, "apply the periodic limits that Waldur sends")
    limit_type: LimitType | None = key(None, "`GrpTRESMins`, `MaxTRESMins` or `GrpTRES`, for messages that name no "
        "type", usual="as the message says")
    emulator_mode: bool = key(False, "set them in slurm-emulator, not on the cluster: "
        "[slurmrestd.md](slurmrestd.md#periodic-limits-in-an-emulator)")
    emulator_base_url: str = key(EMULATOR_URL, "the control API of the emulator, for `emulator_mode`",
        of=Text(lambda url: field_types.optional_url(url) or EMULATOR_URL))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetKeys:
    factor: float = key(1.0, "greater than 0; takes the place of `unit_factor`", of=number(above=0), wrong=STOPS_ALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaldurComponentKeys(ComputedKeys):
    """What goes to Waldur as it is, when it is given."""

    description: str | None = key(None, "text")
    min_value: int | None = key(None, "whole number")
    max_value: int | None = key(None, "whole number")
    max_available_limit: int | None = key(None, "whole number")
    default_limit: int | None = key(None, "whole number")
    limit_period: str | None = key(None, "`month`, `quarterly` (or `quarter`), `annual` (or `year`), `total`, see "
        "below")
    article_code: str | None = key(None, "text", of=name_text())
    is_boolean: bool | None = key(None, "switch")
    is_prepaid: bool | None = key(None, "switch")
    min_prepaid_duration: int | None = key(None, "months")
    max_prepaid_duration: int | None = key(None, "months")
    prepaid_duration_step: int | None = key(None, "months")
    min_renewal_duration: int | None = key(None, "months")
    max_renewal_duration: int | None = key(None, "months")
    renewal_duration_step: int | None = key(None, "months")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentKeys(WaldurComponentKeys):
    measured_unit: str = required("Waldur's unit, at most 30 characters")
    accounting_type: str = required("`usage`, `limit` or `one` (prepaid)", of=choice(*ACCOUNTING_TYPES))
    label: str = required("the name in Waldur")
    unit_factor: float = key(1.0, "greater than 0", of=number(above=0), wrong=STOPS_ALL)
    unit_factor_reporting: float | None = key(None, "for reports, greater than 0", of=number(above=0),
        wrong=STOPS_REPORTS, usual="`unit_factor`")
    limit: float | None = key(None, "the limit of a usage component, 0 or more", of=number(at_least=0),
        wrong=STOPS_ALL)
    target_components: Mapping[Any, Any] = key(dict, "the TRES of the cluster that it stands for, by name, see below",
        each=TargetKeys, wrong=STOPS_ALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKeys:
    """The keys of `backend_settings` that the agent reads and a backend as well, whose own settings inherit them."""

    default_account: str = key(ROOT, "the default account of members, if it takes no jobs: [see "
        "below](configuration.md#default_account). On MOAB a name that no allocation can have; MAM does not know it",
        of=name_text(lambda name: fold(name) or ROOT), wrong=STOPS_ALL)
    cluster_name: str = key("", "the cluster; also the default of `queue`. Give each SLURM and MAM its name where one "
        "agent serves several", of=name_text(), wrong=STOPS_ALL)
    command_prefix: tuple[str, ...] = key((), "words before every command of the cluster, such as `docker exec "
        "slurmctld` or `ssh mam-server`: [see below](configuration.md#command_prefix)",
        of=Command(), wrong=STOPS_ALL, hidden=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettingsKeys(ClusterKeys):
    """The keys of `backend_settings` that mean the same for every backend."""

    allocation_prefix: str = key("", "before a resource's slug", wrong=STOPS_ORDERS)
    project_prefix: str = key("", "before a project's slug", wrong=STOPS_ORDERS)
    customer_prefix: str = key("", "before a customer's slug", wrong=STOPS_ORDERS)
    allocation_name_max_len: int | None = key(None, "the longest name of an allocation's account; 0: any length",
        of=whole(0), wrong=STOPS_ORDERS)
    check_backend_id_uniqueness: bool = key(False, "ask Waldur whether a name was ever used", wrong=STOPS_ORDERS)
    check_all_offerings: bool = key(False, "ask that for all offerings of the customer", wrong=STOPS_ORDERS)
    backend_id_max_retries: int = key(50, "names to try", of=whole(0), wrong=WrongValue(fallback="50 is taken"))
    soft_delete: bool = key(False, "a terminated account is kept, with limits of zero", wrong=STOPS_ORDERS)
    enable_user_homedir_account_creation: bool = key(True, "make home directories",
        wrong=WrongValue(value=False, fallback="no homes are made"))
    default_homedir_umask: int | None = key(None, "their umask, octal digits in quotes; a value that takes rights "
        'from the owner (`"0700"`) is read as the mode of the home, and no value lets group or others write',
        of=Octal(UMASK, allowed=0o777), wrong=USUAL_UMASK, usual='`"0077"`', usual_value="0077")
    homedir_umask: int | None = key(None, "the old name; `default_homedir_umask` wins",
        of=Octal(UMASK, allowed=0o777), wrong=USUAL_UMASK, usual="")
    homedir_base_path: str = key("", "the folder of the homes, an absolute path", usual="from the system",
        of=Text(folder_of_homes),
        wrong=WrongValue(fallback="homes are made where the system's user database says"))
    homedir_bases: tuple[str, ...] = key((), "a list of folders; homes are made, get quotas, and are written to a "
        "directory that follows Waldur only directly below one of these", of=home_folders(),
        usual="see [homes.md](homes.md#where-homes-may-be)")
    homedir_quota: HomeQuotaKeys | None = key(None, "quotas of homes: [homes.md](homes.md)", wrong=NO_QUOTA)
    project_directory: ProjectDirectoryKeys | None = key(None, "a directory for each allocation, with a Lustre quota: "
        "[project-directories.md](project-directories.md)", wrong=NONE_MADE)
    periodic_limits: PeriodicLimitsKeys | None = key(None, "limits that a periodic policy of Waldur sets, see "
        "below", usual="off",
        wrong=WrongValue(fallback="periodic limits are off"))
    usage_tres_source: UsageSource | None = key(None, "another name of the offering's `usage_source`; where both are "
        "written and differ, reports stop", wrong=STOPS_REPORTS, usual="as `usage_source`")
    target_api_url: str = key("", "the other Waldur, for the backend `waldur`", wrong=NOT_USED)
    target_api_token: str = key("", "its token", wrong=NOT_USED)

    @property
    def names(self) -> NameRules:
        return NameRules(
            customer_prefix=self.customer_prefix,
            project_prefix=self.project_prefix,
            allocation_prefix=self.allocation_prefix,
            max_length=self.allocation_name_max_len or None,
            check_uniqueness=self.check_backend_id_uniqueness,
            check_all_offerings=self.check_all_offerings,
            max_attempts=max(1, self.backend_id_max_retries),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingKeys:
    name: str = required("for logs")
    waldur_api_url: str = required("`https://`; `http://` sends the token unencrypted, which is warned about unless "
        "Waldur is on this host. A slash at its end is added", of=Text(field_types.api_url))
    waldur_offering_uuid: str = required("32 hex digits, with or without dashes", of=Text(field_types.offering_uuid),
        wrong=STOPS_ALL)
    waldur_api_token: str = key("", "the static token; it wins where an OIDC client is given too", usual="")
    waldur_api_token_file: str = key("", "a file with the token", usual="")
    waldur_api_token_env: str = key("", "a variable with the token", usual="")
    oidc_token_url: str = key("", "the token endpoint; all three of the client are needed when there is no token",
        of=Text(field_types.optional_url), usual="")
    oidc_client_id: str = key("", "the client's name", usual="")
    oidc_client_secret: str = key("", "the client's secret", usual="")
    oidc_client_secret_file: str = key("", "a file with the client's secret", usual="")
    oidc_client_secret_env: str = key("", "a variable with the client's secret", usual="")
    verify_ssl: bool | None = key(None, "check TLS certificates; the default follows `REQUESTS_VERIFY_SSL`",
        usual_value=True)
    queue: str = key("", "the head node that serves it: the worker's queue is `site.<queue>`; letters, digits, `.`, "
        "`-`, `_`", of=name_text(field_types.queue_name), wrong=STOPS_ALL,
        usual="`backend_settings.cluster_name`, else `default`")
    policy: PolicyKeys = key(PolicyKeys(), "how far passes may go, see [above](#policy)", usual="as at the root")
    limits_source: LimitsSource = key(LimitsSource.CLUSTER, "whose limits count: `cluster` shows those of the cluster "
        "in Waldur, `waldur` sets Waldur's on the cluster")
    usage_source: UsageSource | None = key(None, "what a job is charged for: what it asked for (`requested`), or what "
        "it was given (`allocated`), as the limits of SLURM and `sreport` count: [reports](reports.md)",
        wrong=STOPS_REPORTS, usual_value=UsageSource.REQUESTED)
    preserve_unmanaged_backend_users: bool | None = key(None, "true: who is in an account and has no user at the "
        "offering in Waldur, in whatever state, stays: [membership](membership.md#users-whom-waldur-does-not-know). "
        "While it is not written, `config-check` advises `true`", wrong=STOPS_MEMBERS, usual_value=False)
    omit_anomalous_usage_components: bool = key(False, "true: a component of which Waldur has more than the cluster "
        "counts now is skipped, and the others are reported: [see below](#omit_anomalous_usage_components)",
        wrong=STOPS_REPORTS)
    order_hook: OrderHookSettings | None = key(None, "a program of the site that decides on pending orders, see "
        "[below](#order_hook)", wrong=STOPS_ORDERS)
    staff_token_file: str = key("", "a file with a token of Waldur's staff, for `historical-usage`; read only then, on "
        "the node that loads the months")
    backend_type: str = required("the kind of backend, in any case. In an offering that writes none of the four "
        "`*_backend` keys, `slurm` serves all modes, as in files of 2024, and any other kind none")
    backend_settings: Mapping[Any, Any] = key(dict, "settings of the backends, see [below](#backend_settings)",
        section=BackendSettingsKeys)
    backend_components: Mapping[Any, Any] = key(dict, "what Waldur bills, by name, see [below](#backend_components)",
        each=ComponentKeys)
    order_processing_backend: str = key("", "the backend for orders; without it, orders are not processed")
    membership_sync_backend: str = key("", "the backend for members; without it, members are not synced")
    reporting_backend: str = key("", "the backend for usage; without it, usage is not reported")
    plugin_venv: str = key("", "the folder of a virtual environment with a backend of `waldur-site-agent`, which "
        "`reporting_backend` names and which serves reports only: [reports](reports.md#plugins-of-waldur-site-agent)",
        of=Text(field_types.absolute_path), wrong=STOPS_REPORTS)
    username_management_backend: str = key("base", "the backend for user names: `base`, `template`, `ldap` "
        "([usernames](usernames.md))")
    resource_import_enabled: bool = key(False, "show Waldur what could be imported")
    username_reconciliation_enabled: bool = key(False, "take user names from the backend: for backends that lead to "
        "another Waldur; SLURM and MOAB have Waldur's names, and it is warned about there")
    stomp_enabled: bool = key(False, "orders and members come as events over STOMP")
    stomp_membership_sync_enabled: bool | None = key(None, "false: members are polled while orders come as events",
        usual="as `stomp_enabled`")
    stomp_ws_host: str = key("", "the broker's host, for STOMP and MQTT", usual="host of `waldur_api_url`")
    stomp_ws_port: int | None = key(None, "the broker's port", of=whole(1, 65535),
        wrong=WrongValue(fallback="the usual port is taken"), usual="443; 80 for STOMP without `websocket_use_tls`",
        usual_value=443)
    stomp_ws_path: str = key("", "the broker's path", usual=f"`{STOMP_PATH}`; `{MQTT_PATH}` for MQTT",
        usual_value=STOMP_PATH)
    websocket_use_tls: bool = key(True, "TLS to the broker")
    mqtt_enabled: bool = key(False, "as `stomp_enabled`, over MQTT; only one of the two")
    event_transport: str = key(EVENT_TRANSPORTS[0], "`tcp`: without a WebSocket, on the usual ports 61614 and 8883 "
        "(61613 and 1883 without TLS)", of=choice(*EVENT_TRANSPORTS),
        wrong=WrongValue(fallback="events come over a WebSocket"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RootKeys:
    offerings: Sequence[Any] = required("the list of [offerings](#offering-keys); an empty list is allowed",
        each=OfferingKeys, of=fields.List(fields.Raw(allow_none=True),
        error_messages={"invalid": "a list is needed, with a dash for each"}))
    broker_url: str = key("", "the broker of the Celery cluster; several with `;` between them: [see "
        "below](#broker_url)",
        of=Text(field_types.broker_url), hidden=True, usual_value=DEFAULT_BROKER_URL)
    broker_url_file: str = key("", "a file with the broker's URL", usual="")
    broker_url_env: str = key("", "a variable with the broker's URL", usual="")
    state_dir: str = key("", "the folder for locks, the journal and the [state file](state.md), on a local disk",
        usual="see below")
    strict: bool = key(False, "an unknown key is an error")
    timezone: ZoneInfo | None = key(None, "the zone in which months of billing begin; a name such as "
        "`Europe/Tallinn`. While it is not written, `config-check` and the start of a worker that reports say so",
        of=Text(field_types.time_zone), usual_value="UTC")
    log_level: str = key("INFO", "`DEBUG`, `INFO`, `WARNING`, `ERROR` or `CRITICAL`, in any case",
        of=field_types.log_level())
    reporting_periods: int = key(2, "months that are reported, counted back from this one; 1 to 12", of=whole(1, 12))
    api_key_final_report_days: int = key(FINAL_REPORT_DAYS, "0 to 28: days of a month in which the usage of single "
        "keys of resources is sent for the month before; 0: never. SLURM and MOAB make no keys "
        "([events](events.md#keys-of-resources)): another value than 3 is warned about there", of=whole(0, 28))
    expose_backend_error_details: bool = key(True, "whether Waldur shows with an error which command failed. false: "
        "only what the command said, and one general sentence for errors that are not the cluster's. Tracebacks are "
        "never sent")
    global_proxy: str = key("", "the proxy for requests to Waldur and for the brokers of its events: `http://`, "
        "`socks5://`, `socks5h://` or `socks4://`, with `user:password@` where it wants them; `https://` is for "
        "requests only", hidden=True)
    sentry_dsn: str = key("", "where errors are reported to, a URL", of=Text(field_types.optional_url))
    sentry_dsn_file: str = key("", "a file with the DSN", usual="")
    sentry_dsn_env: str = key("", "a variable with the DSN", usual="")
    sentry_monitors: bool = key(False, "true: check-ins of beat and of the polls of each offering and mode, for "
        "Sentry's cron monitors, which Sentry charges for")
    elastic_apm_server_url: str = key("", "where errors and the times of tasks are reported to, a URL; empty switches "
        "it off. Needs `pip install 'waldur-site-cluster[apm]'`, which honours the variables `ELASTIC_APM_*`",
        of=Text(field_types.optional_url))
    log_shipping: LogShipping = key(LogShipping(), "the agent's log in Waldur, see below", usual="all defaults")
    console: ConsoleSettings = key(ConsoleSettings(), "how browsers reach the [console](console.md), see below",
        wrong=LOOPBACK_ONLY,
        usual="loopback only")
    policy: PolicyKeys = key(PolicyKeys(), "how far passes may go, for all offerings, see [below](#policy)",
        usual="all defaults")
# fmt: on
