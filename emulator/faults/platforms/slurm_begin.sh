# Begins a task of a Slurm job, whose command are its arguments. It puts `scontrol` on PATH, and
# counts the starts of the task, in the shared volume: the task's own disk may be a fresh one.
folder=$EMULATOR_SHARED/.slurm-$EMULATOR_TASK
mkdir -p "$folder" && printf '%s' "$EMULATOR_SCONTROL" >"$folder/scontrol" &&
    chmod 755 "$folder/scontrol" || exit
starts=0
[ ! -f "$folder/starts" ] || read -r starts <"$folder/starts"
echo "$((starts + 1))" >"$folder/starts" || exit
[ "$starts" -eq 0 ] || export SLURM_RESTART_COUNT="$starts"
unset EMULATOR_SCONTROL
export PATH="$folder:$PATH"
exec "$@"
