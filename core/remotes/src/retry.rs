use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, SystemTime},
};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use time::{OffsetDateTime, format_description::well_known::Rfc2822};

/// How often one request is tried in all.
pub(crate) const MAX_ATTEMPTS: u32 = 6;
/// The longest wait before one attempt; a host that asks for more is given up.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);
const FIRST_WAIT: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// How long to wait before the attempt after `attempt` (1 is the first). What the host asks for counts, and a
/// random part keeps many clients from coming back at once. `None` when the host asks for too long a wait.
pub(crate) fn wait_before_next(attempt: u32, headers: Option<&HeaderMap>) -> Option<Duration> {
    let asked = headers.and_then(retry_after);
    if asked.is_some_and(|asked| asked > MAX_WAIT) {
        return None;
    }
    let backoff = (FIRST_WAIT * 2_u32.saturating_pow(attempt.saturating_sub(1).min(16))).min(MAX_BACKOFF);
    let random = (RandomState::new().hash_one(attempt) % 1000) as u32;
    Some(match asked {
        Some(asked) => asked + FIRST_WAIT * random / 1000,
        None => backoff / 2 + backoff * random / 1000,
    })
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = OffsetDateTime::parse(&text.replace("GMT", "+0000"), &Rfc2822).ok()?;
    let now = OffsetDateTime::from(SystemTime::now());
    Duration::try_from(date - now).ok().or(Some(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())])
    }

    #[test]
    fn the_host_says_how_long_to_wait() {
        let wait = wait_before_next(1, Some(&headers("2"))).unwrap();
        assert!(wait >= Duration::from_secs(2) && wait < Duration::from_secs(3));
        assert_eq!(wait_before_next(1, Some(&headers("3600"))), None);
        let past = wait_before_next(1, Some(&headers("Wed, 21 Oct 2015 07:28:00 GMT"))).unwrap();
        assert!(past < Duration::from_secs(1));
        let future = OffsetDateTime::now_utc() + Duration::from_secs(30);
        let date = future.format(&Rfc2822).unwrap().replace("+0000", "GMT");
        assert!(wait_before_next(1, Some(&headers(&date))).unwrap() > Duration::from_secs(25));
    }

    #[test]
    fn without_word_the_wait_doubles_within_bounds() {
        for attempt in 1..40 {
            let wait = wait_before_next(attempt, None).unwrap();
            assert!(wait >= FIRST_WAIT / 2 && wait <= MAX_BACKOFF * 3 / 2);
        }
    }
}
