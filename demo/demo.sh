#!/bin/sh
# The main job of smoe on the small model beside this file: plan, quantise, verify, generate, measure.
# Everything it writes is in target/demo.
set -eu
cd "$(dirname "$0")/.."

cargo build --release --workspace --locked --quiet
smoe=target/release/smoe
model=demo/moe-3m-qwen3
out=target/demo
rm -rf "$out"
mkdir -p "$out"

# Shows a command, then runs it.
show() {
  printf '\n$ smoe'
  for word in "$@"; do
    case $word in *[!A-Za-z0-9_./=-]*) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac
  done
  printf '\n'
  "$smoe" "$@"
}

# The value of a key of a JSON file.
key() { sed -n "s/^ *\"$2\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$1" | head -n 1; }

echo "smoe: the demo on $model, a trained mixture-of-experts model of 2.8 million parameters"

show plan "$model" --codec q4 --context 2048
show quantize "$model" -o "$out/q4.vault" --codec q4
show quantize "$model" -o "$out/q2.vault" --codec q2
show verify "$out/q4.vault"
show inspect "$out/q2.vault"
show run "$model" --raw -p "The old man looked at the sea and" -n 40 --temp 0
show run "$out/q4.vault" --raw -p "The old man looked at the sea and" -n 40 --temp 0

printf '\nMeasuring the loss on demo/eval.jsonl ...\n'
for codec in q4 q2; do
  "$smoe" eval "$out/$codec.vault" --text demo/eval.jsonl --window 256 --reference "$model" --json >"$out/$codec.json"
done
"$smoe" eval "$model" --text demo/eval.jsonl --window 256 --json >"$out/bf16.json"
for it in bf16 q4 q2; do
  file=$model; [ "$it" = bf16 ] || file=$out/$it.vault
  "$smoe" run "$file" --raw -p "Once upon a time" -n 100 --temp 0 --ignore-eos --json >"$out/run-$it.json"
done

row() {
  name=$1 size=$2
  printf '%-22s %8s %10.4f %10s %10s %12.0f\n' "$name" "$size" "$(key "$out/$3.json" nll)" "$4" "$5" \
    "$(key "$out/run-$3.json" decode_tokens_per_second)"
}
megabytes() { wc -c <"$1" | awk '{ printf "%.2f MB", $1 / 1e6 }'; }
number() { awk -v x="$(key "$out/$1.json" "$2")" 'BEGIN { printf "%.4f", x }'; }

printf '\n%-22s %8s %10s %10s %10s %12s\n' model size nats/token 'dNLL' 'KLD' tokens/s
row 'checkpoint, bf16' "$(megabytes $model/model.safetensors)" bf16 - -
row 'experts in q4' "$(megabytes $out/q4.vault)" q4 "+$(number q4 dnll)" "$(number q4 kld)"
row 'experts in q2' "$(megabytes $out/q2.vault)" q2 "+$(number q2 dnll)" "$(number q2 kld)"

cat <<END

In this small model the trunk (embedding, attention) outweighs the experts, so the file shrinks less than a large
model's: smoe plan on a config.json shows those. Try the model yourself:

  target/release/smoe chat $out/q4.vault
END
