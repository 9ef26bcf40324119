#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes Debian roots with other generations of SLURM, and with the Python, Redis, Valkey and MariaDB of that Debian, side
# by side: `slurm-root.sh FOLDER SUITE...`, each in FOLDER/SUITE, for example `trixie`.
#
# From the mirror that this machine's apt uses, checked by Debian's signature. A root that this script has made stays; a
# new one appears when it is whole, and whoever uses the one before goes on. Needs root.
set -eu
minutes=10 # it takes one or two
packages=ca-certificates,munge,slurm-client,slurmctld,slurmd,slurmdbd,slurmrestd,slurm-wlm-jwt-plugin
packages=$packages,mariadb-server-core,mariadb-client-core,redis-server,valkey-server,python3-venv,make,iproute2

remove_unused() { # FOLDER
  # Whoever is in a root has its lock (`in-root.sh`).
  [ ! -e "$1/made" ] || flock --nonblock "$1/made" true || return 0
  rm -rf --one-file-system "$1"
}

bootstrap() { # SUITE FOLDER MIRROR
  rm -rf --one-file-system "$2.new"
  # A machine may have a copy or a clock of its own, and suites that change are signed for a week.
  timeout "${minutes}m" mmdebstrap --variant=minbase --include="$packages" --dpkgopt=force-unsafe-io \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Retries "3"' \
    --aptopt='Acquire::Check-Valid-Until "false"' "$1" "$2.new" "$3" || {
    echo "NO ROOT of $1: mmdebstrap ended with $? (124: not within $minutes minutes), see above" >&2
    return 1
  }
  touch "$2.new/etc/hosts"
  echo "$1 $packages" >"$2.new/made"
  [ ! -e "$2" ] || mv "$2" "$2.old.$$"
  mv "$2.new" "$2"
  for old in "$2".old*; do remove_unused "$old"; done
}

roots=$1
shift
mkdir -p "$roots"
exec 9>"$roots/lock"
flock 9
for suite; do
  shift
  [ "$(cat "$roots/$suite/made" 2>/dev/null)" = "$suite $packages" ] || set -- "$@" "$suite"
done
[ $# -gt 0 ] || exit 0

if ! command -v mmdebstrap >/dev/null; then
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends mmdebstrap debian-archive-keyring
fi
# Not that of security updates, which has suites of other names.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
[ -n "$mirror" ] || { echo "apt knows no mirror of Debian: run apt-get update" >&2; exit 1; }
children=
for suite; do
  bootstrap "$suite" "$roots/$suite" "$mirror" 9>&- &
  children="$children $!"
done
for child in $children; do wait "$child" || failed=1; done
[ -z "${failed:-}" ]
