//! How many files may be open, and for whom are they?
//!
//! Connections and the engine take descriptors from one limit. The engine must never miss one: a log segment or a
//! sorted file that cannot be opened fails the writes of everybody. So connections get at most a half, whatever the
//! settings ask for, and are refused beyond it.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// More are of no use, and some systems make tables of them.
const ENOUGH: u64 = 1 << 20;

/// PostgreSQL connections that have not introduced themselves.
const MAX_WAITING: usize = 128;

/// Connections that there are places for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seats {
    /// PostgreSQL connections that have proved who they are.
    pub pg: usize,
    /// PostgreSQL connections that have not.
    pub pg_waiting: usize,
    /// As many may wait besides.
    pub http: usize,
}

/// Raises the limit of open files to what this process may have. Where that fails, what there is must do.
pub fn raise() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let wanted = hard.min(ENOUGH);
    if soft < wanted
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)
    {
        tracing::warn!(%error, soft, wanted, "cannot raise the limit of open files");
    }
}

/// The places that the limit of open files leaves for connections.
pub fn seats(max_connections: usize, http_max_connections: usize) -> Seats {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(ENOUGH, |(soft, _)| soft);
    let seats = shared_out(limit, max_connections, http_max_connections);
    if seats.pg < max_connections || seats.http < http_max_connections {
        tracing::warn!(limit, ?seats, "the limit of open files (ulimit -n) is too low for the connections asked for");
    }
    seats
}

fn shared_out(limit: u64, max_connections: usize, http_max_connections: usize) -> Seats {
    let half = usize::try_from(limit / 2).unwrap_or(usize::MAX);
    let pg_waiting = MAX_WAITING.min(half / 4).max(1);
    let rest = half - pg_waiting.min(half);
    let http = http_max_connections.min(rest / 6).max(1);
    let pg = max_connections.min(rest.saturating_sub(2 * http)).max(1);
    Seats { pg, pg_waiting, http }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_half_of_the_descriptors_to_the_engine() {
        assert_eq!(shared_out(1 << 20, 2_000, 64), Seats { pg: 2_000, pg_waiting: 128, http: 64 });
        assert_eq!(shared_out(1_024, 200, 64), Seats { pg: 200, pg_waiting: 128, http: 64 });
        for limit in [64, 256, 1_024, 4_096] {
            let seats = shared_out(limit, 100_000, 100_000);
            assert!((seats.pg + seats.pg_waiting + 2 * seats.http) as u64 <= limit / 2, "{seats:?}");
        }
    }
}
