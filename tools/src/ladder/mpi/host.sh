# Runs a command as host A of two, or alone. Arguments: `alone` or the address of host B, then the command. Standard
# input: the network namespace of host B. Everything that an MPI may leave behind is in namespaces that end with the
# command: files below /dev/shm (where its temporary files go too), processes, System V shared memory.
set -e
other=$1
shift
hostname sidelane-a
mount -t tmpfs none /dev/shm
# MPIs have no choice of a congestion control, and one that paces (bbr) cuts their bandwidth to a fifth. A container may
# forbid a fresh /proc; without one some MPIs complain, and work.
mount -t proc none /proc 2>/dev/null || :
echo reno >/proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null || :
export TMPDIR=/dev/shm
if [ "$other" != alone ]; then
    : >/dev/shm/host-b
    mount --no-canonicalize --bind /proc/self/fd/0 /dev/shm/host-b
    # What launchers call in the place of ssh: options, a host's name, a command that runs there.
    cat >/dev/shm/ssh <<'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
shift
exec nsenter --net=/dev/shm/host-b unshare --uts --ipc --mount sh -c '
    set -e
    hostname sidelane-b
    mount -t tmpfs none /dev/shm
    # Nobody goes on from here, but Open MPI looks whether one could.
    ln -s /bin/false /dev/shm/ssh
    echo reno >/proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null || :
    exec sh -c "$1"' sh "$*"
END
    chmod +x /dev/shm/ssh
fi
exec "$@" </dev/null
