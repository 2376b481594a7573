//! From a model's name to the pools that serve it, leaving out names that mean several things.

use std::collections::BTreeMap;

use super::Fault;
use super::descriptor::{Descriptor, Registration, Target};
use crate::ckf::identity::PoolId;

/// What a name means: a canonical id and its target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Binding {
    /// The canonical id.
    pub canonical_id: String,
    /// What it stands for.
    pub target: Target,
}

/// Names of one snapshot of the catalog. The same binding in several pools (several datacenters)
/// is normal; a name with two different bindings is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameIndex {
    names: BTreeMap<String, Meaning>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Meaning {
    One(Binding, Vec<PoolId>),
    Several,
}

impl NameIndex {
    /// The index of these pools.
    pub fn new<'a>(pools: impl IntoIterator<Item = &'a Descriptor>) -> NameIndex {
        let mut index = NameIndex::default();
        for pool in pools {
            for registration in &pool.registrations {
                let names = std::iter::once(&registration.canonical_id);
                for name in names.chain(&registration.aliases) {
                    index.add(name, registration, pool.key.pool());
                }
            }
        }
        index
    }

    /// What a name means, and the pools that serve it.
    pub fn resolve(&self, name: &str) -> Option<(&Binding, &[PoolId])> {
        match self.names.get(name)? {
            Meaning::One(binding, pools) => Some((binding, pools)),
            Meaning::Several => None,
        }
    }

    /// Whether a name means several things.
    pub fn is_ambiguous(&self, name: &str) -> bool {
        matches!(self.names.get(name), Some(Meaning::Several))
    }

    /// All names that mean one thing.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let plain = |(_, meaning): &(&String, &Meaning)| matches!(meaning, Meaning::One(..));
        self.names.iter().filter(plain).map(|(name, _)| name.as_str())
    }

    fn add(&mut self, name: &str, registration: &Registration, pool: PoolId) {
        let binding = Binding {
            canonical_id: registration.canonical_id.clone(),
            target: registration.target.clone(),
        };
        match self.names.get_mut(name) {
            None => {
                self.names.insert(name.to_owned(), Meaning::One(binding, vec![pool]));
            }
            Some(Meaning::One(known, pools)) if *known == binding => {
                if !pools.contains(&pool) {
                    pools.push(pool);
                }
            }
            Some(meaning) => *meaning = Meaning::Several,
        }
    }
}

/// Refuses names that are ambiguous inside one pool: a canonical id given twice, an alias equal
/// to another model's canonical id, or an alias claimed twice.
pub fn check_pool(registrations: &[Registration]) -> Result<(), Fault> {
    for (index, registration) in registrations.iter().enumerate() {
        let others =
            || registrations.iter().enumerate().filter(move |(i, _)| *i != index).map(|(_, r)| r);
        if others().any(|other| other.canonical_id == registration.canonical_id) {
            return Err(Fault::AmbiguousName("a canonical id given twice"));
        }
        for alias in &registration.aliases {
            if others().any(|other| other.canonical_id == *alias) {
                return Err(Fault::AmbiguousName("an alias that is another model's canonical id"));
            }
            if others().any(|other| other.aliases.contains(alias)) {
                return Err(Fault::AmbiguousName("an alias two models claim"));
            }
        }
    }
    Ok(())
}

/// What may be published of these pools: a registration whose canonical id means several things
/// is dropped everywhere, an alias that does is stripped.
pub fn without_ambiguity(pools: &mut [Descriptor]) {
    let index = NameIndex::new(&*pools);
    for pool in pools {
        pool.registrations.retain(|r| !index.is_ambiguous(&r.canonical_id));
        for registration in &mut pool.registrations {
            registration.aliases.retain(|alias| !index.is_ambiguous(alias));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::descriptor::Descriptor;
    use crate::relay::proto;
    use crate::relay::vectors;

    fn base(id: &str, model: &str, aliases: &[&str]) -> Registration {
        Registration {
            canonical_id: id.into(),
            target: Target::Base(model.into()),
            aliases: aliases.iter().map(|alias| alias.to_string()).collect(),
        }
    }

    fn pool(dc: u64, registrations: Vec<Registration>) -> Descriptor {
        let update: proto::KvPoolCatalogUpdate = vectors::message("catalog_update");
        let mut message = update.snapshot.unwrap().pools.remove(0);
        message.producer.as_mut().unwrap().pool_id.as_mut().unwrap().dc_id = dc;
        Descriptor { registrations, ..Descriptor::try_from(&message).unwrap() }
    }

    #[test]
    fn a_name_with_two_meanings_is_left_out() {
        let pools = [
            pool(1, vec![base("a", "a", &["chat"]), base("b", "b", &["code"])]),
            pool(2, vec![base("a", "a", &["chat"]), base("c", "c", &["code"])]),
        ];
        let index = NameIndex::new(&pools);
        let (binding, served) = index.resolve("chat").unwrap();
        assert_eq!(binding.canonical_id, "a");
        assert_eq!(served, [pools[0].key.pool(), pools[1].key.pool()]);
        assert_eq!(index.resolve("code"), None);
        assert!(index.is_ambiguous("code"));
        assert_eq!(index.names().collect::<Vec<_>>(), ["a", "b", "c", "chat"]);
    }

    #[test]
    fn ambiguity_is_not_published() {
        let mut pools = [
            pool(1, vec![base("a", "a", &["x"]), base("m", "one", &[])]),
            pool(2, vec![base("b", "b", &["x", "y"]), base("m", "two", &[])]),
        ];
        without_ambiguity(&mut pools);
        assert_eq!(pools[0].registrations, [base("a", "a", &[])]);
        assert_eq!(pools[1].registrations, [base("b", "b", &["y"])]);
    }

    #[test]
    fn names_must_be_plain_inside_one_pool() {
        let refused = [
            vec![base("a", "a", &[]), base("a", "b", &[])],
            vec![base("a", "a", &["b"]), base("b", "b", &[])],
            vec![base("a", "a", &["x"]), base("b", "b", &["x"])],
        ];
        for registrations in refused {
            let fault = check_pool(&registrations).unwrap_err();
            assert_eq!(fault.label(), "ambiguous_name");
        }
        assert_eq!(check_pool(&[base("a", "a", &["a", "x"]), base("b", "b", &["y"])]), Ok(()));
    }
}
