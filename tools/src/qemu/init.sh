#!/bin/busybox sh
# The first process of a guest: makes the machine usable, binds its NICs, runs the command, tells what came of it.
# Standard output of the command is the first serial line, and so are lines to the lab, which begin with @lab; the
# kernel's log and everything else is the second one.
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
exec </dev/null >/dev/ttyS1 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/shm /dev/hugepages /run /tmp
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
ln -sf /run /var/run
# As the kernel makes it, anybody may write there, and DPDK loads nothing below such a folder.
chmod 755 /
# Bytes as they are: no carriage returns, no echo.
stty -F /dev/ttyS0 raw -echo

lab() { echo "@lab $*" >/dev/ttyS0; }
fail() { lab "failed $*"; sleep 2; poweroff -f; }

# HOST, NICS, BIND, BYPASS_MODULES, KERNEL_MODULES, CONTROL_NIC, CONTROL_IP, and the command's environment.
. /lab/settings

ip link set lo up
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
# What a driver of DPDK allocates from: 128 pages of 2 MiB.
echo 128 >/proc/sys/vm/nr_hugepages
mount -t hugetlbfs hugetlbfs /dev/hugepages

# The interface that the kernel made of a PCI device.
interface() {
    for found in /sys/bus/pci/devices/$1/net/* /sys/bus/pci/devices/$1/virtio*/net/*; do
        [ -e "$found" ] && basename "$found" && return
    done
    fail "the kernel made no interface of $1"
}

# NICs that a program shall drive: named to their driver before any other one can take them.
for module in $BYPASS_MODULES; do insmod /lab/modules/$module.ko || fail "module $module"; done
for nic in $NICS; do
    [ -n "$BIND" ] || continue
    echo $BIND >/sys/bus/pci/devices/$nic/driver_override
    echo $nic >/sys/bus/pci/drivers_probe
    bound=$(basename "$(readlink /sys/bus/pci/devices/$nic/driver)")
    [ "$bound" = "$BIND" ] || fail "$nic is not bound to $BIND but to '$bound'"
    SIDELANE_NICS="$SIDELANE_NICS dpdk:$nic"
done

# NICs that the kernel drives.
for module in $KERNEL_MODULES; do insmod /lab/modules/$module.ko || fail "module $module"; done
for nic in $NICS; do
    [ -z "$BIND" ] || continue
    name=$(interface $nic)
    ip link set "$name" up || fail "$name does not come up"
    SIDELANE_NICS="$SIDELANE_NICS uring:$name"
done
if [ -n "$CONTROL_NIC" ]; then
    control=$(interface $CONTROL_NIC)
    ip addr add $CONTROL_IP/24 dev "$control" && ip link set "$control" up || fail "no control network"
fi

SIDELANE_NICS=${SIDELANE_NICS# }
SIDELANE_NIC=${SIDELANE_NICS%% *}
export SIDELANE_NICS SIDELANE_NIC
lab "up after $(cut -d' ' -f1 /proc/uptime) s: $SIDELANE_NICS"
cd /
{
    /lab/command 2>&1
    echo $? >/run/status
} | cat >/dev/ttyS0
lab "exit $(cat /run/status)"
sleep 1
poweroff -f
