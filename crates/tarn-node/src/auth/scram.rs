//! How does a client prove that it knows a password, without saying it? The server's side of SCRAM-SHA-256 (RFC 5802,
//! 7677), as PostgreSQL speaks it: the user's name is that of the startup message, and the one in the exchange is
//! ignored.
//!
//! ```text
//! client  n,,n=,r=NONCE                       client-first
//! server  r=NONCE+OURS,s=SALT,i=4096          server-first    [`Exchange::begin`]
//! client  c=biws,r=NONCE+OURS,p=PROOF         client-final
//! server  v=SIGNATURE                         server-final    [`Exchange::finish`]
//! ```
//!
//! Without channel binding: SCRAM-SHA-256-PLUS is not offered.

use ring::hmac;

use super::password::{KEY_BYTES, Verifier, decode, encode, is_same, random, sha256, tag};

/// The only mechanism there is.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// Neither message of a client needs to be longer.
const MAX_MESSAGE_BYTES: usize = 2048;

const NONCE_BYTES: usize = 18;

/// An exchange that has begun.
pub struct Exchange {
    verifier: Verifier,
    /// `n,,` or `y,,`: what the client says of channel binding, which it must repeat.
    gs2_header: String,
    client_first_bare: String,
    server_first: String,
    nonce: String,
}

/// Why an exchange ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScramFailure {
    /// The client does not speak the protocol, or another version of it.
    Malformed(&'static str),
    /// The proof is not that of the password.
    WrongPassword,
}

impl Exchange {
    /// Takes the client's first message; answers the exchange and the server's first.
    pub fn begin(verifier: Verifier, client_first: &[u8]) -> Result<(Exchange, String), ScramFailure> {
        let text = message(client_first)?;
        let (gs2_header, bare) = match text.as_bytes() {
            [b'n' | b'y', b',', b',', ..] => text.split_at(3),
            [b'p', ..] => return Err(ScramFailure::Malformed("channel binding was not offered")),
            _ => return Err(ScramFailure::Malformed("the first message does not begin with n,, or y,,")),
        };
        let mut parts = bare.split(',');
        let name = parts.next().filter(|name| name.starts_with("n="));
        let client_nonce = parts.next().and_then(|part| part.strip_prefix("r=")).filter(|nonce| !nonce.is_empty());
        let (Some(_), Some(client_nonce)) = (name, client_nonce) else {
            return Err(ScramFailure::Malformed("the first message has no name and nonce"));
        };
        let nonce = format!("{client_nonce}{}", encode(&random::<NONCE_BYTES>()));
        let server_first = format!("r={nonce},s={},i={}", encode(&verifier.salt), verifier.iterations);
        let exchange = Exchange {
            verifier,
            gs2_header: gs2_header.to_owned(),
            client_first_bare: bare.to_owned(),
            server_first: server_first.clone(),
            nonce,
        };
        Ok((exchange, server_first))
    }

    /// Takes the client's proof; answers the server's, if it is right.
    pub fn finish(&self, client_final: &[u8]) -> Result<String, ScramFailure> {
        let text = message(client_final)?;
        let malformed = || ScramFailure::Malformed("the last message has no binding, nonce and proof");
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or_else(malformed)?;
        let mut parts = without_proof.split(',');
        let binding = parts.next().and_then(|part| part.strip_prefix("c=")).ok_or_else(malformed)?;
        let nonce = parts.next().and_then(|part| part.strip_prefix("r=")).ok_or_else(malformed)?;
        if decode(binding).as_deref() != Some(self.gs2_header.as_bytes()) {
            return Err(ScramFailure::Malformed("the last message binds another channel than the first"));
        }
        if nonce != self.nonce {
            return Err(ScramFailure::Malformed("the last message has another nonce"));
        }
        let proof: [u8; KEY_BYTES] = decode(proof).and_then(|proof| proof.try_into().ok()).ok_or_else(malformed)?;

        let signed = format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        let signature = tag(&hmac::Key::new(hmac::HMAC_SHA256, &self.verifier.stored_key), signed.as_bytes());
        let mut client_key = proof;
        client_key.iter_mut().zip(signature).for_each(|(byte, mask)| *byte ^= mask);
        if !is_same(&sha256(&client_key), &self.verifier.stored_key) {
            return Err(ScramFailure::WrongPassword);
        }
        let ours = tag(&hmac::Key::new(hmac::HMAC_SHA256, &self.verifier.server_key), signed.as_bytes());
        Ok(format!("v={}", encode(&ours)))
    }
}

fn message(bytes: &[u8]) -> Result<&str, ScramFailure> {
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(ScramFailure::Malformed("a message is too long"));
    }
    std::str::from_utf8(bytes).map_err(|_| ScramFailure::Malformed("a message is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677 with the server's nonce put in place.
    #[test]
    fn the_exchange_of_the_rfc() {
        let salt = decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        let verifier: Verifier = text.parse().unwrap();
        assert!(verifier.fits("pencil") && verifier.salt == salt);
        let first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        let (mut exchange, _) = Exchange::begin(verifier, first).unwrap();
        exchange.nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned();
        exchange.server_first = format!("r={},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", exchange.nonce);
        let last = |proof: &str| format!("c=biws,r={},p={proof}", exchange.nonce);
        assert_eq!(
            exchange.finish(last("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").as_bytes()).unwrap(),
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
        let wrong = last("AHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(exchange.finish(wrong.as_bytes()), Err(ScramFailure::WrongPassword));
        let replayed = "c=biws,r=rOprNGfwEbeRWgbNEkqO,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert!(matches!(exchange.finish(replayed.as_bytes()), Err(ScramFailure::Malformed(_))));
        let bound = last("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").replace("biws", "eSws");
        assert!(matches!(exchange.finish(bound.as_bytes()), Err(ScramFailure::Malformed(_))));
    }

    #[test]
    fn nonsense_is_malformed_and_nonces_are_new() {
        let verifier = || Verifier::of_password("x");
        for text in ["", "n,,", "n,,n=u", "n,,n=u,r=", "p=tls-unique,,n=u,r=x", "n,a=other,n=u,r=x", "\u{fffd}"] {
            assert!(matches!(Exchange::begin(verifier(), text.as_bytes()), Err(ScramFailure::Malformed(_))), "{text}");
        }
        assert!(matches!(Exchange::begin(verifier(), &[0xff; 10]), Err(ScramFailure::Malformed(_))));
        assert!(matches!(Exchange::begin(verifier(), &vec![b'n'; 5000]), Err(ScramFailure::Malformed(_))));
        let nonce = || Exchange::begin(verifier(), b"n,,n=,r=abc").unwrap().0.nonce;
        assert_ne!(nonce(), nonce());
        let (exchange, _) = Exchange::begin(verifier(), b"y,,n=,r=abc").unwrap();
        for text in ["", "c=", "c=eSws,r=abc", "c=eSws,p=x", ",p=", "c=eSws,r=abc,p=!!!"] {
            assert!(matches!(exchange.finish(text.as_bytes()), Err(ScramFailure::Malformed(_))), "{text}");
        }
    }
}
