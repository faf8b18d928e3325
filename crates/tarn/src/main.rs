//! The `tarn` command: see `cli`.

mod cli;

/// One allocator for the rows and for RocksDB: big buffers come and go on many threads, and what is free must go back
/// to the system.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
