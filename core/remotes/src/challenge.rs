use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// The longest challenge looked at, in bytes.
const MAX_CHALLENGE: usize = 16 * 1024;

/// How a host wants its clients to authenticate (RFC 9110, `WWW-Authenticate`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// `basic` or `bearer`, in lower case.
    pub(crate) scheme: String,
    pub(crate) realm: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) scope: Option<String>,
    /// Why a token was refused.
    pub(crate) error: Option<String>,
}

/// The challenge to answer: bearer before basic.
pub(crate) fn best(headers: &HeaderMap) -> Option<Challenge> {
    let mut challenges: Vec<Challenge> = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .filter(|text| text.len() <= MAX_CHALLENGE)
        .flat_map(parse)
        .collect();
    challenges.sort_by_key(|challenge| match challenge.scheme.as_str() {
        "bearer" => 0,
        "basic" => 1,
        _ => 2,
    });
    challenges.into_iter().next().filter(|challenge| matches!(challenge.scheme.as_str(), "bearer" | "basic"))
}

/// All challenges of one header value.
fn parse(text: &str) -> Vec<Challenge> {
    let mut challenges: Vec<Challenge> = Vec::new();
    let mut rest = text.trim_start_matches([' ', ',']);
    while !rest.is_empty() {
        let end = rest.find([' ', '=', ',']).unwrap_or(rest.len());
        let word = &rest[..end];
        let after = rest[end..].trim_start();
        if let Some(value) = after.strip_prefix('=') {
            let (value, remaining) = take_value(value.trim_start());
            if let Some(challenge) = challenges.last_mut() {
                set(challenge, word, value);
            }
            rest = remaining;
        } else {
            challenges.push(Challenge { scheme: word.to_ascii_lowercase(), ..Challenge::default() });
            rest = after;
        }
        rest = rest.trim_start_matches([' ', ',']);
    }
    challenges
}

fn set(challenge: &mut Challenge, key: &str, value: String) {
    match key.to_ascii_lowercase().as_str() {
        "realm" => challenge.realm = Some(value),
        "service" => challenge.service = Some(value),
        "scope" => challenge.scope = Some(value),
        "error" => challenge.error = Some(value),
        _ => {}
    }
}

/// A token or quoted string, and what follows it.
fn take_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', ',']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_of_real_registries_are_read() {
        let docker = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push",error="invalid_token""#;
        let challenge = &parse(docker)[0];
        assert_eq!(challenge.scheme, "bearer");
        assert_eq!(challenge.realm.as_deref(), Some("https://auth.docker.io/token"));
        assert_eq!(challenge.scope.as_deref(), Some("repository:a/b:pull,push"));
        assert_eq!(challenge.error.as_deref(), Some("invalid_token"));
        let two = parse(r#"Basic realm="a \"quoted\" place", Bearer realm=x , service=y"#);
        assert_eq!(two[0].realm.as_deref(), Some("a \"quoted\" place"));
        assert_eq!((two[1].realm.as_deref(), two[1].service.as_deref()), (Some("x"), Some("y")));
    }

    #[test]
    fn nonsense_ends() {
        for text in ["", ",,,", "=", "= =", "Bearer realm=\"", "Bearer \\", "a=b,c", "é=\"é\\"] {
            parse(text);
        }
    }
}
