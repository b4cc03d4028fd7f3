#!/bin/busybox sh
# The first process in the initrd.
/bin/busybox mkdir -p /dev /proc /sys /disk
/bin/busybox mount -t devtmpfs dev /dev
for module in MODULES; do /bin/busybox modprobe $module || echo "module $module was not loaded"; done
n=0
while [ ! -e /dev/vda ] && [ $n -lt 100 ]; do /bin/busybox sleep 0.1; n=$((n+1)); done
/bin/busybox mount -t ext4 /dev/vda /disk || exec /bin/busybox poweroff -f
exec /bin/busybox switch_root /disk /init
