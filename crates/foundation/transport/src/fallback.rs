//! A chain of models: where one gives up, the next is asked.
//!
//! ```
//! use std::sync::Arc;
//!
//! use formwork_protocols::{Cancel, Message, ModelRequest, Price, Provider as _, Role};
//! use formwork_transport::{Script, Scripted, fallback::{Fallback, Link}};
//!
//! let link = |name: &str, turn: &str| -> Result<Link, Box<dyn std::error::Error>> {
//!     let script = Script::parse("demo.toml", &format!("format_version = 1\n[[turns]]\n{turn}\n"))?;
//!     let provider = Arc::new(Scripted::new(name.parse()?, "demo.toml", script));
//!     let model = format!("{name}/m").parse()?;
//!     Ok(Link { model, price: Price::LOCAL, max_output_tokens: None, images: None, provider })
//! };
//! let busy = link("busy", "fail = { fault = 'overloaded' }")?;
//! let calm = link("calm", "text = 'Hello.'")?;
//!
//! let chain = Fallback::new(busy, vec![calm]);
//! let request = ModelRequest::new("m".parse()?, vec![Message::text(Role::User, "Hi!")]);
//! let answer = futures::executor::block_on(chain.complete(request, Cancel::new()))?;
//!
//! assert_eq!(answer.served_by.provider.as_str(), "calm");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use formwork_protocols::{
    Attachment, Cancel, ModelEvent, ModelName, ModelRef, ModelRequest, Part, Price, Provider,
    ProviderError, ProviderFault, ProviderName,
    model::{FellBack, ModelStream, TAKES_NO_IMAGES},
};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

/// How long a model that has spent its tries is passed over. Long enough that a conversation does not wait for its
/// tries at every turn, short enough that it comes back to the model that it was meant for.
const REST: Duration = Duration::from_secs(300);

/// One model of a chain.
#[derive(Clone)]
pub struct Link {
    /// The model.
    pub model: ModelRef,
    /// What it costs.
    pub price: Price,
    /// How many tokens it can answer with; a request for more asks it for these.
    pub max_output_tokens: Option<u32>,
    /// Whether it takes images, where the operator says so. One that takes none is told in words that there were some.
    pub images: Option<bool>,
    /// Who answers for it.
    pub provider: Arc<dyn Provider>,
}

/// A provider that asks the next model of a chain where one has spent its tries, has no money left or is not there.
///
/// What it learns holds for its life, and so for the conversation that it is made for: a model that is not there, or
/// has no money left, is not asked again; one that has spent its tries is passed over for five minutes. Each call
/// tells with an event whom it passed over. Where that would be everybody, all are asked again.
///
/// A request that is wrong, too long or cancelled, and one without its key, is not asked again. Reasoning is shown to
/// the model that made it and to no other.
#[derive(Debug, Clone)]
pub struct Fallback {
    links: Arc<[Link]>,
    /// What is known of each, in the same order.
    known: Arc<Mutex<Vec<Option<Failed>>>>,
}

/// That a model gave up.
#[derive(Debug, Clone)]
struct Failed {
    error: ProviderError,
    /// Until when it is passed over; nothing for always.
    until: Option<Instant>,
}

impl Failed {
    fn new(error: ProviderError) -> Self {
        let is_final = matches!(error.fault, ProviderFault::ModelNotFound | ProviderFault::Quota);
        let until = (!is_final).then(|| Instant::now() + REST);
        Self { error, until }
    }

    fn holds(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

impl Fallback {
    /// Makes a chain.
    pub fn new(first: Link, rest: Vec<Link>) -> Self {
        let links: Arc<[Link]> = std::iter::once(first).chain(rest).collect();
        let known = Arc::new(Mutex::new(vec![None; links.len()]));
        Self { links, known }
    }

    /// Returns the most that a call may be billed by, whoever answers.
    pub fn ceiling(&self) -> Price {
        let prices = self.links.iter().map(|link| link.price);
        prices.reduce(|dearest, price| dearest.or_dearer(&price)).unwrap_or_default()
    }

    /// Returns why each model in front of the first that is to be asked is passed over.
    fn passed_over(&self) -> Vec<ProviderError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |failed: &&Option<Failed>| failed.as_ref().is_some_and(Failed::holds);
        let passed: Vec<_> = known.iter().take_while(failed).flatten().collect();
        if passed.len() == known.len() {
            return Vec::new();
        }
        let errors = passed.into_iter().map(|failed| {
            let message = format!("not asked again: {}", failed.error.message);
            // What it used was told when it failed.
            ProviderError { message, tries: 0, used: None, ..failed.error.clone() }
        });
        errors.collect()
    }

    fn learn(&self, at: usize, failed: Option<Failed>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get_mut(at) {
            *known = failed;
        }
    }
}

#[async_trait]
impl Provider for Fallback {
    fn name(&self) -> &ProviderName {
        self.links.first().expect("a chain has a first model").provider.name()
    }

    /// What the first model says; what another one does not take is told it in words.
    async fn takes_images(&self, model: &ModelName) -> Option<bool> {
        self.links.first()?.provider.takes_images(model).await
    }

    fn refuses(&self, attachment: &Attachment) -> Option<String> {
        self.links.first()?.provider.refuses(attachment)
    }

    fn stream(&self, request: ModelRequest, cancel: Cancel) -> ModelStream {
        let call = Call {
            events: None,
            chain: self.clone(),
            at: 0,
            passed: None,
            request,
            cancel,
            begun: None,
            tries: 0,
        };
        stream::unfold(call, |mut call| async move {
            let item = call.next().await?;
            Some((item, call))
        })
        .boxed()
    }
}

/// One call on its way through the chain.
struct Call {
    /// What the present model answers; nothing where it was not asked yet.
    events: Option<ModelStream>,
    chain: Fallback,
    /// The present model's place.
    at: usize,
    /// Why those in front were passed over, until it is told; nothing where nobody has looked yet.
    passed: Option<std::vec::IntoIter<ProviderError>>,
    request: ModelRequest,
    cancel: Cancel,
    /// When the first model was asked.
    begun: Option<Instant>,
    /// How often the models before were tried.
    tries: u32,
}

impl Call {
    async fn next(&mut self) -> Option<Result<ModelEvent, ProviderError>> {
        let passed = self.passed.get_or_insert_with(|| self.chain.passed_over().into_iter());
        if let Some(error) = passed.next() {
            return Some(self.go_on(error));
        }
        let now = Instant::now();
        let begun = *self.begun.get_or_insert(now);
        if self.events.is_none() {
            let link = self.chain.links.get(self.at)?;
            let request = fitted(&self.request, link);
            self.events = Some(link.provider.stream(request, self.cancel.clone()));
        }
        match self.events.as_mut()?.next().await? {
            Ok(ModelEvent::Done(mut done)) => {
                self.chain.learn(self.at, None);
                // What those before it took is part of the call.
                let before = begun.elapsed().saturating_sub(done.elapsed);
                done.elapsed = begun.elapsed();
                done.first_token = done.first_token.map(|first| first.saturating_add(before));
                done.tries = done.tries.saturating_add(self.tries);
                Some(Ok(ModelEvent::Done(done)))
            }
            Ok(event) => Some(Ok(event)),
            Err(error) if error.fault.concerns_one_model() && !self.cancel.is_cancelled() => {
                self.chain.learn(self.at, Some(Failed::new(error.clone())));
                Some(self.go_on(error))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Turns to the next model, or gives up with the last one's error.
    fn go_on(&mut self, error: ProviderError) -> Result<ModelEvent, ProviderError> {
        let links = Arc::clone(&self.chain.links);
        let (Some(from), Some(to)) = (links.get(self.at), links.get(self.at + 1)) else {
            return Err(error);
        };
        self.at += 1;
        self.tries = self.tries.saturating_add(error.tries);
        self.events = None;
        let (from, to, price) = (from.model.clone(), to.model.clone(), to.price);
        Ok(ModelEvent::FellBack(Box::new(FellBack { from, to, price, error })))
    }
}

/// Makes the request one for this model: its name, its limit, and no reasoning but its own.
fn fitted(request: &ModelRequest, link: &Link) -> ModelRequest {
    let mut request = request.clone();
    request.model = link.model.model.clone();
    let limits = request.max_output_tokens.into_iter().chain(link.max_output_tokens);
    // Where nobody asked for a limit, the provider's own holds.
    request.max_output_tokens = request.max_output_tokens.and(limits.min());
    let why = |attachment: &Attachment| match link.images {
        Some(false) if attachment.is_image() => Some(TAKES_NO_IMAGES.to_owned()),
        _ => link.provider.refuses(attachment),
    };
    for message in &mut request.messages {
        message.mask(&why);
        message.parts.retain(|part| match part {
            Part::Reasoning(thought) => {
                thought.provenance.provider == link.model.provider
                    && thought.provenance.model == link.model.model
            }
            _ => true,
        });
    }
    request
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("model", &self.model).field("price", &self.price).finish()
    }
}
