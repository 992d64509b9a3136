//! `--owner`: the owner of the restored files of a server. A server runs as its own user, and a restore often as root.

use std::fs;
use std::os::unix::fs::lchown;
use std::path::Path;

use fullbore_core::{Error, Result};
use fullbore_engines::engine::OWNER;
use nix::unistd::{Group, User};

use super::Request;

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    /// The owner that the request names.
    ///
    /// # Errors
    /// This machine has no such user or group, or this process may not give files to it.
    pub fn wanted(request: &Request) -> Result<Option<Self>> {
        let owner = request.set_options.flags().text(&OWNER).map(Self::parse).transpose()?;
        owner.as_ref().map_or(Ok(()), Self::must_be_possible)?;
        Ok(owner)
    }

    /// Parses `USER` (with its main group), `USER:GROUP`, and numbers for either.
    ///
    /// # Errors
    /// This machine has no such user or group.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: String| {
            Error::usage(format!("--owner {text}"), why, "name a user of this machine, USER:GROUP, or their numbers")
        };
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let known = match user.parse() {
            Ok(number) => User::from_uid(nix::unistd::Uid::from_raw(number)),
            Err(_) => User::from_name(user),
        };
        let known = known.map_err(|error| wrong(format!("cannot look up users: {error}")))?;
        let number = known.as_ref().map(|known| known.uid.as_raw()).or_else(|| user.parse().ok());
        let user_number = number.ok_or_else(|| wrong(format!("there is no user `{user}`")))?;
        let group_number = match (group, known) {
            (None, Some(known)) => known.gid.as_raw(),
            (None, None) => return Err(wrong(format!("user {user} has no name here, so its group is unknown"))),
            (Some(group), _) => match group.parse() {
                Ok(number) => number,
                Err(_) => Group::from_name(group)
                    .map_err(|error| wrong(format!("cannot look up groups: {error}")))?
                    .ok_or_else(|| wrong(format!("there is no group `{group}`")))?
                    .gid
                    .as_raw(),
            },
        };
        Ok(Self { user: user_number, group: group_number })
    }

    /// Checks that this process may give files to the owner: only root may give files to others.
    ///
    /// # Errors
    /// The process is not root, and the owner is another user.
    pub fn must_be_possible(&self) -> Result<()> {
        let mine = rustix::process::geteuid();
        if mine.is_root() || mine.as_raw() == self.user {
            return Ok(());
        }
        let why = format!("only root can give files to other users, and this is user {}", mine.as_raw());
        Err(Error::refused(
            format!("--owner {}:{}", self.user, self.group),
            why,
            "restore as root; or as that user, without --owner",
        ))
    }

    /// Gives the owner one file or directory, without its content.
    ///
    /// # Errors
    /// The system refuses.
    pub fn take_one(&self, path: &Path) -> Result<()> {
        let action = "give to the user named with --owner";
        lchown(path, Some(self.user), Some(self.group))
            .map_err(|error| Error::io(action, path.display().to_string(), error))
    }

    /// Gives the owner the directory with its content; targets of symbolic links are left alone.
    ///
    /// # Errors
    /// The first file that the system refuses.
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
            assert!(error.to_string().contains("--owner") && error.exit_kind().exit_code() == 2, "{text}: {error}");
        }
    }

    #[test]
    fn everything_below_a_directory_is_given_and_nothing_behind_a_link() {
        let (root, far) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        fs::create_dir(root.path().join("shop")).unwrap();
        fs::write(root.path().join("shop/a.ibd"), "x").unwrap();
        std::os::unix::fs::symlink(far.path(), root.path().join("link")).unwrap();
        let mine = far.path().metadata().unwrap();
        // Only root can give files to others; a user can give them to itself.
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
