//! `tarn sql` without a terminal: options, scripts, exit codes, and where in a file an error is. With one:
//! `tests/clients/console.py`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::Server;

struct ProcessOutput {
    code: i32,
    out: String,
    told: String,
}

/// Runs `tarn sql` in the server's folder, with this on stdin.
async fn sql(server: &Server, arguments: &[&str], stdin: &str) -> ProcessOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarn"));
    command.arg("sql").args(arguments).env("TARN_PORT", server.running.pg.port().to_string());
    command.current_dir(server.dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let stdin = stdin.to_owned();
    let run = move || {
        let mut child = command.spawn().unwrap();
        // What does not read it may be gone already.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait_with_output().unwrap()
    };
    let done = tokio::task::spawn_blocking(run).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    ProcessOutput { code: done.status.code().unwrap(), out: text(done.stdout), told: text(done.stderr) }
}

/// What it prints when all goes well.
async fn out(server: &Server, arguments: &[&str]) -> String {
    let done = sql(server, arguments, "").await;
    assert_eq!(done.code, 0, "{arguments:?}: {}", done.told);
    done.out
}

fn write(server: &Server, name: &str, text: &str) {
    let path = server.dir.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_say_what_failed() {
    let server = Server::start().await;
    write(&server, "bad.sql", "SELECT 1;\n\nSELECT\n  nope;\nSELECT 'not reached';\n");
    let code = async |arguments: &[&str], stdin: &str| sql(&server, arguments, stdin).await.code;

    assert_eq!(code(&["-c", "SELECT 1"], "").await, 0);
    assert_eq!(code(&["-c", "SELECT nope"], "").await, 1);
    assert_eq!(code(&["-c", "\\nope"], "").await, 1);
    assert_eq!(code(&["-f", "bad.sql"], "").await, 3);
    assert_eq!(code(&[], "SELECT 1;\nSELECT nope;").await, 3);
    assert_eq!(code(&["-f", "-"], "SELECT 1").await, 0);
    assert_eq!(code(&["-f", "absent.sql"], "").await, 1);
    assert_eq!(code(&["--no-such-flag"], "").await, 1);
    assert_eq!(code(&["--help"], "").await, 0);
    assert_eq!(code(&["-p", "1", "-c", "SELECT 1"], "").await, 2);
    assert_eq!(code(&["postgresql://127.0.0.1:1/"], "SELECT 1").await, 2);

    let done = sql(&server, &["-v", "ON_ERROR_STOP=off", "-At", "-f", "bad.sql"], "").await;
    assert_eq!((done.code, done.out.as_str()), (3, "1\nnot reached\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_name_the_file_and_the_line() {
    let server = Server::start().await;
    write(&server, "outer.sql", "\\echo begin\n\\ir inner/a.sql\nSELECT 'not reached';\n");
    write(&server, "inner/a.sql", "-- a comment\nSELECT 1 AS one;\n\nSELECT nope;\n");
    write(&server, "self.sql", "\\ir self.sql\n");
    write(&server, "unended.sql", "SELECT 1\n\\dt\n;");

    let done = sql(&server, &["-At", "-f", "outer.sql"], "").await;
    assert_eq!((done.code, done.out.as_str()), (3, "begin\n1\n"), "{}", done.told);
    assert!(done.told.contains("a.sql:4: ERROR 42703"), "{}", done.told);
    assert!(!done.told.contains("outer.sql"), "{}", done.told);

    let done = sql(&server, &["-f", "self.sql"], "").await;
    assert!(done.code == 3 && done.told.contains("16 deep"), "{}", done.told);
    let done = sql(&server, &["-f", "unended.sql"], "").await;
    assert!(
        done.code == 3 && done.told.contains("unended.sql:2: ") && done.told.contains("End it with ;"),
        "{}",
        done.told
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_are_those_of_psql() {
    let server = Server::start().await;
    let port = server.running.pg.port().to_string();
    let address = format!("postgresql://ada:pw@127.0.0.1:{port}/other?sslmode=disable");
    let who = "SELECT current_user";
    assert_eq!(out(&server, &["-h", "127.0.0.1", "-p", &port, "-U", "ada", "-d", "tarn", "-Atc", who]).await, "ada\n");
    assert_eq!(out(&server, &[&address, "-Atc", who]).await, "ada\n");
    assert_eq!(out(&server, &["-d", &address, "-Atc", who]).await, "ada\n");
    assert_eq!(out(&server, &["-A", "-c", "SELECT 1 AS a, NULL AS b"]).await, "a|b\n1|\n(1 row)\n");
    assert_eq!(
        out(&server, &["-x", "-c", "SELECT 1 AS a, NULL AS long"]).await,
        "─[ 1 ]────\na    │ 1\nlong │ ∅\n(1 row)\n"
    );
    assert_eq!(out(&server, &["-t", "-o", "csv", "-c", "SELECT 1, 'a,b'"]).await, "1,\"a,b\"\n");

    // -c and -f, in their order.
    write(&server, "two.sql", "SELECT 2;");
    assert_eq!(out(&server, &["-At", "-c", "SELECT 1", "-f", "two.sql", "-c", "SELECT 3"]).await, "1\n2\n3\n");

    let done = sql(&server, &["postgresql://u:secret@h/?colour=red"], "").await;
    assert!(done.code == 1 && done.told.contains("colour") && !done.told.contains("secret"), "{}", done.told);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_stand_for_values() {
    let server = Server::start().await;
    let script = "\\set n 3\n\\set who 'o''x'\nSELECT :n + 1, :'who', ':n', 1::int;\n\\unset n\n\\echo :who :n\n";
    let done = sql(&server, &["-At", "-f", "-"], script).await;
    assert_eq!((done.code, done.out.as_str()), (0, "4|o'x|:n|1\no'x :n\n"), "{}", done.told);
    assert_eq!(out(&server, &["-v", "n=5", "-Atc", "SELECT :n"]).await, "5\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_copied_from_files_stdin_and_scripts() {
    let server = Server::start().await;
    out(&server, &["-c", "CREATE TABLE t (a int PRIMARY KEY, b text)"]).await;
    write(&server, "in.csv", "a,b\n1,\"x;y\"\n2,\n");
    out(&server, &["-c", "\\copy t from 'in.csv' with (format csv, header)"]).await;
    let done = sql(&server, &["-c", "COPY t FROM STDIN"], "3\tthree\n").await;
    assert_eq!((done.code, done.told.as_str()), (0, "COPY 1\n"));
    let script = "COPY t FROM STDIN;\n4\tfo'ur\n\\.\n\\copy t from stdin csv\n5,five\n\\.\nSELECT count(*) FROM t;\n";
    let done = sql(&server, &["-At"], script).await;
    assert_eq!((done.code, done.out.as_str()), (0, "5\n"), "{}", done.told);

    assert_eq!(out(&server, &["-c", "COPY (SELECT a FROM t ORDER BY a) TO STDOUT"]).await, "1\n2\n3\n4\n5\n");
    out(&server, &["-c", "\\copy (select * from t where a < 3 order by a) to 'out.csv' csv header"]).await;
    let written = std::fs::read_to_string(server.dir.path().join("out.csv")).unwrap();
    assert_eq!(written, "a,b\n1,x;y\n2,\n");

    for (command, told) in [
        ("\\copy t from 'absent.csv'", "absent.csv"),
        ("\\copy t from program 'ls'", "program is not there"),
        ("\\copy t", "\\copy wants"),
        ("\\copy t from 'in.csv'", "ERROR"),
    ] {
        let done = sql(&server, &["-c", command], "").await;
        assert!(done.code == 1 && done.told.contains(told), "{command}: {}", done.told);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_tell_what_is_there() {
    let server = Server::start().await;
    out(&server, &["-c", "CREATE TABLE trips (city text, n int, PRIMARY KEY (city, n)) WITH (delivery = '1 minute')"])
        .await;
    let described = out(&server, &["-c", "\\d trips"]).await;
    for part in ["city", "Primary key: city, n", "Options: partition_key = 'city'", "delivery = '60000ms'"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    assert!(out(&server, &["-c", "\\d+ trips"]).await.contains("lake_bytes"));
    assert!(out(&server, &["-c", "\\d tarn.files"]).await.contains("column_name"));
    assert!(out(&server, &["-c", "\\dt tr*"]).await.contains("trips"));
    assert!(!out(&server, &["-c", "\\dt x*"]).await.contains("trips"));
    assert!(out(&server, &["-c", "\\dv"]).await.contains("deliveries"));
    assert!(out(&server, &["-c", "\\di"]).await.contains("trips_pkey"));
    assert!(out(&server, &["-c", "\\df date_t*"]).await.contains("date_trunc"));
    for (command, part) in
        [("\\l", "tarn"), ("\\dn", "public"), ("\\du", "user_name"), ("\\?", "\\watch"), ("\\h", "CREATE TABLE")]
    {
        assert!(out(&server, &["-c", command]).await.contains(part), "{command}");
    }
    assert!(out(&server, &["-c", "\\h insert"]).await.contains("ON CONFLICT"));
    for (command, told) in [
        ("\\d nothing", "there is no table nothing"),
        ("\\h create cast", "there is no statement CREATE CAST"),
        ("\\dx", "there is no command \\dx"),
        ("\\timing on off", "a word too many"),
        ("\\pset colour red", "\\pset has no colour"),
        ("\\e", "for a prompt"),
    ] {
        let done = sql(&server, &["-c", command], "").await;
        assert!(done.code == 1 && done.told.contains(told), "{command}: {}", done.told);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_go_to_files_and_a_closed_pipe_is_quiet() {
    let server = Server::start().await;
    let script =
        "\\o a.txt\nSELECT 1 AS a;\n\\o\nSELECT 2 AS b;\n\\output parquet\n\\o b.parquet\nSELECT 3 AS c;\n\\g\n";
    let done = sql(&server, &["-f", "-"], script).await;
    assert!(done.code == 3 && done.told.contains("stdin:8: error: one Parquet file holds one result"), "{}", done.told);
    assert!(done.out.contains("│ 2 │") && !done.out.contains("│ 1 │"), "{}", done.out);
    let read = |name: &str| std::fs::read(Path::new(server.dir.path()).join(name)).unwrap();
    assert!(String::from_utf8(read("a.txt")).unwrap().contains("│ 1 │"));
    assert!(read("b.parquet").starts_with(b"PAR1"));

    let port = server.running.pg.port();
    let tarn = env!("CARGO_BIN_EXE_tarn");
    let pipe = format!("{tarn} sql -p {port} -At -c 'SELECT * FROM generate_series(1, 200000)' | head -n 1");
    let run = move || Command::new("bash").args(["-o", "pipefail", "-c", &pipe]).output().unwrap();
    let done = tokio::task::spawn_blocking(run).await.unwrap();
    assert_eq!(
        (done.status.code(), done.stdout.as_slice(), done.stderr.as_slice()),
        (Some(0), b"1\n".as_slice(), b"".as_slice())
    );
}
