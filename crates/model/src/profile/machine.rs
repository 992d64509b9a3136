//! The machine of a profile, and whether it is this machine.

use std::fmt::Write;

use fullbore_core::checksum::FamilyDigest;
use fullbore_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::Profile;

/// The files with a machine's id: of systemd, and of an older D-Bus.
const IDS: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
/// Hashed before the id, so that the hash differs from the hashes of other programs.
const DOMAIN: &[u8] = b"fullbore profile host\0";
/// Bytes of the hash that are kept.
const ID_BYTES: usize = 16;

/// The identity of a machine, for its speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Hash of the machine's id.
    pub host_id: String,
    /// Its name.
    pub host: String,
    /// Model of the processors, from the kernel.
    pub cpu_model: String,
    /// Processors that this process may use: affinity and control group counted.
    pub cores: u64,
    /// Release of the kernel.
    pub kernel: String,
}

impl Machine {
    /// The present machine.
    pub fn this() -> Self {
        let host = fullbore_core::resources::host();
        let read = |path: &str| std::fs::read_to_string(path).ok().filter(|text| !text.trim().is_empty());
        let id = IDS.into_iter().find_map(read).unwrap_or_else(|| host.clone());
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            host_id: hashed(id.trim()),
            host,
            cpu_model: cpu_model(&cpus).unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }

    /// The differences that make figures of `self` useless for `other`; none if they are the same machine.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.host_id != other.host_id {
            found.push(format!("it was made on `{}`, but this machine is `{}`", self.host, other.host));
        }
        if self.cpu_model != other.cpu_model {
            found.push(format!("its processor was `{}`, but here it is `{}`", self.cpu_model, other.cpu_model));
        }
        if self.cores != other.cores {
            found.push(format!(
                "it had {} processors, but here are {} (control group counted)",
                self.cores, other.cores
            ));
        }
        found
    }
}

impl Profile {
    /// Refuses a profile of another machine.
    ///
    /// # Errors
    /// Names what differs.
    pub fn check_machine(&self, here: &Machine) -> Result<()> {
        let differences = self.machine.differences(here);
        if differences.is_empty() {
            return Ok(());
        }
        Err(Error::refused(
            format!("profile `{}`", self.name),
            format!("is from another machine: {}", differences.join("; ")),
            format!("measure this machine: fullbore calibrate --read … --write … --name {}", self.name),
        ))
    }

    /// A change of the machine since, which does not make the profile wrong by itself.
    pub fn remark(&self, here: &Machine) -> Option<String> {
        let was = &self.machine.kernel;
        let differs = *was != here.kernel;
        differs.then(|| format!("profile `{}` was made under kernel {was}; now it is {}", self.name, here.kernel))
    }
}

fn hashed(id: &str) -> String {
    let mut digest = FamilyDigest::new();
    digest.update(DOMAIN);
    digest.update(id.as_bytes());
    digest.finish()[..ID_BYTES].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // Into a string: it cannot fail.
        text
    })
}

/// `model name` of x86, `Model` and the like of others.
fn cpu_model(text: &str) -> Option<&str> {
    let fields = || text.lines().filter_map(|line| line.split_once(':').map(|(key, value)| (key.trim(), value.trim())));
    ["model name", "Model", "Hardware", "CPU part", "cpu"]
        .into_iter()
        .find_map(|wanted| fields().find(|(key, value)| *key == wanted && !value.is_empty()))
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_of_the_processor_is_found_on_different_machines() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Xeon X\n"), Some("Xeon X"));
        assert_eq!(cpu_model("processor\t: 0\nCPU part\t: 0xd0c\n"), Some("0xd0c"));
        assert_eq!(cpu_model(""), None);
    }

    #[test]
    fn the_id_of_a_machine_is_not_what_is_stored() {
        let hash = hashed("0123456789abcdef0123456789abcdef");
        assert_eq!(hash.len(), 2 * ID_BYTES);
        assert!(hash.bytes().all(|letter| letter.is_ascii_hexdigit()));
        assert_ne!(hash, "0123456789abcdef0123456789abcdef");
    }
}
