# Runs a command as host A of two, or alone. Arguments: A's address, `alone` or the address of host B, then the command. Standard
# input: the network namespace of host B. Everything that an MPI may leave behind is in namespaces that end with the
# command: files below /dev/shm (where its temporary files go too), processes, System V shared memory.
set -e
own=$1 other=$2
shift 2
hostname sidelane-a
mount -t tmpfs none /dev/shm
# A container may forbid a fresh /proc; without one some MPIs complain, and work.
mount -t proc none /proc 2>/dev/null || :
export TMPDIR=/dev/shm
if [ "$other" != alone ]; then
    : >/dev/shm/host-b
    mount --no-canonicalize --bind /proc/self/fd/0 /dev/shm/host-b
    # What launchers call in the place of ssh: options, a host's name, a command that runs there.
    printf '#!/bin/sh\nown=%s other=%s\n' "$own" "$other" >/dev/shm/ssh
    cat >>/dev/shm/ssh <<'END'
while :; do
    case $1 in
    # These have a value behind them.
    -[bcDEeFIiJLlmOopQRSWw]) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
host=${1##*@}
shift
case $host in
"$other") ;;
# Some call it for the host that they are on, too.
"$own" | sidelane-a | localhost) exec sh -c "$*" ;;
*) echo "ssh of the lab: no host '$host' (it has $own and $other)" >&2 && exit 255 ;;
esac
exec nsenter --net=/dev/shm/host-b unshare --uts --ipc --mount sh -c '
    set -e
    hostname sidelane-b
    mount -t tmpfs none /dev/shm
    # Nobody goes on from here, but Open MPI looks whether one could.
    ln -s /bin/false /dev/shm/ssh
    exec sh -c "$1"' sh "$*"
END
    chmod +x /dev/shm/ssh
fi
# MPIs have no choice of a congestion control, and one that paces (bbr) cuts their bandwidth to a fifth. Both hosts are
# others' too, so it is theirs again afterwards. Prints what it was on host $1, and makes it $2.
congestion() {
    with=
    [ "$1" = a ] || with=--net=/dev/shm/host-b
    nsenter $with sh -c 'cd /proc/sys/net/ipv4 && cat tcp_congestion_control && echo "$1" >tcp_congestion_control' sh "$2" \
        2>/dev/null || :
}
of_a=$(congestion a reno)
[ "$other" = alone ] || of_b=$(congestion b reno)
status=0
"$@" </dev/null || status=$?
[ -z "$of_a" ] || congestion a "$of_a" >/dev/null
[ -z "$of_b" ] || congestion b "$of_b" >/dev/null
exit $status
