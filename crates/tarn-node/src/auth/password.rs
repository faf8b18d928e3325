//! What is kept of a password? A [`Verifier`] in PostgreSQL's text form, from which the password cannot be read:
//! `SCRAM-SHA-256$4096:SALT$STOREDKEY:SERVERKEY` (RFC 5802 and 7677; the parts in base64).
//!
//! Keys are compared in constant time. No type here shows a secret in `{:?}`.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};

/// As PostgreSQL's default: what a login costs the client, and a guess whoever has stolen verifiers.
const ITERATIONS: u32 = 4096;

/// A verifier that a client made may not make the server's HTTP logins arbitrarily dear.
const MAX_ITERATIONS: u32 = 1_000_000;

const SALT_BYTES: usize = 16;

/// Of SHA-256, and so of all keys here.
pub const KEY_BYTES: usize = digest::SHA256_OUTPUT_LEN;

const SCHEME: &str = "SCRAM-SHA-256$";

/// What the server needs to tell whether a client knows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// Of PBKDF2.
    pub iterations: u32,
    /// Of PBKDF2; of each verifier its own.
    pub salt: Vec<u8>,
    /// SHA-256 of the key with which the client proves itself.
    pub stored_key: [u8; KEY_BYTES],
    /// The key with which the server proves itself.
    pub server_key: [u8; KEY_BYTES],
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(…)")
    }
}

/// Why a text is no verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoVerifier;

impl Verifier {
    /// Of a password in clear, with a salt of its own. Costs milliseconds.
    pub fn of_password(password: &str) -> Verifier {
        Verifier::salted(password, random::<SALT_BYTES>().to_vec(), ITERATIONS)
    }

    /// What a login as a user that is not there is held against: always the same for the same name, so that nobody can
    /// tell, and no password fits.
    pub fn mock(secret: &[u8], user: &str) -> Verifier {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let part = |what: &str| -> [u8; KEY_BYTES] { tag(&key, format!("{what}:{user}").as_bytes()) };
        Verifier {
            iterations: ITERATIONS,
            salt: part("salt")[..SALT_BYTES].to_vec(),
            stored_key: random(),
            server_key: random(),
        }
    }

    fn salted(password: &str, salt: Vec<u8>, iterations: u32) -> Verifier {
        let salted = hmac::Key::new(hmac::HMAC_SHA256, &salted_password(password, &salt, iterations));
        let client_key = tag(&salted, b"Client Key");
        Verifier { iterations, salt, stored_key: sha256(&client_key), server_key: tag(&salted, b"Server Key") }
    }

    /// Whether this is the password. Costs milliseconds, the same for right and wrong.
    pub fn fits(&self, password: &str) -> bool {
        let given = Verifier::salted(password, self.salt.clone(), self.iterations);
        is_same(&given.stored_key, &self.stored_key)
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] = [self.salt.as_slice(), &self.stored_key, &self.server_key].map(encode);
        write!(f, "{SCHEME}{}:{salt}${stored}:{server}", self.iterations)
    }
}

impl FromStr for Verifier {
    type Err = NoVerifier;

    fn from_str(text: &str) -> Result<Verifier, NoVerifier> {
        let parse = || {
            let (cost, keys) = text.strip_prefix(SCHEME)?.split_once('$')?;
            let (iterations, salt) = cost.split_once(':')?;
            let (stored, server) = keys.split_once(':')?;
            let iterations = iterations.parse().ok().filter(|n| (1..=MAX_ITERATIONS).contains(n))?;
            let key = |text: &str| -> Option<[u8; KEY_BYTES]> { STANDARD.decode(text).ok()?.try_into().ok() };
            let salt = STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?;
            Some(Verifier { iterations, salt, stored_key: key(stored)?, server_key: key(server)? })
        };
        parse().ok_or(NoVerifier)
    }
}

/// Whether a text is hashed in some way already, as `psql`'s `\password` sends it: it is taken as it is, or refused.
pub fn is_hashed(text: &str) -> bool {
    let is_md5 = text.len() == 35 && text.starts_with("md5") && text[3..].bytes().all(|b| b.is_ascii_hexdigit());
    is_md5 || text.starts_with(SCHEME)
}

fn salted_password(password: &str, salt: &[u8], iterations: u32) -> [u8; KEY_BYTES] {
    // PostgreSQL takes a password that SASLprep forbids as it is.
    let prepared = stringprep::saslprep(password).unwrap_or(Cow::Borrowed(password));
    let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
    let mut out = [0; KEY_BYTES];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, prepared.as_bytes(), &mut out);
    out
}

/// HMAC-SHA-256.
pub fn tag(key: &hmac::Key, text: &[u8]) -> [u8; KEY_BYTES] {
    hmac::sign(key, text).as_ref().try_into().expect("HMAC-SHA-256 has 32 bytes")
}

/// The digest of the bytes.
pub fn sha256(bytes: &[u8]) -> [u8; KEY_BYTES] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Takes as long whatever differs.
pub fn is_same(a: &[u8; KEY_BYTES], b: &[u8; KEY_BYTES]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | std::hint::black_box(a ^ b)) == 0
}

/// From the system, for salts and nonces.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has random bytes");
    bytes
}

/// Base64, with padding.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// `None`: that is no base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_survives_its_text_and_knows_its_password() {
        let verifier = Verifier::of_password("pencil");
        assert_eq!(verifier.to_string().parse::<Verifier>().unwrap(), verifier);
        assert!(verifier.fits("pencil") && !verifier.fits("Pencil") && !verifier.fits(""));
        assert_ne!(Verifier::of_password("pencil").salt, verifier.salt, "each has a salt of its own");
        assert_eq!(format!("{verifier:?}"), "Verifier(…)");
    }

    /// RFC 7677, section 3.
    #[test]
    fn the_keys_are_those_of_the_rfc() {
        let salt = decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = Verifier::salted("pencil", salt, 4096);
        let message = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
                       c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let signed = tag(&hmac::Key::new(hmac::HMAC_SHA256, &verifier.server_key), message.as_bytes());
        assert_eq!(encode(&signed), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn what_is_no_verifier_is_none() {
        for text in
            ["", "pencil", "SCRAM-SHA-256$", "SCRAM-SHA-256$0:eA==$x:y", "SCRAM-SHA-256$4096:eA==$eA==:eA==", "md5abc"]
        {
            assert_eq!(text.parse::<Verifier>(), Err(NoVerifier), "{text}");
        }
        assert!(is_hashed("md500112233445566778899aabbccddeeff") && is_hashed("SCRAM-SHA-256$4096:broken"));
        assert!(!is_hashed("md5 is old"));
    }

    #[test]
    fn an_unknown_user_has_the_same_salt_each_time() {
        let (one, again) = (Verifier::mock(b"secret", "eve"), Verifier::mock(b"secret", "eve"));
        assert_eq!((&one.salt, one.iterations), (&again.salt, again.iterations));
        assert_ne!(one.salt, Verifier::mock(b"secret", "eva").salt);
        assert_ne!(one.salt, Verifier::mock(b"other", "eve").salt);
    }
}
