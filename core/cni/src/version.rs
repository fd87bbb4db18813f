use std::{fmt, str::FromStr};

/// A version of the CNI specification, ordered as versions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecVersion {
    major: u16,
    minor: u16,
    patch: u16,
}

impl SpecVersion {
    /// The first one, which a configuration without a version means.
    pub const OLDEST: Self = Self::new(0, 1, 0);
    /// The newest one that is spoken here.
    pub const NEWEST: Self = Self::new(1, 1, 0);
    /// The first one whose results list interfaces and addresses.
    pub(crate) const LISTS: Self = Self::new(0, 3, 0);
    /// The first one with CHECK, and with the earlier result given to DEL.
    pub(crate) const CHECK: Self = Self::new(0, 4, 0);
    /// The first one with GC and STATUS.
    pub(crate) const GC_AND_STATUS: Self = Self::new(1, 1, 0);

    /// The version of these three numbers.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for SpecVersion {
    type Err = String;

    /// Reads `1`, `1.0` or `1.0.0`; an empty text is [`SpecVersion::OLDEST`].
    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::OLDEST);
        }
        let mut numbers = [0_u16; 3];
        for (place, part) in text.split('.').enumerate() {
            let number = numbers.get_mut(place).ok_or_else(|| format!("version {text:?} has more than three parts"))?;
            *number = part.parse().map_err(|_| format!("version {text:?} is not three numbers"))?;
        }
        let [major, minor, patch] = numbers;
        Ok(Self { major, minor, patch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number_and_empty_is_the_oldest() {
        let parse = |text: &str| text.parse::<SpecVersion>().unwrap();
        assert!(parse("0.10.0") > parse("0.9.9"));
        assert_eq!(parse(""), SpecVersion::OLDEST);
        assert_eq!(parse("1.1"), SpecVersion::NEWEST);
        for bad in ["a", "1.2.3.4", "-1", "1..2", "99999999"] {
            assert!(bad.parse::<SpecVersion>().is_err(), "{bad}");
        }
    }
}
