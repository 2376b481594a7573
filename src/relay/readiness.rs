//! The producer's readiness plane: from pools and what is known of their workers to one entry a
//! model, as complete snapshots by revision.

use std::collections::BTreeMap;

use super::descriptor::{Descriptor, Role, Target};
use super::envelope::{CONTRACT_MARKER, PROTOCOL_VERSION, RelayId};
use super::proto;
use super::topology::{Adapter, Entry, EntryKey, Member, State, may_be_duplicated};

/// A pool, and whether it is served.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// The pool.
    pub pool: &'a Descriptor,
    /// Whether somebody serves it; none while nobody knows.
    pub alive: Option<bool>,
}

/// One entry for each base model of each namespace, in their order.
///
/// - unknown: one of the endpoints is not known about; then no role is called present or missing;
/// - ready: some endpoint is alive, no declared role is missing, none is declared twice;
/// - an endpoint without a declared role (`LEGACY`) turns these checks off: ready then means that
///   some endpoint is alive.
pub fn derive(pools: &[Served<'_>]) -> Vec<Entry> {
    let mut groups: BTreeMap<(String, String), Vec<Served<'_>>> = BTreeMap::new();
    for served in pools {
        let mut models: Vec<&str> =
            served.pool.registrations.iter().map(|r| base_model(&r.target)).collect();
        models.sort_unstable();
        models.dedup();
        for model in models {
            let group = (served.pool.endpoint.namespace.clone(), model.to_owned());
            groups.entry(group).or_default().push(*served);
        }
    }
    groups.into_iter().map(|((namespace, base), group)| entry(namespace, &base, &group)).collect()
}

fn entry(namespace: String, base: &str, group: &[Served<'_>]) -> Entry {
    let settled = group.iter().all(|served| served.alive.is_some());
    let alive = |served: &&Served<'_>| served.alive == Some(true);
    let any_alive = group.iter().any(|served| alive(&served));
    let legacy_fallback = group.iter().any(|served| served.pool.roles.contains(&Role::Legacy));
    let declared = union(group.iter());
    let present = union(group.iter().filter(alive));
    let missing: Vec<Role> =
        declared.iter().filter(|role| !present.contains(role)).copied().collect();
    let holders =
        |role: &Role| group.iter().filter(|served| served.pool.roles.contains(role)).count();
    let duplicated: Vec<Role> = declared
        .iter()
        .filter(|role| may_be_duplicated(**role) && holders(role) > 1)
        .copied()
        .collect();
    let whole = legacy_fallback || (missing.is_empty() && duplicated.is_empty());
    let state = match (settled, any_alive && whole) {
        (false, _) => State::Unknown,
        (true, true) => State::Ready,
        (true, false) => State::Unavailable,
    };
    let known = |roles: Vec<Role>| if settled { roles } else { Vec::new() };
    let missing = known(missing);
    Entry {
        key: EntryKey { namespace, model: canonical_id(base, group) },
        state,
        present: known(present),
        adapters: adapters(base, group, state, &missing),
        missing,
        members: group.iter().map(member).collect(),
        duplicated,
        legacy_fallback,
    }
}

fn base_model(target: &Target) -> &str {
    match target {
        Target::Base(base) | Target::Lora { base, .. } => base,
    }
}

/// The name the base model is registered under; its own when only adapters are.
fn canonical_id(base: &str, group: &[Served<'_>]) -> String {
    let registrations = group.iter().flat_map(|served| &served.pool.registrations);
    let mut named = registrations.filter(|r| matches!(&r.target, Target::Base(b) if b == base));
    named.next().map_or_else(|| base.to_owned(), |r| r.canonical_id.clone())
}

fn adapters(base: &str, group: &[Served<'_>], state: State, missing: &[Role]) -> Vec<Adapter> {
    let registrations = group.iter().flat_map(|served| &served.pool.registrations);
    let mut names: Vec<&str> = registrations
        .filter(|r| matches!(&r.target, Target::Lora { base: b, .. } if b == base))
        .map(|r| r.canonical_id.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    let adapter =
        |name: &str| Adapter { canonical_id: name.to_owned(), state, missing: missing.to_vec() };
    names.into_iter().map(adapter).collect()
}

fn member(served: &Served<'_>) -> Member {
    Member {
        endpoint: served.pool.endpoint.clone(),
        roles: served.pool.roles.clone(),
        pool: Some(served.pool.key.pool()),
    }
}

fn union<'a>(group: impl Iterator<Item = &'a Served<'a>>) -> Vec<Role> {
    let mut roles: Vec<Role> = group.flat_map(|served| served.pool.roles.iter().copied()).collect();
    roles.sort_unstable_by_key(|role| *role as i32);
    roles.dedup();
    roles
}

/// The entries that are published.
#[derive(Clone, Debug)]
pub struct Readiness {
    entries: Vec<Entry>,
    revision: u64,
}

/// No entries, revision 1.
impl Default for Readiness {
    fn default() -> Readiness {
        Readiness { entries: Vec::new(), revision: 1 }
    }
}

impl Readiness {
    /// Publishes entries. One that our own checks refuse is left out: no consumer would take it.
    /// True when anything changed.
    pub fn set(&mut self, entries: Vec<Entry>) -> bool {
        let taken = |entry: &Entry| Entry::try_from(&proto::TopologyEntry::from(entry)).is_ok();
        let entries: Vec<Entry> = entries.into_iter().filter(taken).collect();
        if entries == self.entries {
            return false;
        }
        self.entries = entries;
        self.revision += 1;
        true
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Changes so far, counted from 1.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The complete snapshot.
    pub fn message(&self, relay: RelayId) -> proto::ServingReadinessUpdate {
        proto::ServingReadinessUpdate {
            protocol_version: PROTOCOL_VERSION,
            relay: Some(relay.into()),
            revision: self.revision,
            entries: self.entries.iter().map(Into::into).collect(),
            contract_marker: CONTRACT_MARKER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::descriptor::Registration;
    use crate::relay::vectors;

    fn pool(component: &str, roles: &[Role], registrations: &[Registration]) -> Descriptor {
        let update: proto::KvPoolCatalogUpdate = vectors::message("catalog_update");
        let mut message = update.snapshot.unwrap().pools.remove(0);
        message.serving_endpoint.as_mut().unwrap().component = component.into();
        let pool = Descriptor::try_from(&message).unwrap();
        Descriptor { roles: roles.to_vec(), registrations: registrations.to_vec(), ..pool }
    }

    fn base(id: &str) -> Registration {
        let target = Target::Base("llama".into());
        Registration { canonical_id: id.into(), target, aliases: Vec::new() }
    }

    fn lora(id: &str) -> Registration {
        let target = Target::Lora { base: "llama".into(), adapter: id.into() };
        Registration { canonical_id: id.into(), target, aliases: Vec::new() }
    }

    fn one(pools: &[(&Descriptor, Option<bool>)]) -> Entry {
        let served: Vec<Served<'_>> =
            pools.iter().map(|(pool, alive)| Served { pool, alive: *alive }).collect();
        let mut entries = derive(&served);
        assert_eq!(entries.len(), 1);
        entries.remove(0)
    }

    #[test]
    fn an_aggregated_pool_is_ready_while_it_is_served() {
        let pool = pool("a", &[Role::Aggregated], &[base("chat"), lora("tenant")]);
        let entry = one(&[(&pool, Some(true))]);
        assert_eq!(
            (entry.state, entry.present.as_slice()),
            (State::Ready, &[Role::Aggregated][..])
        );
        assert_eq!(entry.key.model, "chat");
        assert_eq!(entry.adapters[0].canonical_id, "tenant");
        assert_eq!(entry.adapters[0].state, State::Ready);
        assert_eq!(entry.members[0].pool, Some(pool.key.pool()));
        let entry = one(&[(&pool, Some(false))]);
        let missing = [Role::Aggregated];
        assert_eq!((entry.state, &entry.missing[..]), (State::Unavailable, &missing[..]));
        let entry = one(&[(&pool, None)]);
        assert_eq!((entry.state, entry.missing.len()), (State::Unknown, 0));
        assert!(entry.present.is_empty());
    }

    #[test]
    fn all_declared_roles_must_be_there_once() {
        let prefill = pool("a", &[Role::Prefill], &[base("llama")]);
        let decode = pool("b", &[Role::Decode], &[base("llama")]);
        let both = one(&[(&prefill, Some(true)), (&decode, Some(true))]);
        assert_eq!(both.state, State::Ready);
        let half = one(&[(&prefill, Some(true)), (&decode, Some(false))]);
        assert_eq!((half.state, &half.missing[..]), (State::Unavailable, &[Role::Decode][..]));
        let twice = one(&[(&prefill, Some(true)), (&prefill, Some(true))]);
        assert_eq!(twice.duplicated, [Role::Prefill]);
        assert_eq!(twice.state, State::Unavailable);
        let encode = pool("c", &[Role::Encode], &[base("llama")]);
        let twice = one(&[(&encode, Some(true)), (&encode, Some(true))]);
        assert_eq!(twice.duplicated, []);
        let legacy = pool("d", &[Role::Legacy], &[base("llama")]);
        let lenient = one(&[(&legacy, Some(true)), (&decode, Some(false))]);
        assert!(lenient.legacy_fallback);
        assert_eq!(lenient.state, State::Ready);
    }

    #[test]
    fn revisions_count_changes_and_nothing_refusable_is_published() {
        let mut readiness = Readiness::default();
        let relay = RelayId { drt_instance_id: 17, incarnation: 23 };
        assert_eq!(readiness.message(relay), vectors::message("readiness_update_empty"));
        let pool = pool("a", &[Role::Aggregated], &[base("llama")]);
        let entries = derive(&[Served { pool: &pool, alive: Some(true) }]);
        assert!(readiness.set(entries.clone()));
        assert!(!readiness.set(entries.clone()));
        let mut broken = entries;
        broken[0].members.clear();
        assert!(readiness.set(broken));
        assert_eq!((readiness.entries().len(), readiness.revision()), (0, 3));
    }
}
