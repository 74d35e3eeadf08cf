use std::{fmt, sync::Arc};

use formwork_protocols::{Clock, NoSecrets, Rng, Scrub, SystemClock, SystemRng};

/// What a provider needs of the world: what must not be told, chance, and the time.
#[derive(Clone)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Seams {
    pub scrub: Arc<dyn Scrub>,
    pub rng: Arc<dyn Rng>,
    pub clock: Arc<dyn Clock>,
}

impl Default for Seams {
    /// No secrets but the endpoint's own key, and the machine's chance and time.
    fn default() -> Self {
        Self { scrub: Arc::new(NoSecrets), rng: Arc::new(SystemRng), clock: Arc::new(SystemClock) }
    }
}

impl fmt::Debug for Seams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seams").finish_non_exhaustive()
    }
}
