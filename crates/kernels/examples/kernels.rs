//! Prints the measurements of this machine, for work on the kernels:
//! `cargo run --release -p smoe-kernels --example kernels [MIB [ISA]]`.
use smoe_kernels::{Isa, bench};
use std::time::Duration;

fn main() {
    let mib = std::env::args().nth(1).and_then(|mib| mib.parse().ok()).unwrap_or(512);
    let isas = std::env::args().nth(2).map_or_else(Isa::paths, |name| Isa::from_name(&name).into_iter().collect());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for p in bench::kernel(&isas, threads, mib << 20, Duration::from_secs(1)).results {
        let (gb, roof, share, flops) = (p.gb_per_second, p.roof_gb_per_second, p.share * 100.0, p.gflops);
        let (isa, x) = (p.isa.name(), p.activations.name());
        println!("{isa:11} {:4} {x:4} {gb:6.1} of {roof:6.1} GB/s {share:4.0} %  {flops:7.1} GFLOP/s", p.format);
    }
}
