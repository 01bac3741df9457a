#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process of the guest: puts a layer that can be written over the host's files, which
# cannot, and runs one script there.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
    insmod "$module"
done < /modules
mkdir -p /below /above
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro host /below
mount -t tmpfs tmpfs /above
mkdir -p /above/files /above/work
mount -t overlay -o lowerdir=/below,upperdir=/above/files,workdir=/above/work overlay /merged
for name in proc sys dev; do
    mount --move "/$name" "/merged/$name"
done
mount -t tmpfs tmpfs /merged/run
mkdir -p /merged/dev/shm
mount -t tmpfs tmpfs /merged/dev/shm
for word in $(cat /merged/proc/cmdline); do
    case $word in
        run=*) run=${word#run=} ;;
    esac
done
exec switch_root /merged /bin/sh -c "sh $run; echo o > /proc/sysrq-trigger; sleep 60"
