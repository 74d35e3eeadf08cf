//! What an operator configures: a document, its layers, and where each value came from.

mod document;
mod layers;

pub use {
    document::{
        AfterOutside, Config, HookConfig, HookEvent, HttpConfig, InstructionsConfig, ModelConfig,
        Permissions, PriceConfig, PriceWord, ProgramsConfig, ProviderConfig, SandboxMode,
        ToolCallsConfig, Unattended,
    },
    layers::{Layer, Layered, Layers, Origin},
};
