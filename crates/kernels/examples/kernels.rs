//! Prints the measurements of this machine, for work on the kernels: `cargo run --release --example kernels [MIB]`.
use smoe_kernels::{Isa, bench};
use std::time::Duration;

fn main() {
    let mib = std::env::args().nth(1).and_then(|mib| mib.parse().ok()).unwrap_or(512);
    let time = Duration::from_millis(500);
    for isa in Isa::available().into_iter().rev() {
        for e in bench::quantize(isa, 512, time) {
            println!("{:7} {:4} {:7.1} M weights/s", isa.name(), e.codec.name(), e.weights_per_second_per_core / 1e6);
        }
        let products = bench::kernel(isa, mib << 20, time);
        println!("{:7} roof {:.1} GB/s", isa.name(), products.roof_gb_per_second);
        for p in products.results {
            let (gb, share, flops) = (p.gb_per_second, p.share * 100.0, p.gflops);
            println!("{:7} {:4} {gb:7.1} GB/s {share:4.0} %  {flops:7.1} GFLOP/s", isa.name(), p.format);
        }
    }
}
