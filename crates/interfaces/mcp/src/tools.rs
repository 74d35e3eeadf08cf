//! What is offered to whom: a tool for each capability that a caller may ask for, but for those that give credentials: what
//! they return is a token, and a model would read it.

use formwork_services::capability::{CAPABILITIES, Caller, Capability, Effect};
use serde::Serialize;
use serde_json::Value;

/// A tool, as the protocol writes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// By what it is called.
    pub name: String,
    /// The name of the capability, for people.
    pub title: &'static str,
    /// What it does.
    pub description: &'static str,
    /// What it is given.
    pub input_schema: Value,
    /// What it returns.
    pub output_schema: Value,
    /// What a client may want to know before it calls it.
    pub annotations: Annotations,
}

/// What a client may want to know of a tool before it calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Annotations {
    /// Whether it changes nothing.
    pub read_only_hint: bool,
    /// Whether it may take something away. Of what writes nothing says that it does not.
    pub destructive_hint: bool,
}

/// Returns the name of a capability as a tool: models are offered tools by names without a dot.
pub fn name(capability: &Capability) -> String {
    capability.name.replace('.', "_")
}

/// Returns the tools that a caller may call, in the order of the capabilities.
pub fn list(caller: &Caller) -> Vec<Tool> {
    offered().filter(|it| it.may(caller).is_ok()).map(tool).collect()
}

/// Finds a capability by the name of its tool, whoever asks.
pub(crate) fn find(named: &str) -> Option<&'static Capability> {
    offered().find(|capability| name(capability) == named)
}

fn offered() -> impl Iterator<Item = &'static Capability> {
    CAPABILITIES.iter().filter(|capability| !capability.name.starts_with("credentials."))
}

fn tool(capability: &Capability) -> Tool {
    let is_reading = capability.effect == Effect::Read;
    Tool {
        name: name(capability),
        title: capability.name,
        description: capability.doc,
        input_schema: capability.params(),
        output_schema: capability.output(),
        annotations: Annotations { read_only_hint: is_reading, destructive_hint: !is_reading },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use formwork_protocols::Principal;
    use formwork_services::capability::Scope;

    use super::*;

    #[test]
    fn behaviour_37_every_capability_is_a_tool_of_mcp_with_its_own_name_and_schemas() {
        let owner = Caller::owner(Principal::parse("user:ada").unwrap());

        let tools = list(&owner);

        let names: BTreeSet<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!((tools.len(), names.len()), (offered().count(), offered().count()));
        assert_eq!(CAPABILITIES.len() - tools.len(), 5, "those of credentials alone are left out");
        for (tool, capability) in tools.iter().zip(offered()) {
            let name = tool.name.as_str();
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            assert!(name.len() <= 64 && name.bytes().all(is_plain), "{name}");
            assert_eq!(find(name).map(|it| it.name), Some(capability.name));
            // As clients of every revision want them.
            assert_eq!(tool.input_schema["type"], "object", "{name}");
            assert_eq!(tool.output_schema["type"], "object", "{name}");
            assert_eq!(tool.annotations.read_only_hint, capability.effect == Effect::Read);
        }
    }

    #[test]
    fn behaviour_37_who_lacks_a_scope_is_offered_none_of_its_tools_by_mcp() {
        for scope in Scope::ALL {
            let caller = Caller::new(Principal::parse("user:ada").unwrap(), [scope]);

            let shown: Vec<String> = list(&caller).into_iter().map(|it| it.name).collect();

            let wanted = offered().filter(|capability| capability.scope == scope);
            assert_eq!(shown, wanted.map(name).collect::<Vec<_>>());
        }
    }
}
