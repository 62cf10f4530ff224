#!/bin/sh
# Trains on handwritten digits with nothing but sh, gzip and awk: for any image that has these.
#
# All that it knows of its cluster are four variables: its RANK, the number of WORKERS, the FOLDER
# that all of them see, and how many STEPS to train. In each step a worker trains a perceptron on
# its share of the digits, starting from the mean of all; worker 0 makes the next mean. Means are
# files, so whoever is started again goes on from the last one: no step is lost.
set -eu

say() { # event, its values
    printf '{"emulate": "%s", %s}\n' "$1" "$2"
}

# Each line of the data has 64 pixels and the digit, each line of weights an index and a weight.
# Every fifth digit is held out.
perceptron() { # what to do: train or test; the file of weights
    gzip -dc digits.csv.gz | awk -F, -v mode="$1" -v file="$2" -v rank="$RANK" -v workers="$WORKERS" '
        function guess(    digit, k, score, best, found) {
            for (digit = 0; digit < 10; digit++) {
                score = 0
                for (k = 1; k <= 64; k++) score += weight[digit * 64 + k] * $k
                if (digit == 0 || score > best) { best = score; found = digit }
            }
            return found
        }
        BEGIN { while ((getline line < file) > 0) { split(line, cell, " "); weight[cell[1]] = cell[2] } }
        mode == "test" && NR % 5 == 0 { tested++; right += guess() == $65 }
        mode == "train" && NR % 5 && n++ % workers == rank {
            if ((found = guess()) != $65)
                for (k = 1; k <= 64; k++) { weight[$65 * 64 + k] += $k; weight[found * 64 + k] -= $k }
        }
        END {
            if (mode == "test") printf "%.4f\n", right / tested
            else for (k in weight) print k, weight[k]
        }'
}

step=$(ls "$FOLDER" | sed -n 's/^mean-//p' | sort -n | tail -n 1)
if [ -n "$step" ]; then
    say phase "\"phase\": \"restore\", \"state\": \"end\", \"step\": $step"
else
    step=0
fi
while [ "$step" -lt "$STEPS" ]; do
    next=$((step + 1))
    perceptron train "$FOLDER/mean-$step" > "$FOLDER/unfinished-$RANK"
    mv "$FOLDER/unfinished-$RANK" "$FOLDER/of-$RANK-$next" # at once: never half a file
    if [ "$RANK" = 0 ]; then
        of=1
        while [ "$of" -lt "$WORKERS" ]; do
            [ -e "$FOLDER/of-$of-$next" ] && of=$((of + 1)) || sleep 0.1
        done
        cat "$FOLDER"/of-*-"$next" | awk -v workers="$WORKERS" '
            { sum[$1] += $2 }
            END { for (k in sum) print k, sum[k] / workers }' > "$FOLDER/unfinished"
        mv "$FOLDER/unfinished" "$FOLDER/mean-$next"
    fi
    until [ -e "$FOLDER/mean-$next" ]; do sleep 0.1; done
    step=$next
    say step "\"step\": $step"
done
if [ "$RANK" = 0 ]; then
    say step "\"step\": $step, \"accuracy\": $(perceptron test "$FOLDER/mean-$step")"
fi
