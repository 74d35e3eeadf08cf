//! What tools there are, before any of them is made.

use formwork_protocols::ToolSpec;
use formwork_tool::builtin;

use crate::{consult, repository::load_skill, run_tests};

/// Describes every tool that Formwork brings along, in the order of their names.
pub(crate) fn built_in() -> Vec<ToolSpec> {
    let mut specs = builtin::specs();
    specs.extend([consult::spec(), load_skill(), run_tests::spec()]);
    specs.extend(formwork_browser::specs());
    specs.sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
    specs
}
