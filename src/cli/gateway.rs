//! `fullbore gateway`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use fullbore::config::Config;
use fullbore::job::gateway::{self, Request, Writing, certificate};
use fullbore::{Error, Result, units};
use fullbore_core::plan::Knobs;
use fullbore_gateway::Tell;
use fullbore_gateway::server::Settings;
use serde::Serialize;

use super::listing::ReportFlags;
use super::show;

/// Receive objects from other programs: an HTTPS S3 endpoint in front of repositories.
///
/// Each repository is a bucket, and each object becomes a backup set: packed, encrypted, striped, listed, pruned and
/// verified like every other set. An upload is answered when its set is durable. SIGTERM and SIGINT end the gateway.
///
/// A repository may be in an object store. Each object is stored whole: `copy --from uploaded:REPOSITORY/KEY` stores a later
/// full of the same database of SQL Server as the pages that differ.
///
/// For BACKUP … TO URL of SQL Server 2022, this is built from the documents of Microsoft. Nobody has run it against a SQL
/// Server yet. It is tested with other S3 clients.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Gateway {
    /// What else there is to do.
    #[command(subcommand)]
    pub verb: Option<GatewayVerb>,
    /// What to serve.
    #[command(flatten)]
    pub serve: Serve,
}

/// Work besides serving.
#[derive(Debug, Subcommand)]
pub enum GatewayVerb {
    /// Make a certificate authority, and a certificate of it for the gateway. Nothing is overwritten.
    ///
    /// Writes ca.crt, ca.key, gateway.crt and gateway.key (RSA, 2,048 bits). Clients trust ca.crt.
    Cert(Cert),
}

/// The flags of serving.
#[derive(Debug, Args)]
pub struct Serve {
    /// A repository: its name in the configuration, or a directory or prefix ending in /. It is a bucket with this name.
    /// Repeatable.
    #[arg(long, value_name = "REPOSITORY", required = true)]
    pub repo: Vec<String>,
    /// Address and port.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9443")]
    pub listen: String,
    /// File of the gateway's certificate, and of those that it is signed by (PEM).
    #[arg(long, value_name = "FILE", required = true)]
    pub tls_cert: Option<PathBuf>,
    /// File of its private key (PEM, mode 0600).
    #[arg(long, value_name = "FILE", required = true)]
    pub tls_key: Option<PathBuf>,
    /// File of access keys and their rights (TOML, mode 0600).
    #[arg(long, value_name = "FILE", required = true)]
    pub keys: Option<PathBuf>,
    /// Memory of all requests together, taken by uploads at their beginning. Without enough of it, an upload is answered
    /// with 503 SlowDown.
    #[arg(long, value_name = "BYTES", default_value = "512MiB")]
    pub memory: String,
    /// End uploads without a byte for so long.
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub idle_timeout: String,
    /// Log every request and its answer, without secrets.
    #[arg(long)]
    pub trace: bool,
    /// Compress: none, lz4, zstd[:LEVEL] or gzip[:LEVEL] [default: as the configuration says, else as backup].
    #[arg(long, value_name = "CODEC")]
    pub compression: Option<String>,
    /// Number of stripes of a set [default: the places of its repository].
    #[arg(long, value_name = "N")]
    pub stripes: Option<usize>,
    /// Encrypt for this key file or its .pub. Repeatable.
    #[arg(long, value_name = "KEYFILE")]
    pub encrypt_to: Vec<PathBuf>,
    /// The key that opens encrypted sets, for downloads.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// Threads of each upload that check, pack and encrypt [default: 1].
    #[arg(long, value_name = "N", help_heading = "Tuning")]
    pub workers: Option<usize>,
}

/// The flags of `gateway cert`.
#[derive(Debug, Args)]
pub struct Cert {
    /// An existing directory for the four files.
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
    /// A name or an address of the gateway, as its clients write it. Repeatable.
    #[arg(long, value_name = "HOST", required = true)]
    pub host: Vec<String>,
    /// Days that the certificates count.
    #[arg(long, value_name = "DAYS", default_value_t = 825)]
    pub days: u32,
    /// The files as lines or as a JSON object.
    #[command(flatten)]
    pub shown: ReportFlags,
}

/// New certificates as an object.
#[derive(Serialize)]
struct Made {
    authority: PathBuf,
    authority_key: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Gateway, config: &Config) -> Result<u8> {
    match &args.verb {
        Some(GatewayVerb::Cert(cert)) => make(cert),
        None => serve(&args.serve, config),
    }
}

fn make(args: &Cert) -> Result<u8> {
    let certificate::Made { authority, authority_key, certificate, key } =
        certificate::make(&args.directory, &args.host, args.days)?;
    let made = Made { authority, authority_key, certificate, key };
    if args.shown.write("gateway cert", &made)? {
        let (authority, secret) = (made.authority.display(), made.authority_key.display());
        show::line(&format!("authority: {authority} (give it to the clients), its key {secret} (keep it offline)"));
        let (certificate, key) = (made.certificate.display(), made.key.display());
        show::line(&format!("gateway: --tls-cert {certificate} --tls-key {key}"));
    }
    Ok(0)
}

fn serve(args: &Serve, config: &Config) -> Result<u8> {
    let request = request(args, config)?;
    let conduct = super::stop_on_signals(config)?;
    let tell: Tell = Arc::new(show::told);
    gateway::run(&request, &conduct, tell)?;
    Ok(0)
}

fn request(args: &Serve, config: &Config) -> Result<Request> {
    let file = |given: &Option<PathBuf>| given.clone().unwrap_or_default(); // clap requires them.
    let repositories = args.repo.iter().map(|name| (name.clone(), config.of_repository(name))).collect();
    let still: Duration = units::duration("--idle-timeout", &args.idle_timeout)?;
    if still.is_zero() {
        return Err(Error::usage("--idle-timeout", "would end every upload at once", "write a time: 10m"));
    }
    Ok(Request {
        repositories,
        server: Settings {
            listen: args.listen.clone(),
            certificate: file(&args.tls_cert),
            key: file(&args.tls_key),
            memory: units::bytes("--memory", &args.memory)?,
            still,
            trace: args.trace,
        },
        keys: file(&args.keys),
        writing: Writing {
            compression: args.compression.as_ref().map(|text| text.parse()).transpose()?,
            stripes: args.stripes,
            encrypt_to: args.encrypt_to.clone(),
            key: args.key.clone(),
            knobs: Knobs { workers: args.workers, ..Knobs::default() },
        },
    })
}
