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
//!     Ok(Link { model, price: Price::LOCAL, max_output_tokens: None, provider })
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

use std::{collections::VecDeque, fmt, sync::Arc};

use formwork_protocols::{
    Cancel, ModelEvent, ModelRef, ModelRequest, Part, Price, Provider, ProviderError, ProviderName,
    model::ModelStream,
};
use futures::{StreamExt as _, stream};
use tokio::time::Instant;

/// One model of a chain.
#[derive(Clone)]
pub struct Link {
    /// The model.
    pub model: ModelRef,
    /// What it costs.
    pub price: Price,
    /// How many tokens it can answer with; a request for more asks it for these.
    pub max_output_tokens: Option<u32>,
    /// Who answers for it.
    pub provider: Arc<dyn Provider>,
}

/// A provider that asks the next model of a chain where one has spent its tries, has no money left or is not there.
///
/// It keeps nothing between calls: each begins with the first model. A request that is wrong, too long or cancelled,
/// and one without its key, is not asked again. Reasoning is shown to the model that made it and to no other.
#[derive(Debug, Clone)]
pub struct Fallback {
    first: Link,
    rest: Vec<Link>,
}

impl Fallback {
    /// Makes a chain.
    pub const fn new(first: Link, rest: Vec<Link>) -> Self {
        Self { first, rest }
    }

    /// Returns the most that a call may be billed by, whoever answers.
    pub fn ceiling(&self) -> Price {
        let links = self.rest.iter();
        links.fold(self.first.price, |dearest, link| dearest.or_dearer(&link.price))
    }
}

impl Provider for Fallback {
    fn name(&self) -> &ProviderName {
        self.first.provider.name()
    }

    fn stream(&self, request: ModelRequest, cancel: Cancel) -> ModelStream {
        let call = Call {
            events: None,
            link: self.first.clone(),
            rest: self.rest.iter().cloned().collect(),
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
    link: Link,
    rest: VecDeque<Link>,
    request: ModelRequest,
    cancel: Cancel,
    /// When the first model was asked.
    begun: Option<Instant>,
    /// How often the models before were tried.
    tries: u32,
}

impl Call {
    async fn next(&mut self) -> Option<Result<ModelEvent, ProviderError>> {
        let now = Instant::now();
        let begun = *self.begun.get_or_insert(now);
        let events = self.events.get_or_insert_with(|| {
            let request = fitted(&self.request, &self.link);
            self.link.provider.stream(request, self.cancel.clone())
        });
        match events.next().await? {
            Ok(ModelEvent::Done(mut done)) => {
                // What those before it took is part of the call.
                let before = begun.elapsed().saturating_sub(done.elapsed);
                done.elapsed = begun.elapsed();
                done.first_token = done.first_token.map(|first| first.saturating_add(before));
                done.tries = done.tries.saturating_add(self.tries);
                Some(Ok(ModelEvent::Done(done)))
            }
            Ok(event) => Some(Ok(event)),
            Err(error) if error.fault.concerns_one_model() && !self.cancel.is_cancelled() => {
                Some(self.go_on(error))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Turns to the next model, or gives up with the last one's error.
    fn go_on(&mut self, error: ProviderError) -> Result<ModelEvent, ProviderError> {
        let Some(next) = self.rest.pop_front() else { return Err(error) };
        self.tries = self.tries.saturating_add(error.tries);
        self.events = None;
        let from = std::mem::replace(&mut self.link, next);
        let (to, price) = (self.link.model.clone(), self.link.price);
        Ok(ModelEvent::FellBack { from: from.model, to, price, error })
    }
}

/// Makes the request one for this model: its name, its limit, and no reasoning but its own.
fn fitted(request: &ModelRequest, link: &Link) -> ModelRequest {
    let mut request = request.clone();
    request.model = link.model.model.clone();
    let limits = request.max_output_tokens.into_iter().chain(link.max_output_tokens);
    // Where nobody asked for a limit, the provider's own holds.
    request.max_output_tokens = request.max_output_tokens.and(limits.min());
    for message in &mut request.messages {
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
