#!/bin/bash
# A training run that outlives the time limit of a Slurm queue: sbatch examples/slurm.sh RECIPE RUN
# Two minutes before the limit Slurm sends SIGUSR1. The run writes a checkpoint and ends with exit code 75, and the job
# puts itself back into the queue. Every other exit code ends the job.
#SBATCH --job-name=interplay
#SBATCH --gres=gpu:1
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append

recipe=$1
run=$2

# --resume goes on from the newest checkpoint, and starts a run folder that has none.
interplay train "$recipe" --run "$run" --resume &
training=$!
trap 'kill -USR1 "$training"' USR1 TERM

# `wait` returns when a signal arrives, so wait again until the training has really ended.
wait "$training"
code=$?
while kill -0 "$training" 2>/dev/null; do
    wait "$training"
    code=$?
done

if [ "$code" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
