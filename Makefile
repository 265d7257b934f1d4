# The everyday targets. Each is one plain command, so that nothing here needs make.

.PHONY: all demo test test-quant lint docs tidy ci install

all:
	cargo build --release --workspace

# The main job on the small model that ships here: plan, quantise, verify, generate, measure.
demo:
	sh demo/demo.sh

# All tests; in the release profile, so that the demo and the tests share one build.
test:
	cargo test --release --workspace

test-quant: all
	target/release/smoe test-quant

lint:
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps

# The house rules of STYLE.md, in seconds.
tidy:
	cargo test --release -p smoe-tidy

ci:
	.ci/run

install:
	cargo install --path crates/cli --locked
