use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use formwork_protocols::{ModelName, ProviderError, ProviderName};
use tokio::time::Instant;

use super::{ListedModel, ProviderInfo};
use crate::client::Client;

/// What servers said of themselves, kept for a while.
///
/// An error is not kept: a server that was just started is found by the next question. What
/// [`ProviderInfo`] holds of memory may be as old as the cache allows.
pub struct InfoCache {
    keep: Duration,
    servers: Mutex<Kept<Server, ProviderInfo>>,
    models: Mutex<Kept<(Server, ModelName), Option<ListedModel>>>,
}

/// A server as one provider knows it, whose key may decide what it is shown.
type Server = (ProviderName, String);

type Kept<K, V> = HashMap<K, (Instant, V)>;

impl Default for InfoCache {
    /// A minute: shorter than it takes to fetch a model, longer than it takes to look twice.
    fn default() -> Self {
        Self::new(Duration::from_secs(60))
    }
}

impl InfoCache {
    /// Makes a cache that keeps each answer for so long.
    pub fn new(keep: Duration) -> Self {
        Self { keep, servers: Mutex::default(), models: Mutex::default() }
    }

    /// Returns what a server says of itself, asked now or a while ago.
    ///
    /// # Errors
    /// As [`Client::inspect`].
    pub async fn get(&self, client: &Client) -> Result<ProviderInfo, ProviderError> {
        match self.kept(&self.servers, &server(client)) {
            Some(kept) => Ok(kept),
            None => self.fresh(client).await,
        }
    }

    /// Asks a server, whatever is kept, and keeps what it says.
    ///
    /// # Errors
    /// As [`Client::inspect`].
    pub async fn fresh(&self, client: &Client) -> Result<ProviderInfo, ProviderError> {
        self.forget(client);
        let info = client.inspect().await?;
        keep(&self.servers, server(client), info.clone());
        Ok(info)
    }

    /// Returns what a server says of one model, asked now or a while ago.
    ///
    /// # Errors
    /// As [`Client::inspect_model`].
    pub async fn model(
        &self,
        client: &Client,
        name: &ModelName,
    ) -> Result<Option<ListedModel>, ProviderError> {
        let key = (server(client), name.clone());
        if let Some(kept) = self.kept(&self.models, &key) {
            return Ok(kept);
        }
        let found = client.inspect_model(name).await?;
        keep(&self.models, key, found.clone());
        Ok(found)
    }

    /// Forgets a server, as after it was given another model.
    pub fn forget(&self, client: &Client) {
        let server = server(client);
        lock(&self.servers).remove(&server);
        lock(&self.models).retain(|(of, _), _| *of != server);
    }

    fn kept<K: Hash + Eq, V: Clone>(&self, kept: &Mutex<Kept<K, V>>, key: &K) -> Option<V> {
        let kept = lock(kept);
        let (at, value) = kept.get(key)?;
        (at.elapsed() < self.keep).then(|| value.clone())
    }
}

impl fmt::Debug for InfoCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InfoCache").field("keep", &self.keep).finish_non_exhaustive()
    }
}

fn server(client: &Client) -> Server {
    (client.endpoint().name.clone(), client.base().to_string())
}

fn keep<K: Hash + Eq, V>(kept: &Mutex<Kept<K, V>>, key: K, value: V) {
    lock(kept).insert(key, (Instant::now(), value));
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
