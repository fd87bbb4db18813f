use std::collections::HashSet;

use crate::Registration;

/// Why registrations cannot be ordered.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GraphError {
    /// Plugins require each other.
    #[error("plugins require each other: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
}

/// Orders registrations so that each comes after what it requires; otherwise the order stays.
pub(crate) fn order(registrations: &[Registration]) -> Result<Vec<usize>, GraphError> {
    let mut walk = Walk { registrations, done: HashSet::new(), path: Vec::new(), order: Vec::new() };
    for at in 0..registrations.len() {
        walk.visit(at)?;
    }
    Ok(walk.order)
}

struct Walk<'a> {
    registrations: &'a [Registration],
    done: HashSet<usize>,
    path: Vec<usize>,
    order: Vec<usize>,
}

impl Walk<'_> {
    fn visit(&mut self, at: usize) -> Result<(), GraphError> {
        if self.done.contains(&at) {
            return Ok(());
        }
        if let Some(start) = self.path.iter().position(|&on_path| on_path == at) {
            let cycle = self.path[start..].iter().chain([&at]);
            return Err(GraphError::Cycle(cycle.map(|&at| self.registrations[at].uri()).collect()));
        }
        self.path.push(at);
        let registrations = self.registrations;
        for requirement in &registrations[at].requires {
            for (other, candidate) in registrations.iter().enumerate() {
                // A plugin that requires its own type means the others of it.
                let itself = other == at && requirement.id.is_none();
                if !itself && requirement.matches(candidate) {
                    self.visit(other)?;
                }
            }
        }
        self.path.pop();
        self.done.insert(at);
        self.order.push(at);
        Ok(())
    }
}
