#!/bin/busybox sh
# The first process on the disk.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/sbin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm; mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup; mount -t tmpfs run /run; mount -t tmpfs tmp /tmp
ip link set lo up
sh /script </dev/null
echo "vm: script ended with $?"
poweroff -f
