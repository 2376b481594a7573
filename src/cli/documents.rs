//! `torc documents`: where documents live, and migrations, asked from a running gateway.

use bytes::Bytes;
use clap::{Args, Subcommand};
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::{ConfigArgs, Failure};
use crate::config::{Config, Endpoint};

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// What to do with documents.
#[derive(Debug, Subcommand)]
pub(super) enum DocumentsCommand {
    /// Show which servers hold a document, and whether they have it
    Owners(OwnersArgs),
    /// Change which servers hold what, while documents are written
    #[command(subcommand)]
    Migrate(MigrateCommand),
}

/// Which document.
#[derive(Debug, Args)]
pub(super) struct OwnersArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The index, or an alias of one
    index: String,
    /// The document's id
    id: String,
}

/// Steps of a migration.
#[derive(Debug, Subcommand)]
pub(super) enum MigrateCommand {
    /// Add servers to groups, or remove some
    Start(StartArgs),
    /// Show how far it is
    Status(StatusArgs),
    /// Give a running one up, or forget one that is done
    End(StatusArgs),
}

/// What changes.
#[derive(Debug, Args)]
pub(super) struct StartArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// A server that joins a group; one group more than there are adds a group
    #[arg(long, value_name = "ID=URL@GROUP")]
    add: Vec<String>,
    /// A server that leaves
    #[arg(long, value_name = "ID")]
    remove: Vec<String>,
}

/// Whose migration.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs the command.
pub(super) fn documents(command: &DocumentsCommand) -> Result<(), Failure> {
    match command {
        DocumentsCommand::Owners(args) => owners(args),
        DocumentsCommand::Migrate(MigrateCommand::Start(args)) => start(args),
        DocumentsCommand::Migrate(MigrateCommand::Status(args)) => {
            show_migration(&ask(&args.config, Method::GET, "/_miroir/migration", None)?)
        }
        DocumentsCommand::Migrate(MigrateCommand::End(args)) => {
            show_migration(&ask(&args.config, Method::DELETE, "/_miroir/migration", None)?)
        }
    }
}

fn owners(args: &OwnersArgs) -> Result<(), Failure> {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("index", &args.index)
        .append_pair("id", &args.id)
        .finish();
    let found = ask(&args.config, Method::GET, &format!("/_miroir/shards?{query}"), None)?;
    println!(
        "document {} of {}: hash {}, shard {} of {}",
        text(&found["id"]),
        text(&found["index"]),
        text(&found["hash"]),
        found["shard"],
        found["shards"]
    );
    for group in found["groups"].as_array().into_iter().flatten() {
        println!("group {}", group["group"]);
        for owner in group["owners"].as_array().into_iter().flatten() {
            let missed = match owner["missedWrites"] == true {
                true => ", missed writes of this shard",
                false => "",
            };
            println!(
                "  {} {}  score {}  {}  has it: {}{missed}",
                text(&owner["backend"]),
                text(&owner["url"]),
                text(&owner["score"]),
                text(&owner["state"]),
                text(&owner["has"])
            );
        }
    }
    Ok(())
}

fn start(args: &StartArgs) -> Result<(), Failure> {
    let add = args.add.iter().map(|text| added(text)).collect::<Result<Vec<_>, _>>()?;
    let body = json!({"add": add, "remove": args.remove});
    show_migration(&ask(&args.config, Method::POST, "/_miroir/migration", Some(body))?)
}

fn added(text: &str) -> Result<Value, Failure> {
    let read = || {
        let (id, rest) = text.split_once('=')?;
        let (url, group) = rest.rsplit_once('@')?;
        Some(json!({"id": id, "url": url, "group": group.parse::<u16>().ok()?}))
    };
    read().ok_or_else(|| {
        let form = "--add ID=URL@GROUP, for example --add s3=http://10.0.0.3:7700@0";
        Failure::Usage(format!("--add {text}: expected {form}"))
    })
}

fn show_migration(view: &Value) -> Result<(), Failure> {
    println!("phase: {}", text(&view["phase"]));
    if view["phase"] == "none" {
        return Ok(());
    }
    println!("from:  {}", view["from"]);
    println!("to:    {}", view["to"]);
    println!("shards copied: {} of {}", view["shardsCopied"], view["shardsToCopy"]);
    println!("coordinator: {}, since {}", text(&view["coordinator"]), text(&view["startedAt"]));
    if let Some(error) = view["lastError"].as_str() {
        println!("last error: {error}");
    }
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// One request to the gateway the configuration names.
fn ask(
    args: &ConfigArgs,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<Value, Failure> {
    let config = args.load()?;
    if config.documents.backends.0.is_empty() {
        return Err(Failure::Usage("the configuration has no `documents.backends`".into()));
    }
    let url = format!("{}{path}", base(&config)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::Failed(e.to_string()))?;
    runtime.block_on(exchange(&config, method, &url, body))
}

fn base(config: &Config) -> Result<String, Failure> {
    let Endpoint::Tcp(address) = &config.documents.listen else {
        return Err(Failure::Usage("documents.listen is no TCP address".into()));
    };
    if address.port == 0 {
        let what = "documents.listen has port 0: the gateway's own is in its start report";
        return Err(Failure::Usage(what.into()));
    }
    let host = if address.is_wildcard() { "127.0.0.1" } else { &address.host };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Ok(format!("http://{host}:{}", address.port))
}

async fn exchange(
    config: &Config,
    method: Method,
    url: &str,
    body: Option<Value>,
) -> Result<Value, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::Failed(format!("{url}: {e}"));
    let keys = [&config.documents.admin_key, &config.documents.master_key];
    let configured = keys.into_iter().flatten().next().map(|key| key.expose().to_owned());
    let variables = ["TORC_DOCUMENTS_ADMIN_KEY", "TORC_DOCUMENTS_MASTER_KEY"];
    let key = configured.or_else(|| variables.iter().find_map(|name| std::env::var(name).ok()));
    let mut request = Request::builder().method(method).uri(url);
    if let Some(key) = key {
        request = request.header("x-admin-key", key);
    }
    let body = body.map_or_else(String::new, |body| body.to_string());
    let request = request.body(Full::new(Bytes::from(body))).map_err(|e| failed(&e))?;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request).await.map_err(|e| failed(&e))?;
    let status = answer.status();
    let limited = http_body_util::Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
    let bytes = limited.collect().await.map_err(|e| failed(&e))?.to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).map_err(|e| failed(&e))?;
    if !status.is_success() {
        return Err(Failure::Failed(text(&answer["message"])));
    }
    Ok(answer)
}
