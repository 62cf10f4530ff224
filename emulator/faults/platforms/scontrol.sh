#!/bin/sh
# What programs of a job use of Slurm's scontrol, in a job of the emulator.
say() { printf '%s\n' "$1" >&2; exit 1; }
numbers() { # a range such as 08-11, with what is before each number
    first=${2%%-*} last=${2##*-} width=${#first}
    while case $first in 0?*) true ;; *) false ;; esac; do first=${first#0}; done
    while case $last in 0?*) true ;; *) false ;; esac; do last=${last#0}; done
    while [ "$first" -le "$last" ]; do
        printf "%s%0${width}d\n" "$1" "$first"
        first=$((first + 1))
    done
}
hostnames() { # one a line, of a list such as a-[0-2,5],b
    rest=$1,
    while [ -n "$rest" ]; do
        case ${rest%%,*} in
        *\[*)
            before=${rest%%\[*} rest=${rest#*\[}
            inside=${rest%%\]*} rest=${rest#*\]}
            for range in $(printf '%s' "$inside" | tr , ' '); do
                numbers "$before" "$range"
            done
            ;;
        ?*) printf '%s\n' "${rest%%,*}" ;;
        esac
        rest=${rest#*,}
    done
}
is_ours() {
    [ "$1" = "$SLURM_JOB_ID" ] ||
        [ "$1" = "${SLURM_ARRAY_JOB_ID:-none}_${SLURM_ARRAY_TASK_ID:-none}" ]
}
for word; do # options, which may be anywhere
    shift
    case $word in -*) ;; *) set -- "$@" "$word" ;; esac
done
case ${1:-} in
requeue)
    [ $# -gt 1 ] || say 'too few arguments for keyword:requeue'
    is_ours "$2" || say "Invalid job id specified for job $2"
    trap '' TERM # what follows may be faster than the end of this
    # The task may have printed a part of a line.
    printf '\n{"emulate": "requeue"}\n'
    ;;
show)
    case ${2:-} in
    job | jobs | jobid)
        is_ours "${3:-$SLURM_JOB_ID}" || say "slurm_load_jobs error: Invalid job id specified"
        printf 'JobId=%s JobName=%s\n' "$SLURM_JOB_ID" "$SLURM_JOB_NAME"
        printf '   JobState=RUNNING Reason=None Dependency=(null)\n'
        printf '   Requeue=1 Restarts=%s BatchFlag=1 Reboot=0 ExitCode=0:0\n' \
            "${SLURM_RESTART_COUNT:-0}"
        printf '   NodeList=%s\n' "$SLURM_JOB_NODELIST"
        printf '   NumNodes=%s NumTasks=%s\n\n' "$SLURM_JOB_NUM_NODES" "$SLURM_NTASKS"
        ;;
    hostname | hostnames) hostnames "${3:-$SLURM_JOB_NODELIST}" ;;
    *) say "this scontrol is the emulator's, and shows job and hostnames only" ;;
    esac
    ;;
*) say "this scontrol is the emulator's: it has requeue, show job and show hostnames" ;;
esac
