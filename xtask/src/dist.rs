//! What goes to machines without a toolchain: a tarball and a .deb with one static binary, both unpacked and tried.
//!
//! The binary is linked statically against glibc, so the host needs none of any version. That holds as long as
//! nothing looks up host names: glibc's resolver loads shared libraries of the very same version at run time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::{cargo, finish, output};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The folders of `xtask/packaging` that go into both, and their places in the package.
const PACKAGING: [(&str, &str); 4] = [
    ("systemd", "lib/systemd/system"),
    ("sysusers.d", "usr/lib/sysusers.d"),
    ("tmpfiles.d", "usr/lib/tmpfiles.d"),
    ("examples", "usr/share/doc/fullbore/examples"),
];

/// Builds, packs, unpacks and tries; leaves two files in `target/dist`.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let version = version(root)?;
    let binary = build(root)?;
    static_binary(&binary)?;
    let folder = root.join("target/dist");
    let name = format!("fullbore-{version}-x86_64-linux");
    let stage = folder.join("stage");
    let _ = fs::remove_dir_all(&stage); // It may not be there.
    let tree = stage.join(&name);
    fill_tarball(root, &binary, &tree)?;
    let tarball = folder.join(format!("{name}.tar.gz"));
    pack_tarball(&stage, &name, &tarball)?;
    let package = folder.join(format!("fullbore_{version}_amd64.deb"));
    fill_package(root, &tree, &stage.join("deb"), &version)?;
    pack_package(&stage.join("deb"), &package)?;
    try_both(root, &stage, &name, &tarball, &package, &version)?;
    fs::remove_dir_all(&stage)?;
    for file in [&tarball, &package] {
        println!("dist: {} ({} KiB), unpacked and tried", file.display(), fs::metadata(file)?.len() / 1024);
    }
    Ok(())
}

fn version(root: &Path) -> anyhow::Result<String> {
    let manifest: toml::Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let version = manifest.get("workspace").and_then(|w| w.get("package")).and_then(|p| p.get("version"));
    Ok(version.and_then(|v| v.as_str()).context("Cargo.toml has no workspace.package.version")?.to_owned())
}

/// The release binary. With ISA-L where its build tools are.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok_and(|done| done.status.success());
    let missing: Vec<&str> = ["nasm", "autoconf", "automake", "libtoolize"].into_iter().filter(|t| !found(t)).collect();
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--package", "fullbore", "--target", TRIPLE]).current_dir(root);
    // The flag is for the target only: build scripts and macros are shared libraries of the host.
    build.env("RUSTFLAGS", "-C target-feature=+crt-static");
    if missing.is_empty() {
        build.args(["--features", "isal"]);
    } else {
        println!("dist: {} not installed: gzip by libdeflate, without ISA-L", missing.join(", "));
    }
    finish(&mut build)?;
    let metadata = output(cargo().args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let target = metadata["target_directory"].as_str().context("cargo metadata: no target_directory")?;
    Ok(Path::new(target).join(TRIPLE).join("release/fullbore"))
}

fn static_binary(binary: &Path) -> anyhow::Result<()> {
    let headers = output(Command::new("readelf").args(["--program-headers", "--wide"]).arg(binary))?;
    if headers.contains("INTERP") {
        bail!(
            "`{}` asks for a dynamic loader: it is not static, and would need the glibc of this host",
            binary.display()
        );
    }
    println!("dist: the binary is static: it needs no glibc on the host, only Linux on x86-64");
    Ok(())
}

fn copy(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = to.parent().context("a file in no folder")?;
    fs::create_dir_all(folder)?;
    fs::copy(from, to).with_context(|| format!("cannot copy `{}`", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Copies a folder with all that is below it.
fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot list `{}`", from.display()))? {
        let entry = entry?;
        let (path, place) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() { copy_folder(&path, &place)? } else { copy(&path, &place, 0o644)? }
    }
    Ok(())
}

fn fill_tarball(root: &Path, binary: &Path, tree: &Path) -> anyhow::Result<()> {
    let program = tree.join("fullbore");
    copy(binary, &program, 0o755)?;
    finish(Command::new("strip").arg("--strip-debug").arg(&program))?;
    for text in ["LICENSE", "README.md", "CHANGELOG.md"] {
        copy(&root.join(text), &tree.join(text), 0o644)?;
    }
    copy_folder(&root.join("docs"), &tree.join("docs"))?;
    // For a day without this program: docs/RESTORE_RUNBOOK.md.
    let reader = root.join("tests/independent_reader");
    copy_folder(&reader, &tree.join("independent_reader"))?;
    copy(&reader.join("run.sh"), &tree.join("independent_reader/run.sh"), 0o755)?;
    for (folder, _) in PACKAGING {
        copy_folder(&root.join("xtask/packaging").join(folder), &tree.join(folder))?;
    }
    let manual = tree.join("man");
    fs::create_dir_all(&manual)?;
    finish(Command::new(&program).arg("manual").arg(&manual))?;
    ensure!(manual.join("fullbore.1").is_file(), "`fullbore manual` made no fullbore.1");
    let completions = tree.join("completions");
    fs::create_dir_all(&completions)?;
    for (shell, file) in [("bash", "fullbore.bash"), ("zsh", "_fullbore"), ("fish", "fullbore.fish")] {
        let script = output(Command::new(&program).args(["completions", shell]))?;
        ensure!(script.contains("fullbore"), "`fullbore completions {shell}` printed no completions");
        fs::write(completions.join(file), script)?;
    }
    Ok(())
}

fn pack_tarball(stage: &Path, name: &str, tarball: &Path) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    // The same bytes for the same tree: no owner, no order of the folder, no time of today.
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=2026-01-01 00:00Z"]);
    tar.arg("--directory").arg(stage).args(["--gzip", "--create", "--file"]).arg(tarball).arg(name);
    finish(&mut tar)
}

/// The same files where Debian's policy wants them.
fn fill_package(root: &Path, tree: &Path, package: &Path, version: &str) -> anyhow::Result<()> {
    let doc = package.join("usr/share/doc/fullbore");
    copy(&tree.join("fullbore"), &package.join("usr/bin/fullbore"), 0o755)?;
    copy(&root.join("README.md"), &doc.join("README.md"), 0o644)?;
    copy_folder(&tree.join("docs"), &doc.join("docs"))?;
    copy(&root.join("CHANGELOG.md"), &doc.join("changelog"), 0o644)?;
    finish(Command::new("gzip").arg("-9n").arg(doc.join("changelog")))?;
    let copyright = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
        Upstream-Name: fullbore\n\nFiles: *\nCopyright: the fullbore authors\nLicense: Apache-2.0\n \
        See /usr/share/common-licenses/Apache-2.0.\n";
    fs::write(doc.join("copyright"), copyright)?;
    for (folder, place) in PACKAGING {
        copy_folder(&tree.join(folder), &package.join(place))?;
    }
    copy(&root.join("xtask/packaging/debian/postinst"), &package.join("DEBIAN/postinst"), 0o755)?;
    for page in fs::read_dir(tree.join("man"))? {
        let page = page?;
        let to = package.join("usr/share/man/man1").join(page.file_name());
        copy(&page.path(), &to, 0o644)?;
        finish(Command::new("gzip").arg("-9n").arg(&to))?;
    }
    let completions = [
        ("fullbore.bash", "usr/share/bash-completion/completions/fullbore"),
        ("_fullbore", "usr/share/zsh/vendor-completions/_fullbore"),
        ("fullbore.fish", "usr/share/fish/vendor_completions.d/fullbore.fish"),
    ];
    for (from, to) in completions {
        copy(&tree.join("completions").join(from), &package.join(to), 0o644)?;
    }
    let size = output(Command::new("du").args(["--summarize", "--block-size=1024"]).arg(package))?;
    let size = size.split_whitespace().next().context("du printed nothing")?;
    let control = format!(
        "Package: fullbore\nVersion: {version}\nArchitecture: amd64\nSection: admin\nPriority: optional\n\
         Maintainer: the fullbore authors <fullbore@example.invalid>\nInstalled-Size: {size}\n\
         Description: back up and restore databases at the speed of the hardware\n \
         Backs up, verifies and restores live databases in stripes, and says which part of the\n \
         machine set the speed. One static binary.\n"
    );
    fs::write(package.join("DEBIAN/control"), control)?;
    Ok(())
}

fn pack_package(tree: &Path, package: &Path) -> anyhow::Result<()> {
    finish(Command::new("dpkg-deb").args(["--root-owner-group", "-Zgzip", "--build"]).arg(tree).arg(package))
}

/// Unpacks both as a user would, asks the binary for its version, and looks for every file of `xtask/packaging`.
fn try_both(
    root: &Path,
    stage: &Path,
    name: &str,
    tarball: &Path,
    package: &Path,
    version: &str,
) -> anyhow::Result<()> {
    let unpacked = stage.join("unpacked");
    fs::create_dir_all(&unpacked)?;
    finish(Command::new("tar").arg("--directory").arg(&unpacked).arg("-xzf").arg(tarball))?;
    let from_package = unpacked.join("deb");
    finish(Command::new("dpkg-deb").arg("-x").arg(package).arg(&from_package))?;
    let from_tarball = unpacked.join(name);
    ensure!(from_tarball.join("independent_reader/run.sh").is_file(), "the tarball has no independent reader");
    for program in [from_tarball.join("fullbore"), from_package.join("usr/bin/fullbore")] {
        // No environment: nothing of this machine may be needed.
        let said = output(Command::new(&program).arg("--version").env_clear())?;
        ensure!(said.contains(version), "`{} --version` says `{}`", program.display(), said.trim());
    }
    let mut units = Vec::new();
    for (folder, place) in PACKAGING {
        for entry in fs::read_dir(root.join("xtask/packaging").join(folder))? {
            let file = entry?.file_name();
            for copied in [from_tarball.join(folder).join(&file), from_package.join(place).join(&file)] {
                ensure!(copied.is_file(), "`{}` is not in what was packed", copied.display());
            }
            if folder == "systemd" {
                units.push(from_package.join(place).join(&file));
            }
        }
    }
    verify_units(&units)
}

/// Lets systemd judge the units, where it is installed. It also wants the program, which is not installed here.
fn verify_units(units: &[PathBuf]) -> anyhow::Result<()> {
    let Ok(judged) = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(units).output() else {
        println!("dist: systemd-analyze is not installed: the units are not judged");
        return Ok(());
    };
    let said = String::from_utf8_lossy(&judged.stderr);
    let absent = "Command /usr/bin/fullbore is not executable";
    let wrong: Vec<&str> = said.lines().filter(|line| line.contains("fullbore") && !line.contains(absent)).collect();
    ensure!(wrong.is_empty(), "systemd-analyze verify: {}", wrong.join("\n"));
    Ok(())
}
