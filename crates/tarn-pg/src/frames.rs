//! Is this a message?
//!
//! [`Frames`] cuts a client's bytes into messages and checks each one before the protocol library decodes it: the type,
//! the length, every count and length inside, the ends of texts and that they are UTF-8. The library's decoder trusts
//! all of these; behind this check it cannot fail. What is wrong is answered as Postgres answers it:
//!
//! - a type that there is not, or a length that cannot be: FATAL, since nobody knows where the next message begins;
//! - a body that is wrong inside its length: an error of that message, and the stream goes on behind it.
//!
//! Memory follows the bytes that came, never the length that was announced. A message beyond `message_bytes` is thrown
//! away as it comes and answered with an error; the data of a COPY is handed on in pieces, however long its messages
//! are; and the unfinished messages of all clients together have a [`Budget`].

use bytes::{Buf, Bytes, BytesMut};
use pgwire::messages::cancel::CancelRequest;
use pgwire::messages::copy::CopyData;
use pgwire::messages::startup::{SecretKey, Startup};
use pgwire::messages::{DecodeContext, PgWireFrontendMessage, ProtocolVersion};
use tarn_sql::budget::{Budget, Reservation};
use tarn_sql::encoding;
use tarn_sql::error::{Result, SqlError, state};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest packet of a client that has not introduced itself, and longest message that carries no statement or data.
const SMALL_MESSAGE_BYTES: usize = 10_000;

/// Longest length that can be meant.
const MAX_MESSAGE_BYTES: usize = 0x3fff_fffe;

/// Room for one read.
const READ_BYTES: usize = 8 << 10;

/// The data of a COPY is handed on in pieces of at most this size; so much is read ahead of a running statement.
const PIECE_BYTES: usize = 64 << 10;

/// A message that is not whole yet counts in the budget when it is larger.
const UNCOUNTED_BYTES: usize = 64 << 10;

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;

/// What a connection begins with.
#[derive(Debug)]
pub enum FirstPacket {
    /// It wants TLS first.
    Ssl,
    /// It wants GSSAPI's encryption, which is not there.
    Gss,
    /// It wants another connection's statement stopped, and is no session.
    Cancel(CancelRequest),
    /// User, database, settings.
    Startup(Startup),
}

/// What came.
#[derive(Debug)]
pub enum Frame {
    /// Whole, within its bounds, and of a kind that this phase takes.
    Message(PgWireFrontendMessage),
    /// A message that is wrong, but whole: the next one can be read.
    Bad {
        /// What the client is told.
        error: SqlError,
        /// It belongs to the extended protocol: what follows is skipped until Sync.
        is_extended: bool,
    },
}

/// Which messages may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Answers to what the server asks for; small ones.
    Authentication,
    /// Anything, within `message_bytes`.
    Ready,
}

/// The bytes of one client.
pub struct Frames {
    buffer: BytesMut,
    message_bytes: usize,
    reservation: Reservation,
    /// A message that is thrown away as it comes.
    skipped: Option<SkippedFrame>,
    /// Bytes of a CopyData message that are still to come.
    copy_rest: usize,
}

struct SkippedFrame {
    rest: usize,
    kind: u8,
    error: SqlError,
}

impl Frames {
    /// Bounds of one message, and the budget that unfinished messages of all connections share.
    pub fn new(message_bytes: u64, budget: &std::sync::Arc<Budget>) -> Frames {
        let message_bytes = usize::try_from(message_bytes).unwrap_or(usize::MAX);
        Frames {
            buffer: BytesMut::new(),
            message_bytes: message_bytes.clamp(SMALL_MESSAGE_BYTES, MAX_MESSAGE_BYTES),
            reservation: budget.reservation(),
            skipped: None,
            copy_rest: 0,
        }
    }

    /// The next packet of a connection that has not begun; `None` when the client is gone. May be dropped and asked
    /// again.
    ///
    /// Errors: fatal ones.
    pub async fn opening(&mut self, io: &mut (impl AsyncRead + Unpin)) -> Result<Option<FirstPacket>> {
        loop {
            if let Some(opening) = self.take_opening()? {
                return Ok(Some(opening));
            }
            if !self.read(io).await {
                return Ok(None);
            }
        }
    }

    /// Whether bytes came that nobody has taken yet.
    pub fn has_more(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The next message; `None` when the client is gone. May be dropped and asked again.
    ///
    /// Errors: fatal ones.
    pub async fn next(&mut self, io: &mut (impl AsyncRead + Unpin), phase: Phase) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take(phase)? {
                return Ok(Some(frame));
            }
            if !self.read(io).await {
                return Ok(None);
            }
        }
    }

    /// The type of the message behind the one that was taken last, if it is there.
    pub fn kind_behind(&self) -> Option<u8> {
        self.buffer.first().copied()
    }

    /// As [`Frames::kind_behind`], as soon as it is there; `None` when the client is gone. May be dropped and asked
    /// again.
    pub async fn next_kind(&mut self, io: &mut (impl AsyncRead + Unpin)) -> Option<u8> {
        while self.buffer.is_empty() {
            if !self.read(io).await {
                return None;
            }
        }
        self.kind_behind()
    }

    /// Returns when the client is gone. What it sends meanwhile is kept, up to a piece; beyond that nobody looks.
    pub async fn gone(&mut self, io: &mut (impl AsyncRead + Unpin)) {
        while self.buffer.len() < PIECE_BYTES {
            if !self.read(io).await {
                return;
            }
        }
        std::future::pending().await
    }

    /// False: the client is gone, properly or not.
    async fn read(&mut self, io: &mut (impl AsyncRead + Unpin)) -> bool {
        self.buffer.reserve(self.copy_rest.clamp(READ_BYTES, PIECE_BYTES));
        matches!(io.read_buf(&mut self.buffer).await, Ok(length) if length > 0)
    }

    fn take_opening(&mut self) -> Result<Option<FirstPacket>> {
        let Some(length) = self.buffer.first_chunk().map(|length| i32::from_be_bytes(*length)) else { return Ok(None) };
        let length = usize::try_from(length).unwrap_or(0);
        if !(8..=SMALL_MESSAGE_BYTES).contains(&length) {
            return Err(violation("invalid length of startup packet").fatal());
        }
        if self.buffer.len() < length {
            return Ok(None);
        }
        let packet = self.buffer.split_to(length);
        opening(&packet).map(Some).map_err(SqlError::fatal)
    }

    fn take(&mut self, phase: Phase) -> Result<Option<Frame>> {
        loop {
            if let Some(skipped) = &mut self.skipped {
                let n = skipped.rest.min(self.buffer.len());
                self.buffer.advance(n);
                skipped.rest -= n;
                if skipped.rest > 0 {
                    return Ok(None);
                }
                let Some(SkippedFrame { kind, error, .. }) = self.skipped.take() else { continue };
                return Ok(Some(Frame::Bad { error, is_extended: is_extended(kind) }));
            }
            if self.copy_rest > 0 {
                let n = self.copy_rest.min(self.buffer.len()).min(PIECE_BYTES);
                self.copy_rest -= n;
                return Ok((n > 0).then(|| self.piece(n)));
            }
            let Some(&kind) = self.buffer.first() else { return Ok(None) };
            let most = longest(kind, phase)?;
            let Some(length) = self.buffer.get(1..5).and_then(|length| length.try_into().ok()) else { return Ok(None) };
            let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0);
            if !(4..=most).contains(&length) {
                return Err(violation("invalid message length").fatal());
            }
            if kind == b'd' {
                self.buffer.advance(5);
                self.copy_rest = length - 4;
                if length == 4 {
                    return Ok(Some(self.piece(0)));
                }
                continue;
            }
            if length > self.message_bytes {
                self.skip(kind, length, too_long(length, self.message_bytes));
                continue;
            }
            if self.buffer.len() <= length {
                if self.buffer.len() > UNCOUNTED_BYTES && !self.reservation.resize(self.buffer.len() as u64) {
                    self.skip(kind, length, no_room());
                    continue;
                }
                return Ok(None);
            }
            return Ok(Some(self.message(kind, length)?));
        }
    }

    /// Throws a message away as it comes, what has come of it too.
    fn skip(&mut self, kind: u8, length: usize, error: SqlError) {
        self.buffer.advance(5);
        self.skipped = Some(SkippedFrame { rest: length - 4, kind, error });
        let _ = self.reservation.resize(0);
    }

    fn piece(&mut self, n: usize) -> Frame {
        let data = self.buffer.split_to(n).freeze();
        Frame::Message(PgWireFrontendMessage::CopyData(CopyData::new(data)))
    }

    /// A whole message: checked, then decoded.
    fn message(&mut self, kind: u8, length: usize) -> Result<Frame> {
        let mut message = self.buffer.split_to(1 + length);
        if length > UNCOUNTED_BYTES {
            // The rest would keep the memory of the whole.
            self.buffer = BytesMut::from(&self.buffer[..]);
            let _ = self.reservation.resize(0);
        }
        if let Err(error) = check(kind, &message[5..]) {
            return Ok(Frame::Bad { error, is_extended: is_extended(kind) });
        }
        let mut context = DecodeContext::new(ProtocolVersion::default());
        (context.awaiting_frontend_ssl, context.awaiting_frontend_startup) = (false, false);
        match PgWireFrontendMessage::decode(&mut message, &context) {
            Ok(Some(message)) => Ok(Frame::Message(message)),
            Ok(None) => Err(violation("invalid message format").fatal()),
            Err(error) => Err(violation(&error.to_string()).fatal()),
        }
    }
}

/// The longest that a message of this type may be.
///
/// Errors: there is no such type.
fn longest(kind: u8, phase: Phase) -> Result<usize> {
    match (phase, kind) {
        (Phase::Authentication, b'p') => Ok(SMALL_MESSAGE_BYTES),
        (Phase::Ready, b'Q' | b'P' | b'B' | b'F' | b'd') => Ok(MAX_MESSAGE_BYTES),
        (Phase::Ready, b'D' | b'C' | b'E' | b'H' | b'S' | b'X' | b'c' | b'f') => Ok(SMALL_MESSAGE_BYTES),
        _ => Err(violation(&format!("invalid frontend message type {kind}")).fatal()),
    }
}

fn is_extended(kind: u8) -> bool {
    matches!(kind, b'P' | b'B' | b'D' | b'C' | b'E' | b'H' | b'S')
}

/// Whether a message's body is what its type says.
fn check(kind: u8, body: &[u8]) -> Result<()> {
    let mut body = Body { rest: body };
    match kind {
        b'Q' => {
            body.text()?;
        }
        b'P' => {
            body.text()?;
            body.text()?;
            let n_types = body.count()?;
            body.bytes(n_types * 4)?;
        }
        b'B' => {
            body.text()?;
            body.text()?;
            body.formats()?;
            for _ in 0..body.count()? {
                match body.length()? {
                    -1 => {}
                    length => {
                        body.bytes(usize::try_from(length).unwrap_or(usize::MAX))?;
                    }
                }
            }
            body.formats()?;
        }
        b'D' | b'C' => {
            let target = body.bytes(1)?[0];
            if !matches!(target, b'S' | b'P') {
                let name = if kind == b'D' { "DESCRIBE" } else { "CLOSE" };
                return Err(violation(&format!("invalid {name} message subtype {target}")));
            }
            body.text()?;
        }
        b'E' => {
            body.text()?;
            body.length()?;
        }
        b'f' => {
            body.text()?;
        }
        b'F' => {
            return Err(SqlError::unsupported("the function call message", "call the function in a SELECT"));
        }
        // Their body does not matter.
        b'X' | b'c' | b'p' => return Ok(()),
        _ => {}
    }
    if body.rest.is_empty() { Ok(()) } else { Err(violation("invalid message format")) }
}

/// What is left of a body.
struct Body<'a> {
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    fn text(&mut self) -> Result<&'a str> {
        let end = self.rest.iter().position(|b| *b == 0).ok_or_else(|| violation("invalid string in message"))?;
        let text = encoding::text(&self.rest[..end])?;
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (bytes, rest) =
            self.rest.split_at_checked(n).ok_or_else(|| violation("insufficient data left in message"))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn count(&mut self) -> Result<usize> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]).into())
    }

    fn length(&mut self) -> Result<i32> {
        let bytes = self.bytes(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn formats(&mut self) -> Result<()> {
        for _ in 0..self.count()? {
            let code = self.count()?;
            if code > 1 {
                let message = format!("unsupported format code: {code}");
                return Err(SqlError::new(state::INVALID_PARAMETER_VALUE, message));
            }
        }
        Ok(())
    }
}

/// The first packets: no type, a code instead. `packet` has at least 8 bytes.
fn opening(packet: &[u8]) -> Result<FirstPacket> {
    let mut body = Body { rest: &packet[4..] };
    let code = body.length()?;
    match code {
        SSL_REQUEST if body.rest.is_empty() => return Ok(FirstPacket::Ssl),
        GSS_REQUEST if body.rest.is_empty() => return Ok(FirstPacket::Gss),
        CANCEL_REQUEST => {
            let pid = body.length()?;
            if !(4..=256).contains(&body.rest.len()) {
                return Err(violation("invalid length of cancel request packet"));
            }
            let key = SecretKey::Bytes(Bytes::copy_from_slice(body.rest));
            return Ok(FirstPacket::Cancel(CancelRequest::new(pid, key)));
        }
        _ => {}
    }
    let (major, minor) = ((code >> 16) as u16, code as u16);
    if major != 3 {
        let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2");
        return Err(SqlError::new(state::FEATURE_NOT_SUPPORTED, message));
    }
    let mut startup = Startup::new();
    (startup.protocol_number_major, startup.protocol_number_minor) = (major, minor);
    loop {
        let name = body.text().map_err(|_| layout())?;
        if name.is_empty() {
            break;
        }
        let value = body.text()?;
        startup.parameters.insert(name.to_owned(), value.to_owned());
    }
    if body.rest.is_empty() { Ok(FirstPacket::Startup(startup)) } else { Err(layout()) }
}

fn layout() -> SqlError {
    violation("invalid startup packet layout: expected terminator as last byte")
}

fn violation(message: &str) -> SqlError {
    SqlError::new(state::PROTOCOL_VIOLATION, message)
}

fn too_long(length: usize, limit: usize) -> SqlError {
    SqlError::new(state::PROGRAM_LIMIT, format!("the message has {length} bytes, the limit is {limit}"))
        .with_hint("load data with COPY, or raise the setting message_bytes")
}

fn no_room() -> SqlError {
    SqlError::new(state::OUT_OF_MEMORY, "the messages that clients are sending take too much memory together")
        .with_hint("send it again later, or load data with COPY")
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const LIMIT: u64 = 1 << 20;

    fn frames(bytes: &[u8]) -> Frames {
        let mut frames = Frames::new(LIMIT, &Budget::new(4 * LIMIT));
        frames.buffer.extend_from_slice(bytes);
        frames
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut message = vec![kind];
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(body);
        message
    }

    /// What each frame is: a message, an error, or the fatal error that ends the stream.
    fn read(bytes: &[u8]) -> Vec<String> {
        let mut frames = frames(bytes);
        let mut found = Vec::new();
        loop {
            found.push(match frames.take(Phase::Ready) {
                Ok(None) => return found,
                Ok(Some(Frame::Message(_))) => "message".to_owned(),
                Ok(Some(Frame::Bad { error, .. })) => format!("{} {}", error.state(), error.message()),
                Err(error) => {
                    assert!(error.is_fatal());
                    found.push(format!("FATAL {} {}", error.state(), error.message()));
                    return found;
                }
            });
        }
    }

    fn samples() -> Vec<Vec<u8>> {
        vec![
            message(b'Q', b"SELECT 1\0"),
            message(b'P', b"s\0SELECT $1\0\0\x01\0\0\0\x17"),
            message(b'B', b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x03abc\xff\xff\xff\xff\0\x01\0\0"),
            message(b'D', b"Ss\0"),
            message(b'C', b"Pp\0"),
            message(b'E', b"p\0\0\0\0\0"),
            message(b'H', b""),
            message(b'S', b""),
            message(b'd', b"1\tx\n"),
            message(b'd', b""),
            message(b'c', b""),
            message(b'f', b"why\0"),
            message(b'X', b""),
        ]
    }

    #[test]
    fn whole_messages_pass_wherever_they_are_cut() {
        let all = samples().concat();
        assert_eq!(read(&all), vec!["message"; samples().len()]);
        let mut frames = frames(b"");
        let mut n_messages = 0;
        for byte in all {
            frames.buffer.extend_from_slice(&[byte]);
            while let Some(frame) = frames.take(Phase::Ready).unwrap() {
                assert!(matches!(frame, Frame::Message(_)));
                n_messages += 1;
            }
        }
        // The data of a COPY comes byte by byte.
        assert_eq!(n_messages, samples().len() + 3);
    }

    #[test]
    fn what_is_wrong_inside_a_message_is_an_error_of_that_message() {
        let cases: [(u8, &[u8], &str); 20] = [
            (b'Q', b"", "08P01 invalid string in message"),
            (b'Q', b"SELECT 1", "08P01 invalid string in message"),
            (b'Q', b"SELECT\x001\0", "08P01 invalid message format"),
            (b'Q', b"SELECT 'caf\xe9'\0", "22021 invalid byte sequence for encoding \"UTF8\": 0xe9 0x27"),
            (b'P', b"", "08P01 invalid string in message"),
            (b'P', b"caf\xe9\0SELECT 1\0\0\0", "22021 invalid byte sequence for encoding \"UTF8\": 0xe9"),
            (b'P', b"s\0SELECT 1\0\0\x02\0\0\0\x17", "08P01 insufficient data left in message"),
            (b'P', b"s\0SELECT 1\0", "08P01 insufficient data left in message"),
            (b'B', b"", "08P01 invalid string in message"),
            (b'B', b"\0\0\0\0\0\x01\0\0\0\x09abc\0\0", "08P01 insufficient data left in message"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0", "08P01 insufficient data left in message"),
            (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0", "08P01 insufficient data left in message"),
            (b'B', b"\0\0\0\x01\0\x07\0\0\0\0", "22023 unsupported format code: 7"),
            (b'B', b"\0\0\xff\xff", "08P01 insufficient data left in message"),
            (b'D', b"", "08P01 insufficient data left in message"),
            (b'D', b"Xs\0", "08P01 invalid DESCRIBE message subtype 88"),
            (b'C', b"S", "08P01 invalid string in message"),
            (b'E', b"p\0\0\0", "08P01 insufficient data left in message"),
            (b'S', b"x", "08P01 invalid message format"),
            (b'F', b"\0\0\0\x01", "0A000 the function call message"),
        ];
        for (kind, body, want) in cases {
            let bytes = [message(kind, body), message(b'S', b"")].concat();
            assert_eq!(read(&bytes), [want, "message"], "{} {body:?}", kind as char);
        }
    }

    #[test]
    fn what_cannot_be_cut_is_fatal() {
        let cases: [(&[u8], &str); 7] = [
            (b"Q\0\0\0\x03", "FATAL 08P01 invalid message length"),
            (b"Q\xff\xff\xff\xff", "FATAL 08P01 invalid message length"),
            (b"Q\x7f\xff\xff\xff", "FATAL 08P01 invalid message length"),
            (b"S\0\x01\0\0", "FATAL 08P01 invalid message length"),
            (b"d\0\0\0\0", "FATAL 08P01 invalid message length"),
            (b"G", "FATAL 08P01 invalid frontend message type 71"),
            (b"p\0\0\0\x04", "FATAL 08P01 invalid frontend message type 112"),
        ];
        for (bytes, want) in cases {
            assert_eq!(read(bytes), [want], "{bytes:?}");
        }
        let mut password = frames(b"p\0\x01\0\0");
        assert!(password.take(Phase::Authentication).unwrap_err().is_fatal());
        assert!(frames(b"Q").take(Phase::Authentication).unwrap_err().is_fatal(), "no statement before that");
    }

    #[test]
    fn a_message_that_is_too_long_is_thrown_away_as_it_comes() {
        let budget = Budget::new(LIMIT);
        let mut frames = Frames::new(LIMIT, &budget);
        frames.buffer.extend_from_slice(b"Q\x3f\0\0\0");
        let mut rest = 0x3f00_0000 - 4;
        while rest > 0 {
            assert!(frames.take(Phase::Ready).unwrap().is_none());
            assert!(frames.buffer.is_empty(), "nothing of it is kept");
            let n = rest.min(16 << 20);
            frames.buffer.resize(n, b' ');
            rest -= n;
        }
        let Some(Frame::Bad { error, is_extended: false }) = frames.take(Phase::Ready).unwrap() else { panic!() };
        assert_eq!(error.state(), "54000");

        // All clients together: this one has a message that may be so long, but there is no room left.
        let mut taken = budget.reservation();
        assert!(taken.resize(LIMIT - 10));
        let mut bytes = message(b'Q', &vec![b' '; 500_000]);
        bytes.truncate(100_000);
        frames.buffer = BytesMut::from(&bytes[..]);
        assert!(frames.take(Phase::Ready).unwrap().is_none());
        assert!(frames.buffer.is_empty());
        frames.buffer.resize(500_005 - 100_000, b' ');
        let Some(Frame::Bad { error, .. }) = frames.take(Phase::Ready).unwrap() else { panic!() };
        assert_eq!(error.state(), "53200");
    }

    #[test]
    fn a_copy_message_of_any_length_comes_in_pieces() {
        let mut frames = frames(b"d\x20\0\0\0");
        assert!(frames.take(Phase::Ready).unwrap().is_none());
        frames.buffer.resize(100_000, b'x');
        let mut lengths = Vec::new();
        while let Some(Frame::Message(PgWireFrontendMessage::CopyData(data))) = frames.take(Phase::Ready).unwrap() {
            lengths.push(data.data.len());
        }
        assert_eq!(lengths, [PIECE_BYTES, 100_000 - PIECE_BYTES]);
    }

    #[test]
    fn openings() {
        let packet = |code: i32, body: &[u8]| {
            let mut packet = ((body.len() + 8) as u32).to_be_bytes().to_vec();
            packet.extend_from_slice(&code.to_be_bytes());
            packet.extend_from_slice(body);
            packet
        };
        let open = |bytes: &[u8]| frames(bytes).take_opening().map(|opening| opening.unwrap());
        assert!(matches!(open(&packet(SSL_REQUEST, b"")).unwrap(), FirstPacket::Ssl));
        assert!(matches!(open(&packet(CANCEL_REQUEST, b"\0\0\0\x01abcd")).unwrap(), FirstPacket::Cancel(_)));
        let FirstPacket::Startup(startup) = open(&packet(196_608, b"user\0me\0database\0\0\0")).unwrap() else {
            panic!()
        };
        assert_eq!((startup.parameters["user"].as_str(), startup.parameters["database"].as_str()), ("me", ""));
        let wrong: [(Vec<u8>, &str); 7] = [
            (vec![0, 0, 0, 7], "08P01"),
            (vec![0x16, 3, 1, 2], "08P01"),
            (vec![0, 0, 0x27, 0x11], "08P01"),
            (packet(CANCEL_REQUEST, b"\0\0"), "08P01"),
            (packet(196_608, b"user\0me"), "08P01"),
            (packet(196_608, b"user\0caf\xe9\0\0"), "22021"),
            (packet(131_072, b"\0"), "0A000"),
        ];
        for (bytes, want) in wrong {
            let error = open(&bytes).unwrap_err();
            assert_eq!((error.state(), error.is_fatal()), (want, true), "{bytes:?}");
        }
    }

    /// The library's decoder runs behind the check: a panic of it fails this.
    #[test]
    fn no_bytes_panic_the_decoder() {
        let mut random = StdRng::seed_from_u64(13);
        let samples = samples();
        for round in 0..100_000 {
            let mut bytes = samples[random.random_range(0..samples.len())].clone();
            match round % 4 {
                // Bytes that are others.
                0 => {
                    for _ in 0..random.random_range(1..4) {
                        let at = random.random_range(0..bytes.len());
                        bytes[at] = random.random();
                    }
                }
                // Cut short, with a length that says so, and another message behind.
                1 => {
                    bytes.truncate(random.random_range(5..=bytes.len()));
                    let length = (bytes.len() as u32 - 1).to_be_bytes();
                    bytes[1..5].copy_from_slice(&length);
                    bytes.extend_from_slice(&samples[random.random_range(0..samples.len())]);
                }
                // A length that lies.
                2 => {
                    let length = random.random_range(0..64_u32).to_be_bytes();
                    bytes[1..5].copy_from_slice(&length);
                    bytes.extend_from_slice(&samples.concat());
                }
                // Any body.
                _ => {
                    let kind = *b"QPBDCEHSXcfdF".get(random.random_range(0..13)).unwrap();
                    let body: Vec<u8> = (0..random.random_range(0..40)).map(|_| random.random_range(0..4)).collect();
                    bytes = message(kind, &body);
                }
            }
            read(&bytes);
            let _ = frames(&bytes).take_opening();
        }
    }
}
