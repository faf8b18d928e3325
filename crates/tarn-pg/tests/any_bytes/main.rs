//! Does what reads the bytes of clients bear any? The fuzz targets `startup`, `messages`, `parameter`, `copy` and
//! `copy_binary` in short form, from what clients do send, with bytes changed: random ones alone do not find the inside
//! of a message.

#![allow(clippy::unwrap_used)]

mod check;
#[path = "../messages/mod.rs"]
mod messages;

use messages::{bind, execute, message, parse, query, sync};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const ROUNDS: usize = 10_000;

/// Some bytes of `sample` changed, left out, said twice, or put where others were.
fn changed(random: &mut StdRng, sample: &[u8]) -> Vec<u8> {
    const TELLING: [u8; 12] = [0, 1, 4, 0x7f, 0x80, 0xff, b'\\', b'"', b'\n', b'\r', b'\t', b','];
    let mut bytes = sample.to_vec();
    for _ in 0..random.random_range(0..4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.random_range(0..bytes.len());
        let end = random.random_range(at..=bytes.len().min(at + 12));
        match random.random_range(0..5) {
            0 => bytes[at] = random.random(),
            1 => bytes[at] = TELLING[random.random_range(0..TELLING.len())],
            2 => drop(bytes.drain(at..end)),
            3 => {
                let again = bytes[at..end].to_vec();
                let to = random.random_range(0..=bytes.len());
                drop(bytes.splice(to..to, again));
            }
            _ => bytes.truncate(end),
        }
    }
    bytes
}

#[test]
fn any_startup() {
    let mut random = StdRng::seed_from_u64(1);
    let packet = |code: u32, body: &[u8]| [&(body.len() as u32 + 8).to_be_bytes(), &code.to_be_bytes(), body].concat();
    let (ssl, gss) = (packet(80_877_103, b""), packet(80_877_104, b""));
    let begin = packet(196_608, b"user\0me\0database\0tarn\0client_encoding\0UTF8\0\0");
    let samples = [
        begin.clone(),
        [ssl, begin.clone()].concat(),
        [gss, begin].concat(),
        packet(80_877_102, b"\0\0\0\x01abcdefgh"),
    ];
    for round in 0..ROUNDS {
        check::startup(&changed(&mut random, &samples[round % samples.len()]), random.random());
    }
}

#[test]
fn any_messages() {
    let mut random = StdRng::seed_from_u64(2);
    let long = query(&format!("SELECT '{}'", "x".repeat(12_000)));
    let copied = [message('d', b"1\tx\n"), message('d', b""), message('c', b""), message('f', b"why\0")].concat();
    let bound = message('B', b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x03abc\xff\xff\xff\xff\0\x01\0\0");
    let named = [message('D', b"Ss\0"), message('C', b"Pp\0"), message('H', b""), message('X', b"")].concat();
    let samples = [
        [parse("s", "SELECT $1"), bind("p", "s"), execute("p", 0), sync()].concat(),
        [bound, sync(), query("SELECT 1")].concat(),
        copied,
        [named, query("")].concat(),
        [long, query("SELECT 1")].concat(),
        message('p', b"SCRAM-SHA-256\0\0\0\0\x10n,,n=,r=abcdefgh"),
    ];
    for round in 0..ROUNDS {
        check::messages(&changed(&mut random, &samples[round % samples.len()]), random.random(), round % 7 != 0);
    }
}

#[test]
fn any_parameter() {
    let mut random = StdRng::seed_from_u64(3);
    let samples: [&[u8]; 12] = [
        b"\0\x03\0\x01\0\0\0\x03\0\x01\x09\x29\x1a\x7c",
        b"\0\x01\xff\xff\x40\0\0\x04\0\x01",
        b"\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x80\0\0\0",
        b"\0\x07",
        b"\x01{\"a\": [1, null]}",
        b"2024-02-29 23:59:59.999999+14",
        b"-12345678901234567890.1234",
        b"\\x00ff",
        b"6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        b"1e308",
        "\u{e9}\u{1f600}".as_bytes(),
    ];
    for round in 0..4 * ROUNDS {
        let bytes = changed(&mut random, samples[round % samples.len()]);
        check::parameter(random.random(), random.random(), random.random(), &bytes);
    }
}

#[test]
fn any_copy() {
    let mut random = StdRng::seed_from_u64(4);
    let samples: [&[u8]; 5] = [
        b"1\ta\\tb\\\\\n2\t\\N\n3\t\\101\\x42\r\n4\tx\\\ny\n5\tlast\n\\.\n",
        b"k,v\r\n1,x\r\n2,\n3,\"\"\n4,\"a,\"\"b\"\"\nc\"\r5,last",
        b"1,2024-02-29\n2,\"12:00\"\n3,1.5\n4,t\n",
        b"1\t7\n2\t8\n3\t9\n4\t10\n5\t11\n6\t12\n",
        b"1,\"open\n2,x\"y\"z\n\\.\n",
    ];
    for round in 0..ROUNDS {
        let bytes = changed(&mut random, samples[round % samples.len()]);
        check::copy(random.random(), round % 5 == 0, random.random(), random.random(), &bytes);
    }
}

#[test]
fn any_copy_binary() {
    let mut random = StdRng::seed_from_u64(5);
    let header = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    let row = |key: u8, value: &[u8]| {
        [&[0, 2, 0, 0, 0, 4, 0, 0, 0, key][..], &(value.len() as i32).to_be_bytes(), value].concat()
    };
    let null = [0, 2, 0, 0, 0, 4, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff];
    let values: [&[u8]; 7] = [
        b"\0\x03\0\x01\0\0\0\x03\0\x01\x09\x29\x1a\x7c",
        b"\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\x07",
        b"\x01",
        b"\x01{\"a\": [1, null]}",
        b"0123456789abcdef",
        b"",
    ];
    for round in 0..4 * ROUNDS {
        let value = values[round % values.len()];
        let rows = [row(1, value), row(2, value), null.to_vec(), row(3, value), row(4, value)].concat();
        let sample = [&header[..], &rows, b"\xff\xff"].concat();
        check::copy_binary(random.random(), random.random(), &changed(&mut random, &sample));
    }
}
