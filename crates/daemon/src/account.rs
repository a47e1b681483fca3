//! `--user=USER[:GROUP]`: the user and group that the daemon becomes.

use nix::unistd::{Gid, Group, Uid, User};

/// A user and a group of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

/// Why `--user` cannot be followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// This process may not change its user.
    #[error("only root can use --user option")]
    NotRoot,
    /// There is no such user.
    #[error("user {0} not found, aborting.")]
    NoUser(String),
    /// There is no such group.
    #[error("group {0} not found, aborting.")]
    NoGroup(String),
    /// The user is not a member.
    #[error("Invalid --user option {spec} (user {user} is not in group {group}), aborting.")]
    NotAMember {
        /// The option's value.
        spec: String,
        /// The user.
        user: String,
        /// The group.
        group: String,
    },
    /// The system's databases of users cannot be read.
    #[error("Failed to look up user or group ({0}), aborting.")]
    Lookup(nix::errno::Errno),
}

impl Account {
    /// Looks up `USER[:GROUP]`, `USER` or `:GROUP`. The group must be one of the user's.
    ///
    /// # Errors
    /// If this is not root, or there is no such user or group.
    pub fn look_up(spec: &str) -> Result<Self, AccountError> {
        if !Uid::current().is_root() || !Uid::effective().is_root() {
            return Err(AccountError::NotRoot);
        }
        Self::find(spec)
    }

    /// The user of that name, with its own group, or with any other: for root, who decides about both. `None` if there is
    /// no such user.
    ///
    /// # Errors
    /// If there is no such group, or the system's databases cannot be read.
    pub fn named(user: &str, group: Option<&str>) -> Result<Option<Self>, AccountError> {
        let Some(user) = User::from_name(user).map_err(AccountError::Lookup)? else { return Ok(None) };
        let gid = group.map_or(Ok(user.gid.as_raw()), group_number)?;
        Ok(Some(Account { uid: user.uid.as_raw(), gid }))
    }

    fn find(spec: &str) -> Result<Self, AccountError> {
        let (name, group) = spec.split_once(':').unwrap_or((spec, ""));
        let user = if name.trim().is_empty() { User::from_uid(Uid::current()) } else { User::from_name(name.trim()) };
        let user = user.map_err(AccountError::Lookup)?.ok_or_else(|| AccountError::NoUser(name.trim().to_owned()))?;
        let gid = if group.trim().is_empty() { user.gid } else { group_of(&user, group.trim(), spec)? };
        Ok(Account { uid: user.uid.as_raw(), gid: gid.as_raw() })
    }
}

/// The number of the group of that name.
///
/// # Errors
/// If there is none, or the system's databases cannot be read.
pub fn group_number(name: &str) -> Result<u32, AccountError> {
    let group = Group::from_name(name).map_err(AccountError::Lookup)?;
    group.map(|group| group.gid.as_raw()).ok_or_else(|| AccountError::NoGroup(name.to_owned()))
}

fn group_of(user: &User, name: &str, spec: &str) -> Result<Gid, AccountError> {
    let group = Group::from_name(name).map_err(AccountError::Lookup)?;
    let group = group.ok_or_else(|| AccountError::NoGroup(name.to_owned()))?;
    if group.gid != user.gid && !group.mem.contains(&user.name) {
        let (spec, user, group) = (spec.to_owned(), user.name.clone(), name.to_owned());
        return Err(AccountError::NotAMember { spec, user, group });
    }
    Ok(group.gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_may_join_any_user_with_any_group() {
        assert_eq!(Account::named("nobody", Some("root")), Ok(Some(Account { uid: 65534, gid: 0 })));
        assert_eq!(Account::named("nobody", None), Account::find("nobody").map(Some));
        assert_eq!(Account::named("no-such-user", Some("root")), Ok(None));
        let no_group = Err(AccountError::NoGroup("no-such-group".into()));
        assert_eq!(Account::named("nobody", Some("no-such-group")), no_group);
    }

    #[test]
    fn users_and_groups_are_those_of_the_system() {
        assert_eq!(Account::find("root"), Ok(Account { uid: 0, gid: 0 }));
        assert_eq!(Account::find("root:root"), Ok(Account { uid: 0, gid: 0 }));
        let nobody = Account::find("nobody").unwrap();
        assert_eq!(nobody.uid, 65534);
        assert_eq!(Account::find("nobody:"), Ok(nobody));
        assert_eq!(Account::find("no-such-user"), Err(AccountError::NoUser("no-such-user".into())));
        assert_eq!(Account::find("root:no-such-group"), Err(AccountError::NoGroup("no-such-group".into())));
        let error = Account::find("nobody:root").unwrap_err().to_string();
        assert_eq!(error, "Invalid --user option nobody:root (user nobody is not in group root), aborting.");
    }
}
