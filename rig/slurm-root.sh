#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes a Debian root with another generation of SLURM, and with the Python, Redis, Valkey and MariaDB of that Debian:
# `slurm-root.sh SUITE FOLDER`, for example `trixie`.
#
# From the mirror that this machine's apt uses, checked by Debian's signature. Nothing is done where the folder holds
# what this script made. An unfinished folder is made anew.
set -eu
suite=$1
folder=$2
packages=ca-certificates,munge,slurm-client,slurmctld,slurmd,slurmdbd,slurmrestd,slurm-wlm-jwt-plugin
packages=$packages,mariadb-server-core,mariadb-client-core,redis-server,valkey-server,python3-venv,make,iproute2
made="$suite $packages"
[ "$(cat "$folder/made" 2>/dev/null)" != "$made" ] || exit 0

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)
[ -n "$mirror" ] || { echo "apt knows no mirror of Debian: run apt-get update" >&2; exit 1; }
rm -rf --one-file-system "$folder"
# Suites that this machine's debootstrap does not know are made as unstable is.
script=/usr/share/debootstrap/scripts/$suite
[ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
debootstrap --force-check-gpg --variant=minbase --include="$packages" "$suite" "$folder" "$mirror" "$script"
rm -rf "$folder"/var/cache/apt/archives/*.deb
touch "$folder/etc/hosts"
echo "$made" >"$folder/made"
