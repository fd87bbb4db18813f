use std::{cmp::Ordering, fmt};

use core_types::{Descriptor, Platform, platforms::Matcher};

/// Which platforms are wanted, the most wanted first; all, when none is named.
#[derive(Clone, Debug, Default)]
pub struct PlatformSet {
    wanted: Vec<(Platform, Matcher)>,
}

impl PlatformSet {
    /// All platforms.
    pub fn all() -> Self {
        Self::default()
    }

    /// These platforms and what runs on them.
    pub fn of(platforms: &[Platform]) -> Self {
        Self { wanted: platforms.iter().map(|platform| (platform.clone(), Matcher::only(platform))).collect() }
    }

    /// Exactly these platforms, not what else runs on them.
    pub fn exact(platforms: &[Platform]) -> Self {
        let exact = |platform: &Platform| (platform.clone(), Matcher::any_of(std::slice::from_ref(platform)));
        Self { wanted: platforms.iter().map(exact).collect() }
    }

    /// The platform of this machine.
    pub fn host() -> Self {
        Self::of(&[Platform::host()])
    }

    /// Whether everything matches.
    pub fn is_all(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Whether the platform is wanted.
    pub fn matches(&self, platform: &Platform) -> bool {
        self.is_all() || self.wanted.iter().any(|(_, matcher)| matcher.matches(platform))
    }

    /// Whether a child of an index is to be looked at: those without a platform are.
    pub fn accepts(&self, child: &Descriptor) -> bool {
        child.platform.as_ref().is_none_or(|platform| self.matches(platform))
    }

    /// Which of two platforms is wanted more; `Less` is better.
    pub fn compare(&self, left: &Platform, right: &Platform) -> Ordering {
        for (_, matcher) in &self.wanted {
            match (matcher.matches(left), matcher.matches(right)) {
                (true, true) => return matcher.compare(left, right),
                (true, false) => return Ordering::Less,
                (false, true) => return Ordering::Greater,
                (false, false) => {}
            }
        }
        Ordering::Equal
    }

    /// As [`compare`](Self::compare); a descriptor without a platform comes last.
    pub fn compare_descriptors(&self, left: &Descriptor, right: &Descriptor) -> Ordering {
        match (&left.platform, &right.platform) {
            (Some(left), Some(right)) => self.compare(left, right),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        }
    }
}

impl fmt::Display for PlatformSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("any platform");
        }
        for (at, (platform, _)) in self.wanted.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{}/{}", platform.os, platform.architecture)?;
            if !platform.variant.is_empty() {
                write!(f, "/{}", platform.variant)?;
            }
        }
        Ok(())
    }
}
