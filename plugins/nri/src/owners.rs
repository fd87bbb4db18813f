//! Who set which field of which container: two plugins that set the same are a conflict.

use containerd_api_nri::v1alpha1::{Field, FieldOwners, OwningPlugins};
use core_types::{Error, Result};

/// The key of an entry marked for removal, without the mark.
pub(crate) fn removed(key: &str) -> Option<&str> {
    key.strip_prefix('-')
}

/// The claims of one plugin on one container.
pub(crate) struct Claims<'a> {
    pub(crate) owners: &'a mut OwningPlugins,
    pub(crate) id: &'a str,
    pub(crate) plugin: &'a str,
}

impl Claims<'_> {
    fn fields(&mut self) -> &mut FieldOwners {
        self.owners.owners.entry(self.id.to_owned()).or_default()
    }

    /// Sets a field.
    pub(crate) fn field(&mut self, field: Field) -> Result<()> {
        let plugin = self.plugin.to_owned();
        self.check(field, "", self.owners.owners.get(self.id).and_then(|of| of.simple.get(&(field as i32))))?;
        self.fields().simple.insert(field as i32, plugin);
        Ok(())
    }

    /// Sets an entry of a field.
    pub(crate) fn entry(&mut self, field: Field, key: &str) -> Result<()> {
        let plugin = self.plugin.to_owned();
        let fields = self.owners.owners.get(self.id);
        let owner = fields.and_then(|of| of.compound.get(&(field as i32))?.owners.get(key));
        self.check(field, key, owner)?;
        self.fields().compound.entry(field as i32).or_default().owners.insert(key.to_owned(), plugin);
        Ok(())
    }

    /// A field that every plugin may add to.
    pub(crate) fn share(&mut self, field: Field) {
        let plugin = self.plugin.to_owned();
        let owner = self.fields().simple.entry(field as i32).or_default();
        let first = owner.is_empty();
        owner.push_str(if first { "" } else { "," });
        owner.push_str(&plugin);
    }

    /// Takes a field from whoever set it: only this plugin may set it again.
    pub(crate) fn clear(&mut self, field: Field) {
        let mark = format!("-{}", self.plugin);
        self.fields().simple.insert(field as i32, mark);
    }

    /// Takes an entry from whoever set it: only this plugin may set it again.
    pub(crate) fn clear_entry(&mut self, field: Field, key: &str) {
        let mark = format!("-{}", self.plugin);
        self.fields().compound.entry(field as i32).or_default().owners.insert(key.to_owned(), mark);
    }

    fn check(&self, field: Field, key: &str, owner: Option<&String>) -> Result<()> {
        let Some(owner) = owner else { return Ok(()) };
        let other = match removed(owner) {
            Some(clearer) if clearer == self.plugin => return Ok(()),
            Some(clearer) => clearer,
            None => owner,
        };
        let field = field.as_str_name();
        let what = format!("{field} {key}");
        Err(Error::failed_precondition(format!(
            "NRI plugins {:?} and {other:?} both tried to set {} of container {}: let only one of them",
            self.plugin,
            what.trim_end(),
            self.id
        )))
    }
}
