#!/bin/bash
# A run on several machines of a Slurm cluster: sbatch examples/cluster/slurm.sh RECIPE RUN
# Starts Ray on every machine of the job, then the run on the first one. As in examples/slurm.sh, Slurm sends SIGUSR1 two
# minutes before the time limit; the run writes a checkpoint and ends with exit code 75, and the job requeues itself.
#SBATCH --job-name=interplay
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append

recipe=$1
run=$2
port=6379
export RAY_USAGE_STATS_ENABLED=0
# All parts of the cluster must know the same token. This one is made for the job, so that nobody else can use its Ray.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN
# Weights travel through this folder, which all machines must see.
export TMPDIR=${SHARED_TMPDIR:-$PWD/tmp}
mkdir -p "$TMPDIR"

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
gpus=${SLURM_GPUS_ON_NODE:-8}

# The process of the run uses the first GPU of its machine itself, so Ray is given the others there.
others=$(seq -s, 1 $((gpus - 1)))
CUDA_VISIBLE_DEVICES=$others srun --nodes=1 --ntasks=1 --overlap --nodelist="$first" \
    ray start --head --node-ip-address="$first" --port="$port" --block &
sleep "${RAY_START_SECONDS:-20}"
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks-per-node=1 --overlap --exclude="$first" \
        ray start --address="$first:$port" --block &
fi

# This script runs on the first machine.
interplay train "$recipe" --run "$run" --resume cluster.address="$first:$port" &
training=$!
trap 'kill -USR1 "$training"' USR1 TERM
wait "$training"
code=$?
while kill -0 "$training" 2>/dev/null; do
    wait "$training"
    code=$?
done
ray stop >/dev/null 2>&1

if [ "$code" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
