//! What is found out besides gossip, for ever and in the background: what a seed provider knows,
//! and what the names of hosts mean now.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::orders::Order;
use super::{Shared, build};
use crate::config::SeedSource;
use crate::gossip::Addr;
use crate::net::names::Names;
use crate::net::seed_provider::{self, Answer, AskError};

/// How often new names are looked for, and names that mean nothing yet looked up again.
const NAMES_EVERY: Duration = Duration::from_secs(1);

/// Names looked up at once.
const LOOKUPS_MAX: usize = 16;

/// Starts what this node finds out.
pub(super) fn start(
    shared: &Arc<Shared>,
    source: Option<SeedSource>,
    names: Names,
) -> Vec<JoinHandle<()>> {
    let mut tasks = vec![tokio::spawn(follow_names(Arc::clone(shared), names.clone()))];
    if let Some(source) = source {
        tasks.push(tokio::spawn(follow_provider(Arc::clone(shared), source, names)));
    }
    tasks
}

/// Asks the seed provider again and again until the node stops.
async fn follow_provider(shared: Arc<Shared>, source: SeedSource, names: Names) {
    let every = Duration::from_millis(shared.config.cluster.seeds_interval_ms);
    let port = own_port(&shared);
    let mut trouble = None;
    loop {
        let answer = seed_provider::ask(&source, port, &names).await;
        note(&shared, &answer, &mut trouble);
        if let Ok(answer) = answer {
            follow(&shared, answer);
        }
        tokio::time::sleep(every).await;
    }
}

/// Where nodes listen whose port is not told.
fn own_port(shared: &Shared) -> u16 {
    let topology = &shared.view.load().topology;
    topology.peer(topology.local()).port
}

/// One line for each change of what is wrong with the provider; the counters tell how often.
fn note(shared: &Shared, answer: &Result<Answer, AskError>, trouble: &mut Option<String>) {
    shared.status.provider_asked(answer);
    let now = answer.as_ref().err().map(ToString::to_string);
    if *trouble != now {
        match &now {
            Some(error) => tracing::warn!("the seed provider cannot be asked: {error}"),
            None => tracing::info!("the seed provider answers"),
        }
        *trouble = now;
    }
}

/// All of the answer is told each time: an entry whose slot had a living holder elsewhere is
/// followed once that one is dead.
fn follow(shared: &Shared, answer: Answer) {
    let seeds = answer.seeds.iter().map(build::seed).collect();
    // Sending fails only while the node stops.
    let _ = shared.orders.send(Order::Seeds(seeds));
    for contact in answer.contacts {
        let (done, _) = oneshot::channel();
        let addr = Addr::new(&contact.host, contact.port);
        let _ = shared.orders.send(Order::Contact(addr, done));
    }
}

/// Looks up the names of all nodes again and again until the node stops.
async fn follow_names(shared: Arc<Shared>, names: Names) {
    let settled = Duration::from_millis(shared.config.cluster.seeds_interval_ms);
    let mut rounds: u32 = 0;
    let mut known: BTreeMap<String, IpAddr> = BTreeMap::new();
    loop {
        let all = host_names(&shared);
        known.retain(|host, _| all.contains(host));
        let again = NAMES_EVERY * rounds >= settled;
        let due: Vec<String> =
            all.into_iter().filter(|host| again || !known.contains_key(host)).collect();
        rounds = if again { 1 } else { rounds + 1 };
        for (host, ip) in look_up(&names, due).await {
            if known.insert(host.clone(), ip) != Some(ip) {
                let _ = shared.orders.send(Order::Resolved(host, ip));
            }
        }
        tokio::time::sleep(NAMES_EVERY.min(settled)).await;
    }
}

/// The hosts of the ring that are names.
fn host_names(shared: &Shared) -> BTreeSet<String> {
    let view = shared.view.load();
    let is_name = |host: &&str| host.parse::<IpAddr>().is_err();
    view.topology.peers().map(|peer| peer.host).filter(is_name).map(str::to_owned).collect()
}

/// The names that mean something, and their first address; an IPv4 one if there is any, because
/// C nodes can be told no other.
async fn look_up(names: &Names, hosts: Vec<String>) -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    let mut lookups = JoinSet::new();
    let mut hosts = hosts.into_iter();
    loop {
        while lookups.len() < LOOKUPS_MAX
            && let Some(host) = hosts.next()
        {
            let names = names.clone();
            lookups.spawn(async move {
                let mut addresses = names.addresses(&host).await.ok()?;
                addresses.sort_by_key(|ip| (ip.is_ipv6(), *ip));
                Some((host, *addresses.first()?))
            });
        }
        match lookups.join_next().await {
            None => return found,
            Some(lookup) => found.extend(lookup.ok().flatten()),
        }
    }
}
