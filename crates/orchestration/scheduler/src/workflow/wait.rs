//! Tasks that wait for somebody outside, as they are written.

use std::collections::BTreeSet;

use formwork_protocols::{
    Body,
    document::nearest_hint,
    spec::{Decision, WaitFor},
};

use super::{
    document::{DecisionDocument, WaitForDocument},
    plan::Reader,
    refer::{Level, Side},
};

/// The most bytes of an option: it is typed, and shown in a line.
const MAX_OPTION: usize = 200;

impl Reader<'_> {
    pub(super) fn wait_for(
        &mut self,
        place: &str,
        written: &WaitForDocument,
        levels: &[Level<'_>],
    ) -> Body {
        let WaitForDocument { event, filter, timeout } = written.clone();
        if let Some(filter) = &filter {
            self.expression_with(
                &format!("{place}/where"),
                filter,
                levels,
                Side::Within,
                &["data"],
            );
        }
        Body::WaitFor(WaitFor { event, filter, timeout })
    }

    pub(super) fn decision(
        &mut self,
        place: &str,
        written: &DecisionDocument,
        levels: &[Level<'_>],
    ) -> Body {
        let DecisionDocument { question, options, timeout, assume } = written.clone();
        if question.trim().is_empty() {
            self.fault(&format!("{place}/question"), "a decision asks a question", None);
        }
        self.template(&format!("{place}/question"), &question, levels, Side::Within);
        if options.len() < 2 {
            let message = format!("a decision has at least two options, found {}", options.len());
            self.fault(&format!("{place}/options"), message, None);
        }
        let mut seen = BTreeSet::new();
        for (at, option) in options.iter().enumerate() {
            let place = format!("{place}/options/{at}");
            if option.trim().is_empty() || option.len() > MAX_OPTION || option.contains('\n') {
                let message = format!("an option is one line of at most {MAX_OPTION} bytes");
                self.fault(&place, message, None);
            } else if !seen.insert(option) {
                self.fault(&place, format!("the option {option:?} is there twice"), None);
            }
        }
        if let Some(assume) = &assume {
            if !options.contains(assume) {
                let hint = nearest_hint(assume, options.iter().map(String::as_str));
                let message = format!("{assume:?} is none of the options");
                self.fault(&format!("{place}/assume"), message, hint);
            }
            if timeout.is_none() {
                let hint = "say by timeout when it is assumed".to_owned();
                let message = "nothing is assumed while it waits without end";
                self.fault(&format!("{place}/assume"), message, Some(hint));
            }
        }
        Body::Decision(Decision { question, options, timeout, assume })
    }
}
