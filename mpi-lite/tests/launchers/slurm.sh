# A Slurm of one node in a network and process namespace of its own: slurm.sh FOLDER COMMAND...
# Everything ends with this script, since it is its namespace's first process.
set -u
D=$1
shift
cd "$D" || exit 2
HOST=$(hostname)
ADDRESS=10.78.78.1
# getaddrinfo finds no address to listen at where there is only the loopback.
ip link set lo up && ip link add sl0 type veth peer name sl1 && ip addr add $ADDRESS/24 dev sl0 &&
    ip link set sl0 up && ip link set sl1 up || exit 2
head -c 128 /dev/urandom >munge.key && chmod 600 munge.key && mkdir state spool
cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=$HOST($ADDRESS)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$D/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool
SlurmctldPidFile=$D/slurmctld.pid
SlurmdPidFile=$D/slurmd.pid
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
NodeName=$HOST NodeAddr=$ADDRESS CPUs=16 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=5 State=UP
END
export SLURM_CONF=$D/slurm.conf
munged --foreground --force --key-file="$D/munge.key" --socket="$D/munge.socket" --pid-file="$D/munged.pid" \
    --log-file="$D/munged.log" --seed-file="$D/munged.seed" --num-threads=1 >munged.out 2>&1 &
slurmctld -D -c >slurmctld.out 2>&1 &
slurmd -D >slurmd.out 2>&1 &
for _ in $(seq 150); do
    timeout 2 sinfo -h -o %T 2>/dev/null | grep -q idle && break
    sleep 0.1
done
timeout 2 sinfo -h -o %T | grep -q idle || { cat ./*.out; exit 2; }
"$@"
