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

"$smoe" plan "$model" --json >"$out/plan.json" 2>/dev/null
for codec in q4 q2; do
  "$smoe" quantize "$model" -o "$out/$codec.vault" --codec $codec --dry-run --force --json >"$out/$codec-made.json" 2>/dev/null
done
printf '\nMeasuring the loss on demo/eval.jsonl ...\n'
for codec in q4 q2; do
  "$smoe" eval "$out/$codec.vault" --text demo/eval.jsonl --window 256 --reference "$model" --json >"$out/$codec.json" 2>/dev/null
done
for it in bf16 q4 q2; do
  file=$model; [ "$it" = bf16 ] || file=$out/$it.vault
  "$smoe" run "$file" --raw -p "Once upon a time" -n 100 --temp 0 --ignore-eos --json >"$out/run-$it.json" 2>/dev/null
done

# A row: name, bytes of its experts, its file, loss, difference, divergence, speed.
row() {
  printf '%-18s %10s %10s %12s %9s %9s %10.0f\n' "$1" "$2" "$3" "$4" "$5" "$6" "$(key "$out/run-$7.json" decode_tokens_per_second)"
}
size() { awk -v x="$1" 'BEGIN { printf "%.2f MB", x / 1e6 }'; }
file() { size "$(wc -c <"$1")"; }
number() { awk -v x="$(key "$out/$1.json" "$2")" 'BEGIN { printf "%.4f", x }'; }
experts() { size "$(key "$out/$1-made.json" expert_bytes)"; }

printf '\n%-18s %10s %10s %12s %9s %9s %10s\n' '' experts file nats/token dNLL KLD tokens/s
row 'checkpoint, bf16' "$(size "$(($(key "$out/plan.json" expert_parameters) * 2))")" "$(file $model/model.safetensors)" "$(number q4 reference_nll)" - - bf16
for codec in q4 q2; do
  row "vault, $codec" "$(experts $codec)" "$(file $out/$codec.vault)" "$(number $codec nll)" "+$(number $codec dnll)" "$(number $codec kld)" $codec
done

cat <<END

dNLL: what quantising cost, in nats a token; KLD: divergence from the checkpoint. Without calibration, as here, 2 bits
cost much. This model is tiny: its tokenizer and trunk (embedding, attention) outweigh its experts, and each expert of a
few kB takes 16 KiB of the vault. In a large model the experts are nearly everything:
END
show plan demo/qwen3-235b-a22b.json --codec q2 --drive-gbps 7.4
cat <<END

Talk to the small one:

  target/release/smoe chat $out/q4.vault
END
