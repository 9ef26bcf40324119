#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs a command in a Debian root that `slurm-root.sh` made: `in-root.sh ROOT FOLDER PLACE COMMAND...`.
#
# In a mount namespace of its own, so that nothing is left mounted when the command has ended. Inside are the machine's
# processes, devices, users, names and certificates, and this FOLDER of the machine at PLACE. Until the command has ended
# the root is locked: `slurm-root.sh` puts a new one in its place meanwhile, and does not remove it.
set -eu
exec 9<"$1/made"
flock --shared 9
exec unshare --mount --propagation private sh -euc '
  root=$1 folder=$2 place=$3
  shift 3
  mount --rbind "$root" "$root" # so that a command inside can have a namespace of its own, too
  for path in /proc /dev /sys /etc/hosts /etc/passwd /etc/group /etc/resolv.conf /etc/ssl/certs; do
    [ ! -e "$path" ] || mount --rbind "$path" "$root$path"
  done
  mount -t tmpfs tmpfs "$root/mnt"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  mkdir -p "$root$place"
  mount --rbind "$folder" "$root$place"
  exec chroot "$root" "$@"
' sh "$@"
