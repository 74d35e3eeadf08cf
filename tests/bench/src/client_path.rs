//! What the client adds to the HTTP library below it: for each event of a long answer, and for a whole short call.

use std::hint::black_box;

use anyhow::{Context as _, Result, ensure};
use formwork_protocols::{
    Cancel, Message, ModelEvent, ModelRequest, Price, Provider as _, Role, Usage,
};
use formwork_transport::{Client, Endpoint, ProviderKind, Seams};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::runtime::Builder;

use crate::{
    allocations,
    cpu::cpu,
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    stream_server::StreamServer,
    wires::{Bare, WIRES, Wire},
};

/// How many short calls are measured together.
const CALLS: usize = 200;

/// Runs the bench. All of a client runs on this thread, whose processor time is what is measured; the server does not.
pub(crate) fn run(is_quick: bool, report: &mut Report) -> Result<()> {
    let (repetitions, count) = if is_quick { (5, 2_000) } else { (15, 10_000) };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let wire = &WIRES[0];
    let noise = Noise::begin();
    let (mut ours, mut bare, mut usual) = (Vec::new(), Vec::new(), Vec::new());
    let events = wire.events(count)?;
    let server = StreamServer::start(&events)?;
    let (client, plain) = (Formwork::new(&server)?, Plain::new(&server)?);
    for _ in 0..repetitions {
        let read = allocations::uncounted(|| runtime.block_on(client.measure(1)))?;
        let floor = allocations::uncounted(|| runtime.block_on(plain.measure(wire, 1)))?;
        let trees = allocations::uncounted(|| runtime.block_on(plain.read_by::<Usual>(1)))?;
        for other in [&floor, &trees] {
            ensure!(read.text == other.text, "{} and {} bytes of text", read.text, other.text);
        }
        for (samples, sample) in [(&mut ours, read), (&mut bare, floor), (&mut usual, trees)] {
            samples.push(sample.nanoseconds / events.len() as f64);
        }
    }
    report.add(
        Figure::new("client_path/event", "ns of CPU", ours.clone())
            .against("reqwest, events as text, each a serde_json::Value", usual)
            .aims(Target::ratio(Limit::AtMost(0.6), Limit::AtMost(0.42))),
    );
    report.add(
        Figure::new("client_path/event", "ns of CPU", ours)
            .against("reqwest, memchr and borrowed serde", bare)
            .aims(Target::ratio(Limit::AtMost(1.3), Limit::AtMost(1.05))),
    );

    let events = wire.events(3)?;
    let server = StreamServer::start(&events)?;
    let (client, plain) = (Formwork::new(&server)?, Plain::new(&server)?);
    let mut added = Vec::new();
    for _ in 0..repetitions {
        let call = allocations::uncounted(|| runtime.block_on(client.measure(CALLS)))?;
        let floor = allocations::uncounted(|| runtime.block_on(plain.measure(wire, CALLS)))?;
        added.push((call.nanoseconds - floor.nanoseconds) / CALLS as f64 / 1e3);
    }
    let call = runtime.block_on(client.measure(CALLS))?;
    let floor = runtime.block_on(plain.measure(wire, CALLS))?;
    let allocated = vec![(call.allocations - floor.allocations) / CALLS as f64];
    report.add(
        Figure::new("client_path/call, beyond bare reqwest", "µs of CPU", added)
            .aims(Target::figure(Limit::AtMost(100.0), Some(Limit::AtMost(30.0)))),
    );
    report.add(Figure::new("client_path/call/allocations, beyond", "per call", allocated));
    report.noise("client_path", &noise);
    Ok(())
}

struct Sample {
    nanoseconds: f64,
    allocations: f64,
    text: usize,
}

struct Formwork {
    client: Client,
    price: Price,
}

impl Formwork {
    fn new(server: &StreamServer) -> Result<Self> {
        let kind = ProviderKind::OpenAiCompatible;
        let endpoint = Endpoint::new("bench".parse()?, kind, server.url());
        let client = Client::new(endpoint, Seams::default())?;
        let price = Price { input: "3".parse()?, output: "15".parse()?, ..Price::LOCAL };
        Ok(Self { client, price })
    }

    /// Makes so many calls, each with its cost.
    async fn measure(&self, calls: usize) -> Result<Sample> {
        let mut text = 0;
        let allocated = allocations::count();
        let began = cpu();
        for _ in 0..calls {
            let messages = vec![Message::text(Role::User, "What is the capital of France?")];
            let request = ModelRequest::new("m".parse()?, messages);
            let mut events = self.client.stream(request, Cancel::new());
            let mut usage = Usage::default();
            while let Some(event) = events.next().await {
                match black_box(&event?) {
                    ModelEvent::Text { text: more } => text += more.len(),
                    ModelEvent::Done(answer) => usage = answer.usage,
                    _ => {}
                }
            }
            ensure!(usage.total() > 0, "the answer told no usage");
            black_box(self.price.cost(&usage));
        }
        let nanoseconds = cpu() - began;
        Ok(Sample { nanoseconds, allocations: allocations::count() - allocated, text })
    }
}

/// What is written where no library is used but the one for HTTP.
struct Plain {
    http: reqwest::Client,
    url: String,
}

impl Plain {
    fn new(server: &StreamServer) -> Result<Self> {
        Ok(Self { http: http()?, url: format!("{}/v1/chat/completions", server.url()) })
    }

    async fn measure(&self, wire: &Wire, calls: usize) -> Result<Sample> {
        self.read(calls, || wire.bare()).await
    }

    async fn read_by<R: Reads + Default>(&self, calls: usize) -> Result<Sample> {
        self.read(calls, R::default).await
    }

    async fn read<R: Reads>(&self, calls: usize, reader: impl Fn() -> R) -> Result<Sample> {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"What is the capital of France?"}],"stream":true}"#;
        let mut text = 0;
        let allocated = allocations::count();
        let began = cpu();
        for _ in 0..calls {
            let sending = self.http.post(&self.url).header("content-type", "application/json");
            let mut chunks = sending.body(body).send().await?.bytes_stream();
            let mut reader = reader();
            while let Some(chunk) = chunks.next().await {
                reader.push(&chunk?);
            }
            text += reader.text();
        }
        let nanoseconds = cpu() - began;
        Ok(Sample { nanoseconds, allocations: allocations::count() - allocated, text })
    }
}

/// What reads a body as it comes.
trait Reads {
    fn push(&mut self, bytes: &[u8]);

    /// How many bytes of text it held.
    fn text(&self) -> usize;
}

impl Reads for Bare {
    fn push(&mut self, bytes: &[u8]) {
        Self::push(self, bytes);
    }

    fn text(&self) -> usize {
        self.text
    }
}

/// How most clients read a stream: a text that is cut at its empty lines, and a tree for each event. It knows none of the rare
/// cases, so a library that does costs more.
#[derive(Default)]
struct Usual {
    buffer: String,
    text: usize,
}

impl Reads for Usual {
    fn push(&mut self, bytes: &[u8]) {
        self.buffer.push_str(&String::from_utf8_lossy(bytes));
        while let Some(end) = self.buffer.find("\n\n") {
            let event: String = self.buffer.drain(..end + 2).collect();
            let data = event.lines().filter_map(|line| line.strip_prefix("data: "));
            for data in data {
                let Ok(tree) = serde_json::from_str::<Value>(data) else { continue };
                let content = tree.pointer("/choices/0/delta/content").and_then(Value::as_str);
                self.text += content.map_or(0, str::len);
            }
        }
    }

    fn text(&self) -> usize {
        self.text
    }
}

/// Makes the HTTP client of a floor.
pub(crate) fn http() -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder().no_proxy().tls_certs_only([]);
    builder.retry(reqwest::retry::never()).build().context("cannot make an HTTP client")
}
