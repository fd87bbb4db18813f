use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

/// The SELinux levels that tell pods from each other: each has two categories that no other has.
#[derive(Debug)]
pub struct SelinuxLevels {
    /// Categories are below this.
    range: u32,
    taken: Mutex<BTreeSet<(u32, u32)>>,
}

impl SelinuxLevels {
    /// Levels of categories below `range`; zero stands for 1024, which is all that policies have.
    pub fn new(range: u32) -> Self {
        let range = if range == 0 { 1024 } else { range.min(1024) };
        Self { range, taken: Mutex::default() }
    }

    /// A level that no one has, as `s0:c1,c2`; `None` when all are taken.
    pub fn reserve(&self) -> Option<String> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pairs = (1..self.range).flat_map(|high| (0..high).map(move |low| (low, high)));
        let pair = pairs.find(|pair| !taken.contains(pair))?;
        taken.insert(pair);
        Some(format!("s0:c{},c{}", pair.0, pair.1))
    }

    /// Takes the level of a label that is in use, after a restart.
    pub fn adopt(&self, label: &str) {
        if let Some(pair) = pair_of(label) {
            self.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(pair);
        }
    }

    /// Gives the level of a label back.
    pub fn release(&self, label: &str) {
        if let Some(pair) = pair_of(label) {
            self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&pair);
        }
    }
}

/// The two categories at the end of a label or level.
fn pair_of(label: &str) -> Option<(u32, u32)> {
    let (_, categories) = label.rsplit_once(':')?;
    let (one, other) = categories.split_once(',')?;
    let number = |text: &str| text.strip_prefix('c')?.parse::<u32>().ok();
    let (one, other) = (number(one)?, number(other)?);
    Some((one.min(other), one.max(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pods_have_the_same_level() {
        let levels = SelinuxLevels::new(3);
        levels.adopt("system_u:system_r:container_t:s0:c2,c0");
        let (one, two) = (levels.reserve().unwrap(), levels.reserve().unwrap());
        assert_eq!((one.as_str(), two.as_str()), ("s0:c0,c1", "s0:c1,c2"));
        assert_eq!(levels.reserve(), None, "only three pairs");
        levels.release("system_u:system_r:container_t:s0:c0,c1");
        assert_eq!(levels.reserve().unwrap(), one);
        for other in ["", "system_u:system_r:spc_t:s0", "s0:c1", "s0:c1.c5"] {
            levels.release(other);
            levels.adopt(other);
        }
        assert_eq!(levels.reserve(), None);
    }
}
