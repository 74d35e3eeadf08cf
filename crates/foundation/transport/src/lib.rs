//! A typed LLM client: providers, streaming, usage, prices, retries, recordings.

pub mod sse; // Server-sent events from bytes; usable alone.
