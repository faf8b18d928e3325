//! `tarn user`: make the first superuser, or a way back in, while the server is stopped. Everything else about users is
//! SQL.

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use tarn_metastore::Metastore;
use tarn_node::auth::Directory;
use tarn_node::clock::SystemClock;
use tarn_node::metastores::{self, MetastoreLocation};
use tokio::runtime::Handle;

use super::client::runtime;
use super::config::SettingFlags;
use super::prompt::ask_password;

/// Make a superuser, or list users, while the server is stopped
#[derive(Args)]
#[command(after_help = "\
Examples:
  tarn user create admin --superuser --data-dir /data       asks for the password
  TARN_SUPERUSER_PASSWORD=… tarn user create admin --superuser
  tarn user list

The data folder, or the setting `metastore`, says where. A user that is there becomes superuser with this password: the way back in \
when all passwords are lost. Everything else is SQL: CREATE USER, ALTER USER, GRANT.")]
pub struct User {
    #[command(subcommand)]
    what: UserCommand,
}

#[derive(Subcommand)]
enum UserCommand {
    /// Make a superuser, or give one a new password
    Create {
        name: String,
        /// Users that are not superusers are made with SQL
        #[arg(long, required = true)]
        superuser: bool,
        #[command(flatten)]
        flags: SettingFlags,
    },
    /// List users
    List {
        #[command(flatten)]
        flags: SettingFlags,
    },
}

impl User {
    /// Changes the document of users; the server is to be stopped.
    pub fn run(self) -> Result<()> {
        match self.what {
            UserCommand::Create { name, superuser: _, flags } => {
                let password = match std::env::var("TARN_SUPERUSER_PASSWORD") {
                    Ok(password) if !password.is_empty() => password,
                    _ => new_password(&name)?,
                };
                runtime()?.block_on(async {
                    let directory = open(&flags).await?;
                    directory.make_superuser(&name, &password).await?;
                    say!("{name} is superuser; the server asks for passwords when it is started")?;
                    Ok(())
                })
            }
            UserCommand::List { flags } => runtime()?.block_on(async {
                let users = open(&flags).await?.users();
                for (name, user) in users.all() {
                    let marks = [(user.superuser, "superuser"), (!user.login, "cannot log in")];
                    let marks: Vec<&str> = marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark).collect();
                    say!("{name}\t{}", marks.join(", "))?;
                }
                Ok(())
            }),
        }
    }
}

async fn open(flags: &SettingFlags) -> Result<Directory> {
    let layers = flags.layers()?;
    let settings = &layers.settings().node;
    let place = MetastoreLocation::of(settings)?;
    let opened = metastores::open(&place, Arc::new(SystemClock::default()), &Handle::current()).await;
    let metastore: Arc<dyn Metastore> =
        opened.with_context(|| format!("open the metastore {} (is the server stopped?)", place.shown()))?;
    Ok(Directory::open(metastore).await?)
}

fn new_password(name: &str) -> Result<String> {
    let password = ask_password(&format!("Password for {name}: "))?;
    ensure!(!password.is_empty(), "the password is empty");
    if std::io::stdin().is_terminal() && ask_password("Again: ")? != password {
        bail!("the passwords differ");
    }
    Ok(password)
}
