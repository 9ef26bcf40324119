#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a command apart from the machine: `apart.sh COMMAND...`, or `apart.sh --without "PACKAGE..." COMMAND...`.
#
# Its temporary files are in memory and vanish with it: the tests make and sync thousands of small databases, and
# pytest keeps the folders of its last three runs.
# It gets a loopback network of its own. No port of the machine is in its way, and acknowledgements are sent at once:
# SLURM's commands write a header and then a body, and wait 40 ms for each one of them (sacctmgr 180 ms, instead of 15).
# `--without` also takes away the programs of these Debian packages, and of all that are built from the same sources.
#
# All of it needs root. Without root the command runs on the machine's disk and network; with `--without` it is not run:
# a line on stderr says so, and where CI=true the exit code is 1.
set -eu

without=
if [ "$1" = --without ]; then
  without=$2
  shift 2
fi

if [ "${TESTS_APART:-}" != inside ]; then
  if unshare --mount --net true 2>/dev/null; then
    TESTS_APART=inside exec unshare --mount --net "$0" --without "$without" "$@"
  fi
  if [ -z "$without" ]; then
    echo "no namespaces here (root is needed): on the machine's own disk and network, and slower" >&2
    exec "$@"
  fi
  echo "NOT RUN, no namespaces here (root is needed) to hide programs in: $*" >&2
  [ "${CI:-}" != true ]
  exit
fi
unset TESTS_APART
unset PYTHONDONTWRITEBYTECODE # hundreds of processes are started, and each would compile the same modules again

if command -v ip >/dev/null; then
  ip link set lo up
  ip address add 192.0.2.1/32 dev lo # getaddrinfo finds nothing where a machine has no address but loopback's
  for net in 127.0.0.0/8 127.0.0.1; do
    ip route replace local "$net" dev lo table local proto kernel scope host src 127.0.0.1 quickack 1
  done
fi

mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir -m 1777 /mnt/tmp
export TMPDIR=/mnt/tmp

# Two people of this machine, who can have jobs: users of the system join no account. A group that is no person's.
cp -p /etc/passwd /etc/group /mnt
printf 'jobs%d:x:6100%d:100::/nonexistent:/usr/sbin/nologin\n' 1 1 2 2 >>/mnt/passwd
printf 'jobs:x:61009:\n' >>/mnt/group
mount --bind /mnt/passwd /etc/passwd
mount --bind /mnt/group /etc/group
# Whoever is in no file is unknown at once: systemd's module looks for each in 20 places, 50 us of a name, and is loaded
# by each command that asks for its groups. No user or group of the tests is systemd's.
if [ -e /etc/nsswitch.conf ]; then
  sed -E '/^(passwd|group|shadow|gshadow):/s/ systemd\>//' /etc/nsswitch.conf >/mnt/nsswitch.conf
  mount --bind /mnt/nsswitch.conf /etc/nsswitch.conf
fi

if [ -n "$without" ]; then
  mkdir /mnt/changes /mnt/work
  mount -t overlay overlay -o lowerdir=/usr,upperdir=/mnt/changes,workdir=/mnt/work /usr
  # shellcheck disable=SC2086 # a list
  sources=$(dpkg-query -W -f '${source:Package}\n' $without 2>/dev/null | sort -u)
  for source in $sources erlang; do
    dpkg-query -W -f '${source:Package} ${binary:Package}\n' | awk -v source="$source" '$1 == source { print $2 }'
  done | xargs -r dpkg -L | grep -E '/s?bin/[^/]+$' | xargs -r rm -f
fi

exec "$@"
