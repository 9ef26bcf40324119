# SPDX-License-Identifier: MIT
"""The tables of the state file, and how an older file gets them: one script for each version, in their order.

A script that was released is never changed; a change of the tables is a new script at the end. docs/state.md tells
what each table is for, and a test compares it with what the scripts make. No statement has a semicolon inside.

Moments are UTC, as text of one width, so that they compare as text. `lines`, `keys` and the like are JSON.
The SQL works with SQLite 3.26 (Enterprise Linux 8): no STRICT, no RETURNING.
"""

from __future__ import annotations

# "WSAS": PRAGMA application_id of our files; another program's database is not ours to change.
APPLICATION_ID = 0x57534153

FIRST = """
CREATE TABLE store (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
  written TEXT NOT NULL,
  copied_back TEXT NOT NULL
);
INSERT INTO store VALUES (1, '', '');

CREATE TABLE held_plans (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  id TEXT NOT NULL,
  cluster TEXT NOT NULL,
  scope TEXT NOT NULL,
  reason TEXT NOT NULL,
  since TEXT NOT NULL,
  seen TEXT NOT NULL,
  lines TEXT NOT NULL,
  keys TEXT NOT NULL,
  figures TEXT NOT NULL,
  sticky INTEGER NOT NULL,
  PRIMARY KEY (offering, mode, id)
);

CREATE TABLE approvals (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  plan TEXT NOT NULL,
  by TEXT NOT NULL,
  approved TEXT NOT NULL,
  expires TEXT NOT NULL,
  begun TEXT NOT NULL,
  figures TEXT NOT NULL,
  PRIMARY KEY (offering, mode, plan)
);

CREATE TABLE left_out (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  since TEXT NOT NULL,
  count INTEGER NOT NULL,
  meant TEXT NOT NULL,
  lines TEXT NOT NULL,
  PRIMARY KEY (offering, mode)
);

CREATE TABLE empty_answers (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  since TEXT NOT NULL,
  PRIMARY KEY (offering, mode)
);

CREATE TABLE pauses (
  offering TEXT PRIMARY KEY NOT NULL,
  by TEXT NOT NULL,
  reason TEXT NOT NULL,
  since TEXT NOT NULL
);

CREATE TABLE charges (
  at TEXT NOT NULL,
  cluster TEXT NOT NULL,
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  pass TEXT NOT NULL,
  cost TEXT NOT NULL,
  account TEXT NOT NULL,
  user TEXT NOT NULL,
  plan TEXT NOT NULL
);
CREATE INDEX charges_by_cluster ON charges (cluster, at);

CREATE TABLE blocked_members (
  offering TEXT NOT NULL,
  account TEXT NOT NULL,
  user TEXT NOT NULL,
  since TEXT NOT NULL,
  PRIMARY KEY (offering, account, user)
);

CREATE TABLE account_namings (
  cluster TEXT NOT NULL,
  offering TEXT NOT NULL,
  name TEXT NOT NULL,
  at TEXT NOT NULL,
  PRIMARY KEY (cluster, offering)
);

CREATE TABLE named_accounts (
  cluster TEXT NOT NULL,
  offering TEXT NOT NULL,
  account TEXT NOT NULL,
  PRIMARY KEY (cluster, offering, account),
  FOREIGN KEY (cluster, offering) REFERENCES account_namings ON DELETE CASCADE
);

CREATE TABLE reported_accounts (
  cluster TEXT NOT NULL,
  offering TEXT NOT NULL,
  account TEXT NOT NULL,
  at TEXT NOT NULL,
  PRIMARY KEY (cluster, offering, account)
);

CREATE TABLE waldur_listings (
  offering TEXT NOT NULL,
  listing TEXT NOT NULL,
  url TEXT NOT NULL,
  lacking_since TEXT NOT NULL,
  PRIMARY KEY (offering, listing)
);

CREATE TABLE seen_offerings (
  offering TEXT PRIMARY KEY NOT NULL,
  url TEXT NOT NULL,
  at TEXT NOT NULL
);

CREATE TABLE homes (
  offering TEXT NOT NULL,
  user TEXT NOT NULL,
  home TEXT NOT NULL,
  quota TEXT NOT NULL,
  failures INTEGER NOT NULL,
  told TEXT NOT NULL,
  PRIMARY KEY (offering, user)
);

CREATE TABLE periodic_policies (
  offering TEXT NOT NULL,
  policy TEXT NOT NULL,
  resource TEXT NOT NULL,
  applied TEXT NOT NULL,
  PRIMARY KEY (offering, policy, resource)
);

CREATE TABLE periodic_resets (
  offering TEXT NOT NULL,
  policy TEXT NOT NULL,
  resource TEXT NOT NULL,
  period TEXT NOT NULL,
  begun TEXT NOT NULL,
  done INTEGER NOT NULL,
  PRIMARY KEY (offering, policy, resource, period)
);

CREATE TABLE periodic_parked (
  offering TEXT NOT NULL,
  policy TEXT NOT NULL,
  resource TEXT NOT NULL,
  at TEXT NOT NULL,
  looked TEXT NOT NULL,
  plans TEXT NOT NULL,
  document TEXT NOT NULL,
  PRIMARY KEY (offering, policy, resource)
);

CREATE TABLE periodic_commands (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  offering TEXT NOT NULL,
  policy TEXT NOT NULL,
  resource TEXT NOT NULL,
  message TEXT NOT NULL,
  command TEXT NOT NULL
);
CREATE INDEX periodic_commands_by_message ON periodic_commands (offering, policy, resource, message);

CREATE TABLE refused_months (
  offering TEXT NOT NULL,
  month TEXT NOT NULL,
  until TEXT NOT NULL,
  PRIMARY KEY (offering, month)
);

CREATE TABLE live_jobs (
  offering TEXT NOT NULL,
  month TEXT NOT NULL,
  account TEXT NOT NULL,
  run TEXT NOT NULL,
  seconds INTEGER NOT NULL,
  PRIMARY KEY (offering, month, account, run)
);

CREATE TABLE failed_resources (
  offering TEXT NOT NULL,
  resource TEXT NOT NULL,
  PRIMARY KEY (offering, resource)
);

CREATE TABLE history_runs (
  id TEXT PRIMARY KEY NOT NULL,
  offering TEXT NOT NULL,
  wanted TEXT NOT NULL,
  begun TEXT NOT NULL
);

CREATE TABLE history_months (
  run TEXT NOT NULL REFERENCES history_runs ON DELETE CASCADE,
  month TEXT NOT NULL,
  outcome TEXT NOT NULL,
  PRIMARY KEY (run, month)
);

CREATE TABLE passes (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  ended TEXT NOT NULL,
  idle INTEGER NOT NULL,
  entry TEXT NOT NULL
);
CREATE INDEX passes_by_offering ON passes (offering, mode, number);

CREATE TABLE drifts (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  looked TEXT NOT NULL,
  since TEXT NOT NULL,
  kinds TEXT NOT NULL,
  PRIMARY KEY (offering, mode)
);

CREATE TABLE dead_letters (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  time TEXT NOT NULL,
  offering TEXT NOT NULL,
  source TEXT NOT NULL,
  object_type TEXT NOT NULL,
  reason TEXT NOT NULL,
  size INTEGER NOT NULL,
  body TEXT NOT NULL,
  is_base64 INTEGER NOT NULL
)
"""

SECOND = """
CREATE TABLE given_usernames (
  offering TEXT NOT NULL,
  person TEXT NOT NULL,
  username TEXT NOT NULL,
  PRIMARY KEY (offering, person)
);

CREATE TABLE marked_accounts (
  backend TEXT NOT NULL,
  mark TEXT NOT NULL,
  account TEXT NOT NULL,
  PRIMARY KEY (backend, mark, account)
)
"""

THIRD = """
CREATE TABLE hierarchy_names (
  cluster TEXT NOT NULL,
  offering TEXT NOT NULL,
  uuid TEXT NOT NULL,
  account TEXT NOT NULL,
  PRIMARY KEY (cluster, offering, uuid)
)
"""

FOURTH = """
CREATE TABLE project_directories (
  offering TEXT NOT NULL,
  account TEXT NOT NULL,
  quota TEXT NOT NULL,
  told TEXT NOT NULL,
  PRIMARY KEY (offering, account)
)
"""

FIFTH = """
CREATE TABLE shown_services (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  url TEXT NOT NULL,
  identity TEXT NOT NULL,
  service TEXT NOT NULL,
  program TEXT NOT NULL,
  renewed TEXT NOT NULL,
  refused TEXT NOT NULL,
  PRIMARY KEY (offering, mode)
);

CREATE TABLE told_members (
  offering TEXT NOT NULL,
  resource TEXT NOT NULL,
  person TEXT NOT NULL,
  told TEXT NOT NULL,
  PRIMARY KEY (offering, resource, person)
)
"""

SIXTH = """
CREATE TABLE pass_counts (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  figure TEXT NOT NULL,
  kind TEXT NOT NULL,
  outcome TEXT NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY (offering, mode, figure, kind, outcome)
)
"""

SEVENTH = """
CREATE TABLE command_costs (
  cluster TEXT NOT NULL,
  kind TEXT NOT NULL,
  factor REAL NOT NULL,
  at TEXT NOT NULL,
  PRIMARY KEY (cluster, kind)
)
"""

EIGHTH = """
CREATE TABLE settled_usage (
  offering TEXT PRIMARY KEY,
  source TEXT NOT NULL,
  taken INTEGER NOT NULL,
  size INTEGER NOT NULL,
  before INTEGER NOT NULL,
  watched TEXT NOT NULL,
  month TEXT NOT NULL
);

CREATE TABLE settled_months (
  offering TEXT NOT NULL,
  month TEXT NOT NULL,
  records INTEGER NOT NULL,
  fingerprint TEXT NOT NULL,
  PRIMARY KEY (offering, month)
);

CREATE TABLE settled_accounts (
  offering TEXT NOT NULL,
  month TEXT NOT NULL,
  account TEXT NOT NULL,
  users TEXT NOT NULL,
  PRIMARY KEY (offering, month, account)
)
"""

# What waits and what was approved, by the keys of the actions: `keys` has the moment at which each was last planned,
# `lines` the texts of those that the last pass planned.
NINTH = """
CREATE TABLE approved_actions (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  plan TEXT NOT NULL,
  by TEXT NOT NULL,
  approved TEXT NOT NULL,
  expires TEXT NOT NULL,
  keys TEXT NOT NULL,
  begun INTEGER NOT NULL,
  figures TEXT NOT NULL,
  PRIMARY KEY (offering, mode, plan)
);
INSERT INTO approved_actions
  SELECT offering, mode, plan, by, approved, expires,
    (SELECT json_group_object(value, approvals.approved) FROM json_each(COALESCE(
      (SELECT held.keys FROM held_plans AS held
        WHERE held.offering = approvals.offering AND held.mode = approvals.mode AND held.id = approvals.plan),
      begun))),
    begun != '[]', figures
  FROM approvals;
DROP TABLE approvals;
ALTER TABLE approved_actions RENAME TO approvals;

CREATE TABLE held_actions (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  id TEXT NOT NULL,
  cluster TEXT NOT NULL,
  scope TEXT NOT NULL,
  reason TEXT NOT NULL,
  since TEXT NOT NULL,
  seen TEXT NOT NULL,
  lines TEXT NOT NULL,
  keys TEXT NOT NULL,
  figures TEXT NOT NULL,
  apart INTEGER NOT NULL,
  lasting INTEGER NOT NULL,
  PRIMARY KEY (offering, mode, id)
);
INSERT INTO held_actions
  SELECT offering, mode, id, cluster, scope, reason, since, seen, '{}',
    (SELECT json_group_object(value, held_plans.seen) FROM json_each(held_plans.keys)), figures, 0, 1
  FROM held_plans;
DROP TABLE held_plans;
ALTER TABLE held_actions RENAME TO held_plans;

CREATE TABLE ledgers (
  cluster TEXT NOT NULL,
  offering TEXT NOT NULL,
  name TEXT NOT NULL,
  seen TEXT NOT NULL,
  named TEXT NOT NULL,
  PRIMARY KEY (cluster, offering)
);

CREATE TABLE ledger_accounts (
  cluster TEXT NOT NULL,
  offering TEXT NOT NULL,
  account TEXT NOT NULL,
  origin TEXT NOT NULL,
  since TEXT NOT NULL,
  named INTEGER NOT NULL,
  lacking_since TEXT NOT NULL,
  PRIMARY KEY (cluster, offering, account)
);
INSERT OR IGNORE INTO ledger_accounts
  SELECT lower(named.cluster), named.offering, named.account, 'found', namings.at, 1, ''
  FROM named_accounts AS named JOIN account_namings AS namings USING (cluster, offering);
DROP TABLE named_accounts;
DROP TABLE account_namings;

CREATE TABLE cluster_usernames (
  offering TEXT NOT NULL,
  person TEXT NOT NULL,
  username TEXT NOT NULL,
  PRIMARY KEY (offering, person)
);

CREATE TABLE joined_members (
  cluster TEXT NOT NULL,
  account TEXT NOT NULL,
  user TEXT NOT NULL,
  at TEXT NOT NULL,
  PRIMARY KEY (cluster, account, user)
)
"""

# Usage of resources that ended before Waldur was told of it.
TENTH = """
CREATE TABLE untold_usage (
  offering TEXT NOT NULL,
  resource TEXT NOT NULL,
  month TEXT NOT NULL,
  account TEXT NOT NULL,
  figures TEXT NOT NULL,
  why TEXT NOT NULL,
  since TEXT NOT NULL,
  PRIMARY KEY (offering, resource, month)
)
"""

# The script at position n makes version n + 1 of the file.
MIGRATIONS: tuple[str, ...] = (FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH, NINTH, TENTH)


def statements(script: str) -> list[str]:
    return [text.strip() for text in script.split(";") if text.strip()]
