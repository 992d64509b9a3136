//! `--owner`: whose the restored files of a server are. A server starts as a user of its own, and a restore is often run by root.

use std::fs;
use std::os::unix::fs::lchown;
use std::path::Path;

use fullbore_core::{Error, Result};
use nix::unistd::{Group, User};

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// Understands `USER` (with its main group), `USER:GROUP`, and numbers for either.
    ///
    /// # Errors
    /// There is no such user or group on this machine.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: String| {
            Error::usage(format!("--owner {text}"), why, "name a user of this machine, USER:GROUP, or their numbers")
        };
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let known = match user.parse() {
            Ok(number) => User::from_uid(nix::unistd::Uid::from_raw(number)),
            Err(_) => User::from_name(user),
        };
        let known = known.map_err(|error| wrong(format!("users cannot be looked up: {error}")))?;
        let number = known.as_ref().map(|known| known.uid.as_raw()).or_else(|| user.parse().ok());
        let user_number = number.ok_or_else(|| wrong(format!("there is no user `{user}`")))?;
        let group_number = match (group, known) {
            (None, Some(known)) => known.gid.as_raw(),
            (None, None) => return Err(wrong(format!("user {user} has no name here, and so no group"))),
            (Some(group), _) => match group.parse() {
                Ok(number) => number,
                Err(_) => Group::from_name(group)
                    .map_err(|error| wrong(format!("groups cannot be looked up: {error}")))?
                    .ok_or_else(|| wrong(format!("there is no group `{group}`")))?
                    .gid
                    .as_raw(),
            },
        };
        Ok(Self { user: user_number, group: group_number })
    }

    /// Only root gives files to others.
    ///
    /// # Errors
    /// This is not root, and the owner somebody else.
    pub fn must_be_possible(&self) -> Result<()> {
        let mine = rustix::process::geteuid();
        if mine.is_root() || mine.as_raw() == self.user {
            return Ok(());
        }
        let why = format!("only root gives files to others, and this is user {}", mine.as_raw());
        Err(Error::refused(
            format!("--owner {}:{}", self.user, self.group),
            why,
            "restore as root, or as that user and without --owner",
        ))
    }

    /// Gives it one file or directory, and nothing below.
    ///
    /// # Errors
    /// It cannot be given.
    pub fn take_one(&self, path: &Path) -> Result<()> {
        let action = "give to the user named with --owner";
        lchown(path, Some(self.user), Some(self.group))
            .map_err(|error| Error::io(action, path.display().to_string(), error))
    }

    /// Gives it the directory and everything below; what symbolic links point to is left alone.
    ///
    /// # Errors
    /// The first file that cannot be given: only root gives files away.
    pub fn take(&self, directory: &Path) -> Result<()> {
        let failed = |path: &Path, error| Error::io("read", path.display().to_string(), error);
        let mut waiting = vec![directory.to_owned()];
        while let Some(path) = waiting.pop() {
            self.take_one(&path)?;
            if path.symlink_metadata().is_ok_and(|stat| stat.is_dir()) {
                for entry in fs::read_dir(&path).map_err(|error| failed(&path, error))? {
                    waiting.push(entry.map_err(|error| failed(&path, error))?.path());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn an_owner_is_a_user_with_or_without_a_group_by_name_or_by_number() {
        let root = Owner { user: 0, group: 0 };
        for text in ["root", "root:root", "0", "0:0", "root:0"] {
            assert_eq!(Owner::parse(text).unwrap(), root, "{text}");
        }
        assert_eq!(Owner::parse("64123:7").unwrap(), Owner { user: 64_123, group: 7 });
        for text in ["", ":", "no such user", "root:no such group", "root:", "64123", "-1:0", "99999999999:0"] {
            let error = Owner::parse(text).unwrap_err();
            assert!(error.to_string().contains("--owner") && error.verdict().exit_code() == 2, "{text}: {error}");
        }
    }

    #[test]
    fn everything_below_a_directory_is_given_and_nothing_behind_a_link() {
        let (root, far) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        fs::create_dir(root.path().join("shop")).unwrap();
        fs::write(root.path().join("shop/a.ibd"), "x").unwrap();
        std::os::unix::fs::symlink(far.path(), root.path().join("link")).unwrap();
        let mine = far.path().metadata().unwrap();
        // Only root gives files to others; to oneself anybody does.
        let owner = match mine.uid() {
            0 => Owner { user: 64_123, group: 64_124 },
            user => Owner { user, group: mine.gid() },
        };
        owner.take(root.path()).unwrap();
        for name in ["", "shop", "shop/a.ibd", "link"] {
            let stat = root.path().join(name).symlink_metadata().unwrap();
            assert_eq!((stat.uid(), stat.gid()), (owner.user, owner.group), "{name}");
        }
        assert_eq!(far.path().metadata().unwrap().uid(), mine.uid());
    }
}
