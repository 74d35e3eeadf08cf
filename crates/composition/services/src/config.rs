//! What an operator configures: a document, its layers, and where each value came from.

mod document;
mod layers;

pub use {
    document::{
        Config, HookConfig, HookEvent, InstructionsConfig, ModelConfig, Permissions, PriceConfig,
        PriceWord, ProviderConfig, SandboxMode, ToolCallsConfig,
    },
    layers::{Layer, Layered, Layers, Origin},
};
