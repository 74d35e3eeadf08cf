//! What it costs to read an answer from its bytes, for every wire and however they are cut.

use std::hint::black_box;

use anyhow::{Result, ensure};
use formwork_protocols::{Message, ModelEvent, ModelRequest, Role};
use formwork_transport::{Endpoint, decode::Answer};

use crate::{
    allocations,
    cpu::cpu,
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    wires::{WIRES, Wire},
};

/// How many bytes come at once: a busy server's, a packet's of one event, and the worst.
const CUTS: [usize; 3] = [16 * 1024, 263, 1];

/// Runs the bench.
pub(crate) fn run(is_quick: bool, report: &mut Report) -> Result<()> {
    let (repetitions, count) = if is_quick { (5, 1_000) } else { (15, 10_000) };
    for wire in &WIRES {
        let noise = Noise::begin();
        let body = wire.events(count)?.concat();
        for cut in CUTS {
            let (mut ours, mut bare) = (Vec::new(), Vec::new());
            for _ in 0..repetitions {
                let read = allocations::uncounted(|| read(wire, body.as_bytes(), cut))?;
                let floor = allocations::uncounted(|| floor(wire, body.as_bytes(), cut))?;
                // Whether both read the same is part of the measure.
                ensure!(read.text == floor.text, "{}: {} and {}", wire.name, read.text, floor.text);
                ours.push(read.nanoseconds / read.events);
                bare.push(floor.nanoseconds / floor.events);
            }
            let (read, floor) =
                (read(wire, body.as_bytes(), cut)?, floor(wire, body.as_bytes(), cut)?);
            let name = format!("sse_decode/{}/{cut} B", wire.name);
            report.add(
                Figure::new(name, "ns/event of CPU", ours)
                    .against("memchr and borrowed serde", bare)
                    .aims(Target::ratio(Limit::AtMost(1.5), Limit::AtMost(1.2))),
            );
            let name = format!("sse_decode/{}/{cut} B/allocations", wire.name);
            report.add(
                Figure::new(name, "per event", vec![read.allocations / read.events])
                    .against("the same", vec![floor.allocations / floor.events]),
            );
        }
        report.noise(&format!("sse_decode/{}", wire.name), &noise);
    }
    Ok(())
}

struct Read {
    nanoseconds: f64,
    allocations: f64,
    events: f64,
    /// How many bytes of text it held.
    text: usize,
}

fn read(wire: &Wire, body: &[u8], cut: usize) -> Result<Read> {
    let endpoint = Endpoint::new("bench".parse()?, wire.kind, "http://127.0.0.1:1");
    let request = ModelRequest::new("m".parse()?, vec![Message::text(Role::User, "Go.")]);
    let (mut events, mut text) = (0_usize, 0);
    let allocated = allocations::count();
    let began = cpu();
    let mut answer = Answer::new(&endpoint, request);
    for bytes in body.chunks(cut) {
        answer.push(bytes)?;
        while let Some(event) = answer.next_event() {
            events += 1;
            if let ModelEvent::Text { text: more } | ModelEvent::Reasoning { text: more } =
                black_box(&event)
            {
                text += more.len();
            }
        }
    }
    black_box(answer.finish()?);
    let nanoseconds = cpu() - began;
    let allocations = allocations::count() - allocated;
    Ok(Read { nanoseconds, allocations, events: events as f64, text })
}

fn floor(wire: &Wire, body: &[u8], cut: usize) -> Result<Read> {
    let allocated = allocations::count();
    let began = cpu();
    let mut bare = wire.bare();
    for bytes in body.chunks(cut) {
        bare.push(bytes);
    }
    let nanoseconds = cpu() - began;
    let allocations = allocations::count() - allocated;
    ensure!(bare.lines > 0, "{}: the floor read nothing", wire.name);
    Ok(Read { nanoseconds, allocations, events: bare.lines as f64, text: bare.text })
}
