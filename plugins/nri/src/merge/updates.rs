use containerd_api_nri::v1alpha1::{ContainerUpdate, LinuxResources, OwningPlugins};
use core_types::Result;

use super::resources;
use crate::owners::Claims;

/// Updates of containers that are there, merged.
#[derive(Default)]
pub(crate) struct Updates {
    pub(crate) owners: OwningPlugins,
    updates: Vec<ContainerUpdate>,
    /// The container whose update is asked for, and what it is to get as far as decided.
    own: Option<(String, LinuxResources)>,
}

impl Updates {
    /// For the update of a container.
    pub(crate) fn of(id: &str, resources: &LinuxResources) -> Self {
        Self { own: Some((id.to_owned(), resources.clone())), ..Self::default() }
    }

    /// What the container is to get, as the next plugin sees it.
    pub(crate) fn own(&self) -> LinuxResources {
        self.own.as_ref().map(|(_, resources)| resources.clone()).unwrap_or_default()
    }

    /// Merges the updates that a plugin wants. One whose failure it ignores is left out when it is in conflict.
    pub(crate) fn add(&mut self, updates: &[ContainerUpdate], plugin: &str) -> Result<()> {
        for update in updates {
            let before = update.ignore_failure.then(|| self.owners.clone());
            match (self.merge(update, plugin), before) {
                (Err(error), Some(before)) => {
                    tracing::warn!(plugin, id = update.container_id, %error, "NRI: update left out");
                    self.owners = before;
                }
                (outcome, _) => outcome?,
            }
        }
        Ok(())
    }

    fn merge(&mut self, update: &ContainerUpdate, plugin: &str) -> Result<()> {
        let Some(wanted) = update.linux.as_ref().and_then(|linux| linux.resources.as_ref()) else { return Ok(()) };
        let id = update.container_id.as_str();
        resources::claim(wanted, &mut Claims { owners: &mut self.owners, id, plugin })?;
        let own = self.own.as_mut().filter(|(own, _)| own == id);
        let base = own.map(|(_, resources)| {
            resources::overlay(wanted, resources);
            resources.clone()
        });
        match self.updates.iter_mut().find(|have| have.container_id == id) {
            Some(have) => {
                have.ignore_failure &= update.ignore_failure;
                let merged = have.linux.get_or_insert_default().resources.get_or_insert_default();
                match base {
                    Some(base) => *merged = base,
                    None => resources::overlay(wanted, merged),
                }
            }
            None => {
                let mut new = update.clone();
                if let (Some(base), Some(linux)) = (base, &mut new.linux) {
                    linux.resources = Some(base);
                }
                self.updates.push(new);
            }
        }
        Ok(())
    }

    /// The updates, that of the container itself last.
    pub(crate) fn finish(mut self) -> Vec<ContainerUpdate> {
        if let Some((own, _)) = &self.own {
            self.updates.sort_by_key(|update| update.container_id == *own);
        }
        self.updates
    }

    /// The updates so far.
    pub(crate) fn all(&self) -> &[ContainerUpdate] {
        &self.updates
    }
}
