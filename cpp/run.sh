#!/usr/bin/env bash
# Run the tester:  ./run.sh MODEL DATA [more flags]
# Model and data may also come from the environment, as may the rest:  BATCH_SIZE=1 THREADS=4 ./run.sh MODEL DATA --profile
set -euo pipefail

MODEL=${1:-${MODEL:-${MODEL_DIR:-}}}   # model.xml, model.onnx, or a folder with one of them
DATA=${2:-${DATA:-${DATA_DIR:-}}}      # what `quaver convert-data` wrote
BATCH_SIZE=${BATCH_SIZE:-50}
THREADS=${THREADS:-1}
ITERATIONS=${ITERATIONS:-0}            # 0: all of the data
WARMUP=${WARMUP:-0}                    # batches before timing starts
SPEED_ONLY=${SPEED_ONLY:-false}        # true: labels are not read
PROFILE=${PROFILE:-false}              # time of each layer

shift $(($# < 2 ? $# : 2))
tester="$(dirname "$0")/build/sample_tester"
if [[ ! -x $tester ]]; then
  echo "$tester: it is not built. Run \`make cpp\` in the project's root." >&2
  exit 2
fi

set -x
exec "$tester" --infer_model="$MODEL" --infer_data="$DATA" --batch_size="$BATCH_SIZE" --num_threads="$THREADS" \
  --iterations="$ITERATIONS" --warmup_size="$WARMUP" --speed_only="$SPEED_ONLY" --profile="$PROFILE" "$@"
