use proptest::prelude::*;

use super::*;
use crate::replay::{conversations, request, sent};

/// Returns what is sent for the first messages of a conversation; the answer may have fewer tokens the longer it is.
fn turn(messages: &[Message]) -> String {
    let mut request = ModelRequest { messages: messages.to_vec(), ..request() };
    request.max_output_tokens = Some(10_000 - u32::try_from(messages.len()).unwrap());
    sent(ProviderKind::OpenAi, &request)
}

/// Returns what of a request stays as it is while the conversation goes on.
fn stable(sent: &str) -> &str {
    let (stable, tail) = sent.rsplit_once("],\"max_completion_tokens\":").unwrap();
    assert!(tail.len() < 8, "{tail}");
    stable
}

#[test]
fn what_may_change_from_turn_to_turn_comes_last() {
    let messages = [
        Message::text(Role::System, "Rules."),
        Message::text(Role::User, "Go."),
        Message::text(Role::Assistant, "Gone."),
        Message::text(Role::User, "Go on."),
    ];

    insta::assert_snapshot!(format!("{}\n{}", turn(&messages[..2]), turn(&messages)));
}

proptest! {
    #[test]
    fn a_turns_request_begins_with_the_bytes_of_the_one_before(messages in conversations(12)) {
        let ends = (2..=messages.len()).filter(|end| messages[end - 1].role != Role::Assistant);
        let mut before: Option<String> = None;
        for end in ends {
            let sent = turn(&messages[..end]);
            if let Some(before) = &before {
                prop_assert!(sent.starts_with(stable(before)), "{}\n{}", before, sent);
            }
            before = Some(sent);
        }
    }
}
