# SPDX-License-Identifier: MIT
"""The tables of the state file, and how an older file gets them: a script for the oldest version that is read, and
one for each version after it.

A script that was released is never changed; a change of the tables is a new script at the end. docs/state.md says
what each table is for, and a test compares it with what the scripts make. No statement has a semicolon inside.

Moments are UTC, as text of one width, so that they compare as text. `lines`, `keys` and the like are JSON.
The SQL works with SQLite 3.26 (Enterprise Linux 8): no STRICT, no RETURNING.
"""

from __future__ import annotations

# "WSAS": PRAGMA application_id of our files; another program's database is not ours to change.
APPLICATION_ID = 0x57534153

# The oldest version that is read; older ones were written before the first release only.
OLDEST = 10

# `keys` of held plans and approvals: the moment at which each action was last planned, by its key. `lines` of held
# plans: the texts of what the last pass planned. HINTS makes one table of the last fifteen.
BASE = """
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
  apart INTEGER NOT NULL,
  lasting INTEGER NOT NULL,
  PRIMARY KEY (offering, mode, id)
);

CREATE TABLE approvals (
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
);

CREATE TABLE blocked_members (
  offering TEXT NOT NULL,
  account TEXT NOT NULL,
  user TEXT NOT NULL,
  since TEXT NOT NULL,
  PRIMARY KEY (offering, account, user)
);

CREATE TABLE given_usernames (
  offering TEXT NOT NULL,
  person TEXT NOT NULL,
  username TEXT NOT NULL,
  PRIMARY KEY (offering, person)
);

CREATE TABLE hierarchy_names (
  cluster TEXT NOT NULL,
  offering TEXT NOT NULL,
  uuid TEXT NOT NULL,
  account TEXT NOT NULL,
  PRIMARY KEY (cluster, offering, uuid)
);

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
);

CREATE TABLE marked_accounts (
  backend TEXT NOT NULL,
  mark TEXT NOT NULL,
  account TEXT NOT NULL,
  PRIMARY KEY (backend, mark, account)
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
);

CREATE TABLE untold_usage (
  offering TEXT NOT NULL,
  resource TEXT NOT NULL,
  month TEXT NOT NULL,
  account TEXT NOT NULL,
  figures TEXT NOT NULL,
  why TEXT NOT NULL,
  since TEXT NOT NULL,
  PRIMARY KEY (offering, resource, month)
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

CREATE TABLE pass_counts (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  figure TEXT NOT NULL,
  kind TEXT NOT NULL,
  outcome TEXT NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY (offering, mode, figure, kind, outcome)
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

CREATE TABLE drifts (
  offering TEXT NOT NULL,
  mode TEXT NOT NULL,
  looked TEXT NOT NULL,
  since TEXT NOT NULL,
  kinds TEXT NOT NULL,
  PRIMARY KEY (offering, mode)
);

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

CREATE TABLE seen_offerings (
  offering TEXT PRIMARY KEY NOT NULL,
  url TEXT NOT NULL,
  at TEXT NOT NULL
);

CREATE TABLE told_members (
  offering TEXT NOT NULL,
  resource TEXT NOT NULL,
  person TEXT NOT NULL,
  told TEXT NOT NULL,
  PRIMARY KEY (offering, resource, person)
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

CREATE TABLE project_directories (
  offering TEXT NOT NULL,
  account TEXT NOT NULL,
  quota TEXT NOT NULL,
  told TEXT NOT NULL,
  PRIMARY KEY (offering, account)
);

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

CREATE TABLE command_costs (
  cluster TEXT NOT NULL,
  kind TEXT NOT NULL,
  factor REAL NOT NULL,
  at TEXT NOT NULL,
  PRIMARY KEY (cluster, kind)
)
"""

# Fifteen tables of what may be lost become one of hints (agent/state/hints.py).
_NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
HINTS = f"""
CREATE TABLE hints (
  kind TEXT NOT NULL,
  scope TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  written_at TEXT NOT NULL,
  PRIMARY KEY (kind, scope, key)
);

INSERT OR IGNORE INTO hints
  SELECT 'passes', offering, mode,
    (SELECT json_group_array(json(CAST(entry AS TEXT))) FROM
      (SELECT entry FROM passes AS each WHERE each.offering = passes.offering AND each.mode = passes.mode
        AND json_valid(CAST(entry AS TEXT)) ORDER BY number DESC)),
    {_NOW}
  FROM passes GROUP BY offering, mode;
DROP TABLE passes;

INSERT OR IGNORE INTO hints
  SELECT 'pass_counts', offering, mode,
    json_group_array(json_array(
      CAST(figure AS TEXT), CAST(kind AS TEXT), CAST(outcome AS TEXT), CAST(value AS REAL))),
    {_NOW}
  FROM pass_counts GROUP BY offering, mode;
DROP TABLE pass_counts;

INSERT OR IGNORE INTO hints
  SELECT 'skipped', offering, mode,
    json_object('since', CAST(since AS TEXT), 'count', CAST(count AS INTEGER), 'meant', CAST(meant AS TEXT),
      'lines', json(CAST(lines AS TEXT))),
    {_NOW}
  FROM left_out WHERE count > 0 AND json_valid(CAST(lines AS TEXT));
DROP TABLE left_out;

INSERT OR IGNORE INTO hints
  SELECT 'drifts', offering, mode,
    json_object('looked', CAST(looked AS TEXT), 'since', CAST(since AS TEXT), 'kinds', json(CAST(kinds AS TEXT))),
    {_NOW}
  FROM drifts WHERE json_valid(CAST(kinds AS TEXT));
DROP TABLE drifts;

INSERT OR IGNORE INTO hints
  SELECT 'reported_services', offering, mode || ' ' || url,
    json_object('identity', CAST(identity AS TEXT), 'service', CAST(service AS TEXT),
      'program', CAST(program AS TEXT), 'renewed', NULLIF(CAST(renewed AS TEXT), ''),
      'refused', NULLIF(CAST(refused AS TEXT), '')),
    {_NOW}
  FROM shown_services;
DROP TABLE shown_services;

INSERT OR IGNORE INTO hints SELECT 'seen_offerings', offering, url, 'true', at FROM seen_offerings;
DROP TABLE seen_offerings;

INSERT OR IGNORE INTO hints
  SELECT 'reported_members', offering, resource, json_group_object(CAST(person AS TEXT), CAST(told AS TEXT)), {_NOW}
  FROM told_members GROUP BY offering, resource;
DROP TABLE told_members;

INSERT OR IGNORE INTO hints
  SELECT 'homes', offering, user,
    json_object('home', CAST(home AS TEXT), 'quota', CAST(quota AS TEXT), 'failures', CAST(failures AS INTEGER),
      'logged', CAST(told AS TEXT)),
    {_NOW}
  FROM homes;
DROP TABLE homes;

INSERT OR IGNORE INTO hints
  SELECT 'project_directories', offering, account,
    json_object('quota', CAST(quota AS TEXT), 'logged', CAST(told AS TEXT)), {_NOW}
  FROM project_directories;
DROP TABLE project_directories;

INSERT OR IGNORE INTO hints
  SELECT 'refused_months', offering, month, json_quote(CAST(until AS TEXT)), {_NOW} FROM refused_months;
DROP TABLE refused_months;

INSERT OR IGNORE INTO hints
  SELECT 'live_jobs', offering, month, json_group_object(CAST(account AS TEXT), json(jobs)), {_NOW}
  FROM (
    SELECT offering, month, account, json_group_object(CAST(run AS TEXT), CAST(seconds AS INTEGER)) AS jobs
    FROM live_jobs GROUP BY offering, month, account
  ) GROUP BY offering, month;
DROP TABLE live_jobs;

INSERT OR IGNORE INTO hints SELECT 'failed_resources', offering, resource, 'true', {_NOW} FROM failed_resources;
DROP TABLE failed_resources;

INSERT OR IGNORE INTO hints
  SELECT 'history_months', run, month, replace(outcome, '"left_out"', '"skipped"'), begun
  FROM history_months JOIN history_runs ON id = run;
DROP TABLE history_months;
DROP TABLE history_runs;

INSERT OR IGNORE INTO hints
  SELECT 'command_costs', cluster, kind, json_quote(CAST(factor AS REAL)), at FROM command_costs;
DROP TABLE command_costs;

ALTER TABLE untold_usage RENAME TO unreported_usage;
ALTER TABLE settled_usage RENAME TO finalised_usage;
ALTER TABLE settled_months RENAME TO finalised_months;
ALTER TABLE settled_accounts RENAME TO finalised_accounts
"""  # noqa: S608  our own words

# A pause may end by itself.
PAUSES_END = "ALTER TABLE pauses ADD COLUMN until TEXT NOT NULL DEFAULT ''"

# The first makes version OLDEST of an empty file, and each further one the next version.
MIGRATIONS: tuple[str, ...] = (BASE, HINTS, PAUSES_END)
VERSION = OLDEST + len(MIGRATIONS) - 1


def statements(script: str) -> list[str]:
    return [text.strip() for text in script.split(";") if text.strip()]
