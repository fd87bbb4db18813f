//! Requests waiting for their client, each under a random token that works once.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use core_types::{Error, Result};

use crate::api::Request;

/// How long a URL stays good.
const LIFE: Duration = Duration::from_secs(60);

/// How many URLs may be waiting.
const MOST: usize = 1000;

#[derive(Default)]
pub(crate) struct Tokens(Mutex<HashMap<String, (Instant, Request)>>);

impl Tokens {
    pub(crate) fn put(&self, request: Request) -> Result<String> {
        self.put_at(Instant::now(), request)
    }

    pub(crate) fn take(&self, token: &str) -> Option<Request> {
        self.take_at(Instant::now(), token)
    }

    fn put_at(&self, now: Instant, request: Request) -> Result<String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|e| Error::internal(format!("read random bytes: {e}")))?;
        let token = URL_SAFE_NO_PAD.encode(random);
        let mut waiting = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if waiting.len() >= MOST {
            waiting.retain(|_, (born, _)| now.duration_since(*born) < LIFE);
        }
        if waiting.len() >= MOST {
            return Err(Error::resource_exhausted(
                "too many streaming requests wait for their client; try again later",
            ));
        }
        waiting.insert(token.clone(), (now, request));
        Ok(token)
    }

    fn take_at(&self, now: Instant, token: &str) -> Option<Request> {
        let (born, request) = self.0.lock().unwrap_or_else(|e| e.into_inner()).remove(token)?;
        (now.duration_since(born) < LIFE).then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::PortForwardRequest;

    fn request() -> Request {
        Request::PortForward(PortForwardRequest { sandbox: "s".into(), ports: vec![] })
    }

    #[test]
    fn a_token_works_once_and_for_a_minute() {
        let tokens = Tokens::default();
        let now = Instant::now();
        let token = tokens.put_at(now, request()).unwrap();
        assert!(token.len() >= 8);
        assert!(tokens.take_at(now, &token).is_some());
        assert!(tokens.take_at(now, &token).is_none());
        let token = tokens.put_at(now, request()).unwrap();
        assert!(tokens.take_at(now + LIFE, &token).is_none());
    }

    #[test]
    fn tokens_are_bounded_until_they_age() {
        let tokens = Tokens::default();
        let now = Instant::now();
        for _ in 0..MOST {
            tokens.put_at(now, request()).unwrap();
        }
        let error = tokens.put_at(now, request()).unwrap_err();
        assert_eq!(error.kind(), core_types::ErrorKind::ResourceExhausted);
        tokens.put_at(now + LIFE, request()).unwrap();
    }
}
