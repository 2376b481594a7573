//! Aliases: names that stand for one index, or for several that are read together.
//!
//! They are kept in the ring and cached on every gateway. Until they were read once nothing is
//! resolved: a name must not be taken for an index, and created as one, because its alias could
//! not be seen.

use super::call::{is_valid_uid, uid_message};
use super::error::ApiError;
use super::kv::{Class, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// The entry that lists the names of all aliases there ever were.
const NAMES: &str = "_names";
/// Former states remembered per alias.
const HISTORY_MAX: usize = 10;
/// Aliases that may exist.
const ALIASES_MAX: usize = 10_000;
/// Targets of one alias.
const TARGETS_MAX: usize = 100;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Target {
    #[serde(rename = "target")]
    Single(String),
    #[serde(rename = "targets")]
    Multi(Vec<String>),
}

/// One alias.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Alias {
    version: u64,
    /// `None` once it was deleted.
    target: Option<Target>,
    history: Vec<(u64, Option<Target>)>,
}

/// What a client's index name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    One(String),
    Several(Vec<String>),
}

impl Resolved {
    /// The index a write goes to.
    ///
    /// # Errors
    /// The name stands for several.
    pub(super) fn writable(self, name: &str) -> Result<String, ApiError> {
        match self {
            Resolved::One(uid) => Ok(uid),
            Resolved::Several(_) => Err(ApiError::new(
                "miroir_multi_alias_not_writable",
                format!("`{name}` is an alias of several indexes and cannot be written to"),
            )),
        }
    }
}

/// The aliases of a ring, as this gateway knows them.
pub(super) struct Aliases {
    state: State,
    /// `None` until they were read.
    known: Mutex<Option<BTreeMap<String, Alias>>>,
    changing: tokio::sync::Mutex<()>,
}

impl Aliases {
    pub(super) fn new(state: State) -> Aliases {
        Aliases { state, known: Mutex::default(), changing: tokio::sync::Mutex::default() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<BTreeMap<String, Alias>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all aliases from the ring.
    pub(super) async fn refresh(&self) -> Result<(), ApiError> {
        let listed: Vec<String> = self.state.load(Class::Alias, NAMES).await?.unwrap_or_default();
        let mut names: BTreeSet<String> = listed.iter().cloned().collect();
        names.extend(self.known().iter().flatten().map(|(name, _)| name.clone()));
        if names.len() > listed.len() {
            // Another gateway wrote the list at the same moment, or its replicas were emptied.
            self.state.store(Class::Alias, NAMES, &Vec::from_iter(&names)).await?;
        }
        let mut fresh = BTreeMap::new();
        for name in names {
            if let Some(alias) = self.newest(&name).await? {
                fresh.insert(name, alias);
            }
        }
        // All at once: while some are unknown, none may be resolved.
        let mut known = self.known();
        let known = known.get_or_insert_default();
        for (name, alias) in fresh {
            if known.get(&name).is_none_or(|before| before.version <= alias.version) {
                known.insert(name, alias);
            }
        }
        Ok(())
    }

    /// The newer of what the ring has and what is known here. No alias goes by absence: a ring
    /// that lost one is told again.
    async fn newest(&self, name: &str) -> Result<Option<Alias>, ApiError> {
        let read: Option<Alias> = self.state.load(Class::Alias, name).await?;
        let known = self.known().as_ref().and_then(|known| known.get(name).cloned());
        match (read, known) {
            (Some(read), Some(known)) if read.version >= known.version => Ok(Some(read)),
            (_, Some(known)) => {
                self.state.store(Class::Alias, name, &known).await?;
                Ok(Some(known))
            }
            (read, None) => Ok(read),
        }
    }

    async fn ensure_read(&self) -> Result<(), ApiError> {
        if self.known().is_some() { Ok(()) } else { self.refresh().await }
    }

    /// What a name means now.
    ///
    /// # Errors
    /// The aliases were never read.
    pub(super) async fn resolve(&self, name: &str) -> Result<Resolved, ApiError> {
        self.ensure_read().await?;
        let known = self.known();
        let alias = known.as_ref().and_then(|known| known.get(name));
        Ok(resolved(name, alias))
    }

    /// The same, read from the ring: before an index is created under the name.
    pub(super) async fn resolve_again(&self, name: &str) -> Result<Resolved, ApiError> {
        Ok(resolved(name, self.newest(name).await?.as_ref()))
    }

    /// All aliases.
    pub(super) async fn list(&self) -> Result<Value, ApiError> {
        self.refresh().await?;
        let known = self.known();
        let alive = known.iter().flatten().filter(|(_, alias)| alias.target.is_some());
        let views: Vec<Value> = alive.map(|(name, alias)| view(name, alias)).collect();
        Ok(json!({ "results": views }))
    }

    /// One alias.
    pub(super) async fn get(&self, name: &str) -> Result<Value, ApiError> {
        let alias = self.newest(name).await?;
        match alias.filter(|alias| alias.target.is_some()) {
            Some(alias) => Ok(view(name, &alias)),
            None => Err(not_found(name)),
        }
    }

    /// Creates an alias (`create`) or points an existing one elsewhere, keeping its kind.
    pub(super) async fn put(
        &self,
        name: &str,
        target: Target,
        create: bool,
    ) -> Result<Value, ApiError> {
        check(name, &target)?;
        let _changing = self.changing.lock().await;
        self.refresh().await?;
        for other in target_names(&target) {
            let alias = self.known().as_ref().and_then(|known| known.get(other).cloned());
            if other == name || alias.is_some_and(|alias| alias.target.is_some()) {
                return Err(invalid(format!("`{other}` is an alias and cannot be a target")));
            }
        }
        let before = self.known().as_ref().and_then(|known| known.get(name).cloned());
        match before.as_ref().and_then(|alias| alias.target.as_ref()) {
            Some(_) if create => return Err(invalid(format!("the alias `{name}` exists"))),
            None if !create => return Err(not_found(name)),
            Some(old) if kind(old) != kind(&target) => {
                let message = format!("`{name}` is a {} alias and stays one", kind(old));
                return Err(invalid(message));
            }
            Some(_) | None => {}
        }
        self.change(name, before, Some(target)).await
    }

    /// Deletes an alias: a newer, empty state, so that a replica that missed it does not win.
    pub(super) async fn delete(&self, name: &str) -> Result<Value, ApiError> {
        let _changing = self.changing.lock().await;
        self.refresh().await?;
        let before = self.known().as_ref().and_then(|known| known.get(name).cloned());
        if before.as_ref().is_none_or(|alias| alias.target.is_none()) {
            return Err(not_found(name));
        }
        self.change(name, before, None).await
    }

    async fn change(
        &self,
        name: &str,
        before: Option<Alias>,
        target: Option<Target>,
    ) -> Result<Value, ApiError> {
        let mut names: Vec<String> =
            self.known().as_ref().map(|known| known.keys().cloned().collect()).unwrap_or_default();
        if before.is_none() {
            if names.len() >= ALIASES_MAX {
                return Err(invalid(format!("there are {ALIASES_MAX} aliases already")));
            }
            names.push(name.to_owned());
            self.state.store(Class::Alias, NAMES, &names).await?;
        }
        let mut alias = Alias { version: 1, target, history: Vec::new() };
        if let Some(before) = before {
            alias.version = before.version + 1;
            alias.history = before.history;
            alias.history.push((before.version, before.target));
            let surplus = alias.history.len().saturating_sub(HISTORY_MAX);
            alias.history.drain(..surplus);
        }
        self.state.store(Class::Alias, name, &alias).await?;
        let shown = view(name, &alias);
        if let Some(known) = self.known().as_mut() {
            known.insert(name.to_owned(), alias);
        }
        Ok(shown)
    }
}

/// Reads `{"target": ..}` or `{"targets": [..]}`.
pub(super) fn target_of(body: &Value) -> Result<Target, ApiError> {
    let list = |items: &[Value]| {
        items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    };
    match (body.get("target"), body.get("targets")) {
        (Some(Value::String(one)), None) => Ok(Target::Single(one.clone())),
        (None, Some(Value::Array(items))) => list(items)
            .map(Target::Multi)
            .ok_or_else(|| invalid("`targets` must be a list of index uids")),
        _ => Err(invalid("an alias needs either `target` (a uid) or `targets` (a list of uids)")),
    }
}

fn resolved(name: &str, alias: Option<&Alias>) -> Resolved {
    match alias.and_then(|alias| alias.target.as_ref()) {
        None => Resolved::One(name.to_owned()),
        Some(Target::Single(uid)) => Resolved::One(uid.clone()),
        Some(Target::Multi(uids)) => Resolved::Several(uids.clone()),
    }
}

fn kind(target: &Target) -> &'static str {
    match target {
        Target::Single(_) => "single",
        Target::Multi(_) => "multi",
    }
}

fn target_names(target: &Target) -> &[String] {
    match target {
        Target::Single(one) => std::slice::from_ref(one),
        Target::Multi(several) => several,
    }
}

fn view(name: &str, alias: &Alias) -> Value {
    let show = |target: &Option<Target>| match target {
        Some(target) => {
            let mut shown = json!(target);
            shown["kind"] = json!(kind(target));
            shown
        }
        None => json!({"kind": null}),
    };
    let mut shown = show(&alias.target);
    shown["name"] = json!(name);
    shown["version"] = json!(alias.version);
    let history: Vec<Value> = alias
        .history
        .iter()
        .map(|(version, target)| {
            let mut shown = show(target);
            shown["version"] = json!(version);
            shown
        })
        .collect();
    shown["history"] = json!(history);
    shown
}

fn check(name: &str, target: &Target) -> Result<(), ApiError> {
    let names = target_names(target);
    if names.is_empty() || names.len() > TARGETS_MAX {
        return Err(invalid(format!("an alias has 1 to {TARGETS_MAX} targets")));
    }
    let bad = std::iter::once(name).chain(names.iter().map(String::as_str));
    // `_names` is where the list of names is kept.
    match bad.into_iter().find(|name| !is_valid_uid(name) || *name == NAMES) {
        Some(bad) => Err(ApiError::new("invalid_index_uid", uid_message(bad))),
        None => Ok(()),
    }
}

fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new("miroir_invalid_alias", message)
}

fn not_found(name: &str) -> ApiError {
    ApiError::new("miroir_alias_not_found", format!("there is no alias `{name}`"))
}
