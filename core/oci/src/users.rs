use std::io::{BufRead, BufReader, Read};

use core_types::{Error, Result};
use serde_json::{Value, json};

use crate::{Rootfs, Spec};

/// Largest user or group id that runtimes take.
const MAX_ID: u32 = i32::MAX as u32;
/// Longest line of an account file that is read whole.
const MAX_LINE: usize = 64 * 1024;
/// Most groups a process is put in.
const MAX_GROUPS: usize = 65_536;

/// A user as written in an image or on a command line: `name|uid[:group|gid]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserSpec {
    user: Account,
    group: Option<Account>,
}

/// A name or a number; what is all digits is never a name (CVE-2026-46680).
#[derive(Clone, Debug, PartialEq, Eq)]
enum Account {
    Id(u32),
    Name(String),
}

/// A user found in a root file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedUser {
    /// User id.
    pub uid: u32,
    /// Main group's id.
    pub gid: u32,
    /// Ids of all groups, the main one first.
    pub groups: Vec<u32>,
}

impl UserSpec {
    /// Reads the written form.
    ///
    /// # Errors
    /// InvalidArgument for more than one colon, an empty user, or a number that is no id.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |why: &str| Error::invalid_argument(format!("invalid USER value {text:?}: {why}"));
        let mut parts = text.split(':');
        let user = parts.next().unwrap_or_default();
        let group = parts.next();
        if parts.next().is_some() {
            return Err(bad("more than one colon"));
        }
        if user.is_empty() {
            return Err(bad("no user"));
        }
        let user = Account::parse(user).ok_or_else(|| bad("uid out of range"))?;
        let group = match group {
            None | Some("") => None,
            Some(group) => Some(Account::parse(group).ok_or_else(|| bad("gid out of range"))?),
        };
        Ok(Self { user, group })
    }

    /// Looks the user up in the account files of a root file system. A number needs no entry there, a name
    /// does. Reads files: call it on a blocking thread.
    ///
    /// # Errors
    /// NotFound for a name that is not there; InvalidArgument for account files that are no plain files or too
    /// large.
    pub fn resolve(&self, root: &Rootfs) -> Result<ResolvedUser> {
        let entry = find_user(root, &self.user)?;
        let uid = match (&self.user, &entry) {
            (Account::Id(uid), _) => *uid,
            (Account::Name(_), Some(entry)) => entry.uid,
            (Account::Name(name), None) => {
                return Err(Error::not_found(format!("user {name:?} is not in /etc/passwd of the container")));
            }
        };
        let name = match (&self.user, &entry) {
            (_, Some(entry)) => entry.name.clone(),
            (Account::Name(name), None) => name.clone(),
            (Account::Id(_), None) => String::new(),
        };
        let found = scan_groups(root, &name, self.group.as_ref())?;
        let gid = match &self.group {
            None => entry.map_or(0, |entry| entry.gid),
            Some(Account::Id(gid)) => *gid,
            Some(Account::Name(group)) => found
                .named
                .ok_or_else(|| Error::not_found(format!("group {group:?} is not in /etc/group of the container")))?,
        };
        let mut groups = vec![gid];
        groups.extend(found.member_of.into_iter().filter(|group| *group != gid));
        Ok(ResolvedUser { uid, gid, groups })
    }
}

impl Account {
    /// `None` when it is a number out of range.
    fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(Self::Name(text.to_owned()));
        }
        let id = text.parse::<u32>().ok()?;
        (id <= MAX_ID).then_some(Self::Id(id))
    }
}

struct PasswdEntry {
    name: String,
    uid: u32,
    gid: u32,
}

#[derive(Default)]
struct Groups {
    /// Id of the group asked for by name.
    named: Option<u32>,
    /// Ids of the groups that list the user, other than the user's own group.
    member_of: Vec<u32>,
}

fn find_user(root: &Rootfs, wanted: &Account) -> Result<Option<PasswdEntry>> {
    let mut found = None;
    each_line(root, "etc/passwd", |line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, ..] = fields[..] else { return true };
        let (Ok(uid), Ok(gid)) = (uid.parse::<u32>(), gid.parse::<u32>()) else { return true };
        let is_it = match wanted {
            Account::Id(id) => uid == *id,
            Account::Name(wanted) => name == wanted,
        };
        if is_it && uid <= MAX_ID && gid <= MAX_ID {
            found = Some(PasswdEntry { name: name.to_owned(), uid, gid });
            return false;
        }
        true
    })?;
    Ok(found)
}

fn scan_groups(root: &Rootfs, user: &str, wanted: Option<&Account>) -> Result<Groups> {
    let mut groups = Groups::default();
    each_line(root, "etc/group", |line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, gid, ..] = fields[..] else { return true };
        let Ok(gid) = gid.parse::<u32>() else { return true };
        if gid > MAX_ID {
            return true;
        }
        if groups.named.is_none() && matches!(wanted, Some(Account::Name(wanted)) if wanted == name) {
            groups.named = Some(gid);
        }
        let members = fields.get(3).copied().unwrap_or_default();
        let listed = !user.is_empty() && name != user && members.split(',').any(|member| member.trim() == user);
        if listed && groups.member_of.len() < MAX_GROUPS && !groups.member_of.contains(&gid) {
            groups.member_of.push(gid);
        }
        true
    })?;
    Ok(groups)
}

/// Calls `visit` with the lines of a file until it answers false. A file that is not there has no lines;
/// over-long lines and comments are passed over.
fn each_line(root: &Rootfs, path: &str, mut visit: impl FnMut(&str) -> bool) -> Result<()> {
    let Some(file) = root.open_file(path)? else { return Ok(()) };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader
            .by_ref()
            .take(MAX_LINE as u64)
            .read_until(b'\n', &mut line)
            .map_err(|error| Error::io(format!("read /{path} of the container"), error))?;
        if read == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && read == MAX_LINE {
            reader.skip_until(b'\n').map_err(|error| Error::io(format!("read /{path} of the container"), error))?;
            continue;
        }
        let Ok(text) = std::str::from_utf8(&line) else { continue };
        let text = text.trim();
        if !text.is_empty() && !text.starts_with('#') && !visit(text) {
            return Ok(());
        }
    }
}

impl Spec {
    /// Sets user and groups of the process.
    pub fn set_user(&mut self, user: &ResolvedUser) {
        let object = self.object(&["process", "user"]);
        object.insert("uid".into(), json!(user.uid));
        object.insert("gid".into(), json!(user.gid));
        object.insert("additionalGids".into(), Value::from(user.groups.clone()));
        object.shift_remove("username");
    }
}

#[cfg(test)]
mod tests;
